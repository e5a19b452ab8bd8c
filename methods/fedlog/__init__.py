"""FedLog and FedLog-C: sufficient statistics over rounds (paper 002)."""
