"""The policy tried on written clusters: scenarios, and traces in virtual time (no Ray, no gateway)."""
