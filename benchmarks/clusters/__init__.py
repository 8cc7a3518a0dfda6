"""Nodes that a cluster borrows: what they cost in hours and waits (simulated), and in seconds (a real Slurm)."""
