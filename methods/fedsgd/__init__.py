"""One step of federated SGD: gradients, plain or clipped and noised."""
