"""Alibaba cluster-trace-v2018."""

from gangwise.traces.alibaba_v2018.reader import AlibabaV2018, Usage

__all__ = ["AlibabaV2018", "Usage"]
