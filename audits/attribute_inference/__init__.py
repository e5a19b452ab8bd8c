"""Audit of attribute inference: the gain of messages over prior knowledge of a person's attribute."""
