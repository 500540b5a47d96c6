"""Spark's StatefulProcessor, run unchanged on this library's state instead of Spark's operator."""
