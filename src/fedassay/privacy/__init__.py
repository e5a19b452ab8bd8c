"""Differential privacy: mechanisms, exact sensitivities, accounting."""
