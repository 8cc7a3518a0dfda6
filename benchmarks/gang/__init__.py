"""Gangs: started by us and as people start them without us."""
