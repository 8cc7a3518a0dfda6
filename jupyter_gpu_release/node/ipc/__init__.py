"""Frames and sockets between the processes of a node."""
