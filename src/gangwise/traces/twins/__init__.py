"""Synthetic twins of public traces, for users who have none of the files.

A twin has the :class:`~gangwise.traces.tables.Tables` that the reader of the trace gives, drawn of
a seed and from a few published or counted numbers: the mix of machines, how much jobs request, how
long they last, when they arrive. Each says what it reproduces and what it leaves out, and how far
it may be from the real files, which tests check where the files are present.
"""

from gangwise.traces.twins.drawing import NAMES, arguments, calibration, completed, open_twin, twin

__all__ = ["NAMES", "arguments", "calibration", "completed", "open_twin", "twin"]
