"""Baselines for every comparison of methods: pooled records, raw features, local models, their averages."""
