"""Who of a gallery of candidates is in a message whose numbers are sums over its records."""
