"""Quantities as people write them: ``16Gi``, ``500m``, ``1-02:03:04``, and units with names."""

from __future__ import annotations

import polars as pl

SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
"""Of Kubernetes' quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
UNITS = {
    "bytes": 2.0**-30,
    "KB": 1e3 / 2.0**30,
    "MB": 1e6 / 2.0**30,
    "GB": 1e9 / 2.0**30,
    "TB": 1e12 / 2.0**30,
    "KiB": 2.0**-20,
    "MiB": 2.0**-10,
    "GiB": 1.0,
    "TiB": 2.0**10,
    "milli": 1e-3,
    "percent": 1e-2,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
}
"""In GiB, seconds, and ones."""
QUANTITY = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+|[KMGTPE]i|[numkKMGTPE])?"
CLOCK = r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)"


def quantity(text: pl.Expr) -> pl.Expr:
    """The numbers of quantities; null of what is none. Memory is then in bytes.

    >>> frame = pl.DataFrame({"q": ["500m", "16Gi", "2", "1e3", "1.5G", "many", "12E"]})
    >>> frame.select(quantity(pl.col("q")))["q"].to_list()
    [0.5, 17179869184.0, 2.0, 1000.0, 1500000000.0, None, 1.2e+19]
    """
    fits = text.str.contains(f"^(?:{QUANTITY})$")
    number = text.str.extract(r"^([+-]?[\d.]+(?:[eE][+-]?\d+)?)", 1).cast(pl.Float64, strict=False)
    unit = text.str.extract(r"([KMGTPE]i|[numkKMGTPE])$", 1).fill_null("")
    factor = unit.replace_strict(SUFFIXES, default=1.0, return_dtype=pl.Float64)
    return pl.when(fits).then(number * factor)


def clock(text: pl.Expr) -> pl.Expr:
    """Seconds of ``[[D-]H:]MM:SS``; null of what is none.

    >>> frame = pl.DataFrame({"t": ["1-02:03:04", "02:03:04", "03:04", "90"]})
    >>> frame.select(clock(pl.col("t"))).to_series().to_list()
    [93784.0, 7384.0, 184.0, None]
    """
    parts = text.str.extract_groups(f"^(?:{CLOCK})$").struct
    days, hours, minutes, rest = (parts.field(str(n)).cast(pl.Float64) for n in range(1, 5))
    return 86400 * days.fill_null(0) + 3600 * hours.fill_null(0) + 60 * minutes + rest
