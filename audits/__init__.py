"""Verdicts: claim against accounting against observation, and what attacks recovered."""
