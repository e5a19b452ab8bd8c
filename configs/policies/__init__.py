"""Policies for `fedassay check` that work as they are."""
