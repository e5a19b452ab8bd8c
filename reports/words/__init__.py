"""The words and numbers that every report uses: verdicts, metrics, names, groups of cells."""
