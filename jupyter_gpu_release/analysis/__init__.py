"""Reads the code of cells: names, data flow, cache keys."""
