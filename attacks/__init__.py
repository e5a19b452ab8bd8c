"""What an adversary does with what it sees: one file per attack."""
