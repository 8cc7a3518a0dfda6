"""Records that cross a process boundary, and how they are encoded."""
