"""What the extension sees of GPUs, processes and kernels."""
