"""What code in a cell may ask: ranks, tracked files, where it runs."""
