"""Attacks of an adversary on its view of a run: one file per attack."""
