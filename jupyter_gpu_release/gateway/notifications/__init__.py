"""Users are told of their detached runs, by mail and webhooks."""
