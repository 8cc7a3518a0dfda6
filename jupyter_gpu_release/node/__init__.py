"""One GPU node: agent (Ray actor), fork server, supervisor, rank."""
