"""The Kafka side of a partition: its topic, the records in it, the one writer and the readers."""
