"""Cells that step aside or are killed, and go on."""
