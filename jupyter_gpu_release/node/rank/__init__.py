"""The process that runs a cell."""
