"""Commands of who runs the cluster: tokens, nodes, old results, doctor."""
