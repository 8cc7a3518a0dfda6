"""Parts of what is spread over the ranks of a gang."""
