"""The record of a run: its schema, its checks, and the pictures that it names.

Reports, policies and comparisons read records and nothing else, so an old run can be rendered again.
"""
