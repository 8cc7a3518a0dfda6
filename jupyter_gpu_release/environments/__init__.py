"""Packages of a notebook and of the cluster: what is installed, what differs, what goes along."""
