"""The shared filesystem: layout, run folders, event logs, blobs, graph files."""
