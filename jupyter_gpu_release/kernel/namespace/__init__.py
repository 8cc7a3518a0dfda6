"""The notebook's names: what goes out, what comes back."""
