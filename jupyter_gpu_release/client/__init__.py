"""The gateway client that kernel, server extension and command line share."""
