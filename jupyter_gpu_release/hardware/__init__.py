"""This machine's hardware, as node agents and the Jupyter server both see it."""
