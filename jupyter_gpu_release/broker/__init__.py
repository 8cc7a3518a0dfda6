"""Gateway and broker: one detached Ray actor on the cluster head. Queue, leases, ledger, tokens, API."""
