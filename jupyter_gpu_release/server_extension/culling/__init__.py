"""The idle policy: samples, decisions, actions."""
