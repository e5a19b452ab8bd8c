"""Carrying a scenario out: the runner, the work on a cell, engines, the run folder, stages, preparing.

With the command line this is the only part of the corridor that knows the rooms.
"""
