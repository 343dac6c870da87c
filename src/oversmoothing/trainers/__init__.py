"""Training recipes: one optimiser with its schedule, one file."""
