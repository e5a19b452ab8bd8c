"""fedassay: an assay of what one-shot federated learning gives away.

The package has four rooms (`methods`, `attacks`, `audits`, `reports`) and the
corridor that connects them (everything else here). Rooms import the corridor
and never each other; only `fedassay.execution.runner` knows all four.
"""

__version__ = "0.1.0"
