"""The foundations of the package: files, cache, hashing, paths, progress, seeds, types, errors, the registry.

This folder knows nothing of messages, plans or attacks, and imports no other folder of the package.
"""
