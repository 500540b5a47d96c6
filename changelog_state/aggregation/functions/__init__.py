"""What can be aggregated: one file per kind, with its part in Spark and its part on whole Arrow columns."""
