"""What user functions hold."""
