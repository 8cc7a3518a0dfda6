"""Values of a cell: in, changed, out."""
