"""Whether a record was among those that a release was computed from."""
