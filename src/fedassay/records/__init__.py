"""The record of a run: its schema, what it refuses, and the pictures that it names.

Reports, policies and comparisons read records and nothing else, so an old run can be rendered again.
"""
