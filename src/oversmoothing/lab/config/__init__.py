"""Configs: composed from a command line and checked."""
