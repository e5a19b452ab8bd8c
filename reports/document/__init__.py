"""The page and its parts: tables, figures, pictures, words; comparisons of runs."""
