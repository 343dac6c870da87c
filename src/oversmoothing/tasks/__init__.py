"""What is trained or simulated, and measured: each task is one `run(...)` function."""
