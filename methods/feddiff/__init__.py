"""FedDiff: a diffusion model from every client, with Fourier magnitude filtering (Mendieta et al. 2025)."""
