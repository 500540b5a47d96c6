"""Avro for whole columns: many values of one record schema at once, without a step per value in Python."""
