"""Files of the store mapped into memory."""
