"""numpy: arrays, universal functions, generators of random numbers, settings."""
