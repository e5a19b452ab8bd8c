"""A run record in, pages out."""
