"""Captures what a cell or function needs, and makes one request of it."""
