"""The gateway and the scheduler under load, without Ray."""
