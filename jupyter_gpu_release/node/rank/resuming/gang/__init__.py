"""Gangs that step aside: their common save, their process group."""
