"""Commands of admins: tokens, nodes."""
