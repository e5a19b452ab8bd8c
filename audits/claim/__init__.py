"""Does a differential-privacy claim hold: ledger, lower bounds, measured training."""
