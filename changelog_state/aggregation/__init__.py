"""Aggregates kept as state: Spark aggregates the rows of a batch, whole columns are merged into what is stored."""
