"""From a command line to results."""
