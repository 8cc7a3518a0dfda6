"""The supervisor of a rank."""
