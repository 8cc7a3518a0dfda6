"""The gateway: one detached Ray actor on the cluster head."""
