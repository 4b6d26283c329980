"""Fluctuating speeds: channels whose worth is learned while they are used (ESDP).

A job that arrives is spread over channels to servers; every channel brings a utility that
fluctuates around an unknown mean and costs supply. Devices are shared by the whole cluster.
"""

from gangwise.moved import former_face

__getattr__ = former_face(__name__, "environment", "policies", "problem", "..core.workload")
