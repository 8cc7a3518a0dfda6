"""Facts of the cluster for what somebody is typing: never waited for long."""
