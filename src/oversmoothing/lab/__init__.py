"""The lab: trains networks, reproduces the tables of the papers, and reports."""
