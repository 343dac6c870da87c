"""Puts aggregators into models of other libraries, and takes them out again."""
