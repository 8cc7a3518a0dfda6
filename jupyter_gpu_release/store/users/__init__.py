"""Stores of several Unix users, and the rule for files that may be loaded."""
