"""What clients send and how the server learns: one file per backend."""
