"""Gain minus overhead: OGASched, its rivals and its comparators.

Jobs hold devices on many servers for one slot. More devices on a server add gain with diminishing
returns; the device type that dominates a job's communication costs overhead. Arrivals are unknown.
"""

from gangwise.moved import former_face

__getattr__ = former_face(__name__, "offline", "policies", "problem")
