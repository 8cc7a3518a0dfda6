"""Values of a namespace as one graph, and back."""
