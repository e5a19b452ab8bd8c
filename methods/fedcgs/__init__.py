"""FedCGS: sums of features and of their outer products (Guan et al. 2025)."""
