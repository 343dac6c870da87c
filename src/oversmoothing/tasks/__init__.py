"""What is trained or simulated, and measured: each task is one class with a method ``run``."""
