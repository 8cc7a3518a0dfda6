"""Everything that a person may change, in one table: default, unit, bounds and a sentence."""
