"""Networks of torch-geometric's convolutions."""
