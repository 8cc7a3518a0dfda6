"""The notebook side: magics, what travels, live output, receipt."""
