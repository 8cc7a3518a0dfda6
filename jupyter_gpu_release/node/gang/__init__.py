"""Ranks of one run: layout, rendezvous, ports."""
