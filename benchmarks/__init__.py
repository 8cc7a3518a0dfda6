"""Benchmarks: ``python -m benchmarks NAME --json`` (or ``all``); ratios side by side in one run, never a time limit."""
