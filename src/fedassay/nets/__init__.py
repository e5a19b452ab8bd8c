"""Networks and training loops that methods and attacks share."""
