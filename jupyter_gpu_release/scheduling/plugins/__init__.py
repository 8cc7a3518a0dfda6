"""Plugins of the policy: orders, filters, scores and vetoes, each a small pure function."""
