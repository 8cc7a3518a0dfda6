"""An assistant's way to the cluster: tools that it calls by the Model Context Protocol (``jupyter gpu mcp``)."""
