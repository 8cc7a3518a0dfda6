"""Tokens, permissions, audit log."""
