"""The decision: what a policy makes of a run, in words that a privacy officer would sign."""
