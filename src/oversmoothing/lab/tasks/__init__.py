"""Tasks, which train or simulate networks and measure them; each is a class with ``run``."""
