"""FedDiff: a diffusion model from every client, with Fourier magnitude filtering (paper 004)."""
