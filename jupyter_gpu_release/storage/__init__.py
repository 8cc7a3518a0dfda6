"""The shared filesystem: folder layout, atomic files, run folders, event logs, the value codec."""
