"""What leaves this process for the cluster: names and the modules they need, as one graph in one request."""
