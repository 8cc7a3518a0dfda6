"""Queues: the tree of shares, what each is due, and the file that they are written in."""
