"""The interfaces of components (methods, attacks, audits), their inputs and results, and the membership game."""
