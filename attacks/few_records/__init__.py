"""Single records from the moments of a few: which values a component's mean and variances leave open."""
