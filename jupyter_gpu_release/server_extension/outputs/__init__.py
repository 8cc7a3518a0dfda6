"""Outputs of runs as notebook documents hold them, for cells whose kernel does not send them any more."""
