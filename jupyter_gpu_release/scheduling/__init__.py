"""The choice of who gets which GPUs: a pure function from a snapshot to decisions (no Ray, no clock, no I/O)."""
