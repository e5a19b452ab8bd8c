"""Plans that run as they are."""
