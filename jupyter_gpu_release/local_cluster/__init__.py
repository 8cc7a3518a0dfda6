"""Starts and ends a local cluster."""
