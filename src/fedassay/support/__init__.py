"""The foundations of the package: files, cache, hashing, paths, progress, seeds, types, errors, the registry.

Nothing here knows what a message, a plan or an attack is, and nothing here imports another folder of the package.
"""
