"""Leases and nodes: what the gateway asks of Ray and of node agents."""
