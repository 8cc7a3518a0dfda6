"""The node's agent, a Ray actor."""
