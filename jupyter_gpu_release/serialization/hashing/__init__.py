"""Digests of values and code that are the same in every process."""
