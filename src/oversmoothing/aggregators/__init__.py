"""What mixes, or repairs the mixing of, tokens, nodes and pixels: one method, one file."""
