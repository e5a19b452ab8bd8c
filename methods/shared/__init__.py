"""What several methods share: local training, heads, rounds, DP-SGD."""
