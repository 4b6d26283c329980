"""Notations of durations, sizes, Slurm and Kubernetes, each read and written in one place."""


class NotationError(ValueError):
    """Text that is not in the notation in which it is read."""
