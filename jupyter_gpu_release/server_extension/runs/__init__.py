"""Everything that is known of one run: from the gateway, and from its folder on the store."""
