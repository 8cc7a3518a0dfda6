"""The server extension, with many kernels."""
