"""Cells that step aside and go on: their statements, their loops, what is saved of them."""
