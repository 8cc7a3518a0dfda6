"""State of runs and of kernels' sessions."""
