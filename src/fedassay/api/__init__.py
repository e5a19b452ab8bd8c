"""The public interface in Python: the names of `import fedassay` for notebooks and other programs."""
