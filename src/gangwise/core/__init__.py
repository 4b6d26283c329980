"""Contracts and the slot loop; imports nothing of the problem families."""
