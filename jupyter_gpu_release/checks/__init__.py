"""Checks of ``doctor``: this process's files and ways, the gateway, each node; a finding each, with its cure."""
