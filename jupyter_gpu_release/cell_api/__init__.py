"""Facts that code in a cell may ask for: ranks, tracked files, where it runs."""
