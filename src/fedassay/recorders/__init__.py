"""Recorders of other systems' messages: what they write can be audited like a transcript of ours."""
