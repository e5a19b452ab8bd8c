"""Inverted features, judged."""
