"""Runs, one store for them, and what they say: comparisons, sweeps, tunings."""
