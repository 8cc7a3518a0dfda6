"""Values on their way through the store."""
