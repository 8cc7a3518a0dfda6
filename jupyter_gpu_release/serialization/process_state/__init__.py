"""State of a process outside its variables."""
