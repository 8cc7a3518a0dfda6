"""torch: tensors and modules, what is spread over the ranks of a gang, devices, random numbers, settings."""
