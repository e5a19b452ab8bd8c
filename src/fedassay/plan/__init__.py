"""From a YAML file to a resolved scenario: schema, keys and their words, resolving, sizes, estimates, resources.

Nothing reads YAML after a `Scenario` exists.
"""
