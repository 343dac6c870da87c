"""How alike the tokens have become."""
