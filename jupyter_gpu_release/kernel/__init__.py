"""The notebook side of the product."""
