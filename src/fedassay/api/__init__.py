"""The public face in Python: what `import fedassay` offers to notebooks and other programs."""
