"""DP-SGD: one loop and one door for all private training, and what is watched while its steps are taken."""
