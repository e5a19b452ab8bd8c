"""Common parts of several methods: local training, heads, rounds, DP-SGD."""
