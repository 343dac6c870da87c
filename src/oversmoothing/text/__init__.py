"""Sentences: tokens, classifier, predictions."""
