"""For the host of a JupyterHub: a service of it that gives each user's server a token for the gateway."""
