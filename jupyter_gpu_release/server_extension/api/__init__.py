"""HTTP API of the extension."""
