"""Runs of a notebook, from submission to receipt."""
