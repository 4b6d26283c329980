"""Slow, obvious implementations that the fast ones are checked against."""
