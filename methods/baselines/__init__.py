"""What every comparison holds a method against: pooled records, raw features, local models, their averages."""
