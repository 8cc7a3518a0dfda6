"""HTTP and WebSocket API of the gateway."""
