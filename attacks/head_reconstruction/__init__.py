"""Features of the few records behind a converged softmax head."""
