"""Graph convolutional networks."""
