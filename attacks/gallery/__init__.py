"""Membership of gallery candidates in a message of sums over records."""
