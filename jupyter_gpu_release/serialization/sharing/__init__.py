"""Objects that are the same on both sides, and arrays that share memory."""
