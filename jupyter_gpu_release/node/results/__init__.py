"""Results on their way to the store."""
