"""Traces of clusters: read from files, and made into jobs or into workloads of slots."""

from gangwise.traces.registered import open_reader, open_tables

__all__ = ["open_reader", "open_tables"]
