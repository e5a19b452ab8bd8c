"""FedPFT: mixtures of features (Beitollahi et al. 2024), its chain and its private forms."""
