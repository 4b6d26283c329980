"""Comparisons of policies over seeds."""
