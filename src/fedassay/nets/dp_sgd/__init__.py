"""DP-SGD: one loop and one noise mechanism for all private training, with a watch on its steps."""
