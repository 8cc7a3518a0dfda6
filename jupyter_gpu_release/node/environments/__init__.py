"""Environments on this node: built once, read by all, removed when nobody has used them for long."""
