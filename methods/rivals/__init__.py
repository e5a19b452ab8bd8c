"""Published methods of one round or few that the four audited papers compare with."""
