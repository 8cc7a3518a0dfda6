"""From the queue to granted GPUs, and back."""
