"""One module per public trace format, and the way from their tables to problems."""

from gangwise.traces.registered import open_reader, open_tables, open_trace

__all__ = ["open_reader", "open_tables", "open_trace"]
