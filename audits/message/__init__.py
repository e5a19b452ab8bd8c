"""Arithmetic on messages, judged."""
