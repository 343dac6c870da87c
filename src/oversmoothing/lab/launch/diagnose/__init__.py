"""The command ``python -m oversmoothing diagnose`` and its sources of models."""
