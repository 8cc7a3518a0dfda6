"""Cells that are preempted and resumed: their statements, their loops, what is saved of them."""
