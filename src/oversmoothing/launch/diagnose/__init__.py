"""The command ``python -m oversmoothing diagnose``: which models it knows, and what it does."""
