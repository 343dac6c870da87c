"""BERT and ALBERT."""
