"""Results: who holds them, when they go, where they come from."""
