"""The Jupyter server extension: what the sidebar asks, which kernel holds which GPU, and the idle policy."""
