"""Classification of sentences: GLUE."""
