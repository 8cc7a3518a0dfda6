"""The extension's view of GPUs, processes and kernels."""
