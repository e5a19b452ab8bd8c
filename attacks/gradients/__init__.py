"""Gradients and weights that systems send: inputs of layers, features under heads, images by matching."""
