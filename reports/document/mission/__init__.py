"""The mission's table and figure: methods by epsilon, what each is worth, and what comes back from each."""
