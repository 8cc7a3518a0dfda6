"""Pure scheduling policy: frozen snapshot in, decisions out; no Ray, no clock, no I/O."""
