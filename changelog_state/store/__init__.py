"""The local side of a partition: an ordered key-value store and what is kept in it."""
