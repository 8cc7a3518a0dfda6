"""Garbage collection of the store."""
