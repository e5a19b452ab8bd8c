"""The three questions that a run is asked with its tape: what left is what was declared."""
