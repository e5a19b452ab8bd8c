"""Records from sums of outer products."""
