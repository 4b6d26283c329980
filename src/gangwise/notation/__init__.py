"""Notations of units, Slurm and Kubernetes: one reader and one writer of each."""
