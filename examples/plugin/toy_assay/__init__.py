"""A package of somebody else: one method, one attack, one audit, registered through entry points alone."""
