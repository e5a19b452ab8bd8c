"""Evidence for a file: what a privacy officer keeps, every line traced to the record or left to a person."""
