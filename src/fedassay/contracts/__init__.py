"""What a component owes the house, and what it is given: methods, attacks, audits, and the membership game."""
