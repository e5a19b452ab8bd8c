"""What messages add to what is known of a person's attribute."""
