"""Every interval, bound and statistical test of the project, once."""
