"""The version of the package, and the address of its documentation."""

__version__ = "0.1.0"
DOCUMENTATION = "https://docs.jupyter-gpu-release.org"
