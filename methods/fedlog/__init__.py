"""FedLog and FedLog-C: sufficient statistics over rounds (Yu et al. 2026)."""
