"""Commands that help with writing cells: advice on a notebook, completion in a shell."""
