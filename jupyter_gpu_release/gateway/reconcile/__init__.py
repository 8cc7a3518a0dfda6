"""Recovery and repair: what the gateway believes against what is so."""
