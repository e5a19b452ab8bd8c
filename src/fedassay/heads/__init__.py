"""Classifier heads over frozen features: trained by cross-entropy, computed from moments, computed from sums."""
