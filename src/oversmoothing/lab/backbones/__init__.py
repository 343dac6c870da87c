"""Networks with sites for aggregators."""
