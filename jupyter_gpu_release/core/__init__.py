"""Pure records: run states, wire messages, resource asks, syntax-tree analysis. No I/O, no clock."""
