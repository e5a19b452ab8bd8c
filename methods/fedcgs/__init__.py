"""FedCGS: sums of features and of their outer products (paper 001)."""
