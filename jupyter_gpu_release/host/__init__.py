"""This machine: GPUs, processes, environment."""
