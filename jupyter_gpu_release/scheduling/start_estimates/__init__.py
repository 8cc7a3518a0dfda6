"""The course that a cluster is expected to take: when a waiting run starts, after whom, and what would start sooner."""
