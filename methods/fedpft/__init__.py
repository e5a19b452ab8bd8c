"""FedPFT: mixtures of features (papers 000 and 003), its chain and its private forms."""
