"""The one answer to a run: built once from a record and a policy, rendered everywhere, added to nowhere."""
