"""The gateway client that kernel, server and command line share."""
