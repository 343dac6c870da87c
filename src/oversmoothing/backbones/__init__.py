"""Networks, and where each lets an aggregator act."""
