"""The protocol of identity between a notebook and a run: which of its objects a run has changed."""
