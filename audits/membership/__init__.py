"""Membership attacks, judged."""
