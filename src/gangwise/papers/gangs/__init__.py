"""Gangs: jobs of several tasks that start together or not at all (OGASched §3.5, ESDP §3.4)."""

from gangwise.moved import former_face

__getattr__ = former_face(__name__, "placement", "policies", "problem")
