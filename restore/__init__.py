"""Bringing state back: what to replay, the replay itself, and who may go on when."""
