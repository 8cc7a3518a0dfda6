"""The command line: ``jupyter gpu …``."""
