"""Messages and their views: releases, messages, transcripts, the view of a threat model, and the ledger.

A message is the object of the audit. Readings of it by counting alone (feature sources, counts, sums, the rank of
a Gram matrix) stand here too.
"""
