"""What belongs to one figure or table of one paper."""
