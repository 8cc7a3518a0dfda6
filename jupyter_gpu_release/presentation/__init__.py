"""Output, verdicts and tracebacks as text."""
