"""The process that owns stores on a node and outlives Spark's tasks."""
