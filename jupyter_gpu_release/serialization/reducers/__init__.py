"""Reducers of library types."""
