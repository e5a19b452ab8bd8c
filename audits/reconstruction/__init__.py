"""Reconstructed images, judged."""
