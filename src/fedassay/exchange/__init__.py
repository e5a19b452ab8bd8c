"""What is sent and what is seen: releases, messages, transcripts, the view of a threat model, and the ledger.

A message is the object of the audit. What can be read from it by counting alone (feature sources, counts, sums,
the rank of a Gram matrix) stands here too.
"""
