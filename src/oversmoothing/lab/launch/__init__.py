"""Turns a command line into results."""
