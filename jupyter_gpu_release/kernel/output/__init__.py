"""Live output and receipts in the notebook."""
