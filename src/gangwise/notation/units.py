"""Durations, sizes and quantities: as people write them, as systems print them, and for people.

Text is read one by one, or as columns of a table (:func:`clock`, :func:`quantity`).
"""

import math
import re
from fractions import Fraction

import polars as pl

from gangwise.notation import NotationError

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365 * 86_400.0
SECONDS_IN = {"s": 1.0, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY}
SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{prefix: Fraction(1000**n) for n, prefix in enumerate("kMGTPE", 1)},
    **{f"{prefix}i": Fraction(1024**n) for n, prefix in enumerate("KMGTPE", 1)},
}
"""Suffixes of quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
GIB = 2.0**30
UNITS: dict[str, float] = {
    "bytes": 1 / GIB,
    **{f"{prefix}B": 1000**n / GIB for n, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**n / GIB for n, prefix in enumerate("KMGT", 1)},
    "milli": 1e-3,
    "percent": 1e-2,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "minutes": MINUTE,
    "hours": HOUR,
    "days": DAY,
}
"""Size of each unit in GiB, seconds, or ones."""
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
# Exponents have three digits at most: the exact number of 1e999999999 would fill the memory.
QUANTITY = rf"{NUMBER}(?:[eE][+-]?\d{{1,3}}|[KMGTPE]i|[numkMGTPE])?"
CLOCK = r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)"


def read_duration(text: str | float) -> float:
    """Seconds of a duration such as ``90s``, ``15m``, ``1.5h`` or ``2d6h``, or of a number.

    NotationError: When it is none.

    >>> read_duration("1.5h"), read_duration("2d6h"), read_duration(60)
    (5400.0, 194400.0, 60.0)
    """
    stripped = str(text).strip()
    # ``min`` stands before ``m``, as the first that fits is taken.
    parts = re.findall(r"([\d.]+)\s*(min|[smhd])", stripped)
    try:
        if parts and re.fullmatch(r"(?:[\d.]+\s*(?:min|[smhd]))+", stripped):
            return sum(float(number) * SECONDS_IN[unit] for number, unit in parts)
        return float(stripped)
    except ValueError:
        raise NotationError(f"{text!r} is no duration such as 90s, 15m, 1h or 2d6h") from None


def seconds(length: str | float) -> float:
    """Seconds of a duration, see :func:`read_duration`, of at least one; ValueError for others.

    >>> seconds("1.5h"), seconds(60)
    (5400.0, 60.0)
    """
    number = read_duration(length)
    if not 1 <= number <= 1e9:
        raise ValueError(f"{length!r} is not a duration of at least a second")
    return number


def clock_seconds(text: str, alone: float = 1.0) -> float | None:
    """Seconds of ``[D-]H:M:S``, ``M:S``, ``D-H`` or ``D-H:M``; None for other text.

    A number by itself counts units of ``alone`` seconds.

    >>> [clock_seconds(text) for text in ("02:00:00", "90", "1:30", "1-12", "1-00:00:01", "")]
    [7200.0, 90.0, 90.0, 129600.0, 86401.0, None]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+(?:\.\d+)?(?::\d+(?:\.\d+)?){0,2})", text.strip())
    if match is None:
        return None
    # Without days the last part is seconds; behind days the first part is hours.
    parts = [float(part) for part in match[2].split(":")]
    if match[1]:
        sizes: tuple[float, ...] = (HOUR, MINUTE, 1.0)
    else:
        sizes = (HOUR, MINUTE, 1.0)[3 - len(parts) :] if len(parts) > 1 else (alone,)
    return DAY * int(match[1] or 0) + sum(part * size for part, size in zip(parts, sizes))


def clock(text: pl.Expr) -> pl.Expr:
    """Seconds of ``[[D-]H:]MM:SS``; null for other text.

    >>> frame = pl.DataFrame({"t": ["1-02:03:04", "02:03:04", "03:04", "90"]})
    >>> frame.select(clock(pl.col("t"))).to_series().to_list()
    [93784.0, 7384.0, 184.0, None]
    """
    parts = text.str.extract_groups(f"^(?:{CLOCK})$").struct
    days, hours, minutes, seconds = (parts.field(str(n)).cast(pl.Float64) for n in range(1, 5))
    return DAY * days.fill_null(0) + HOUR * hours.fill_null(0) + MINUTE * minutes + seconds


def exact_quantity(text: str | int | float) -> Fraction:
    """The number of a quantity, exactly; memory is in bytes.

    NotationError: When it is none.

    >>> exact_quantity("500m"), exact_quantity("16Gi") == 2**34, exact_quantity("1e3")
    (Fraction(1, 2), True, Fraction(1000, 1))
    """
    digits = str(text)
    # Python's \d takes the digits of all scripts.
    if not digits.isascii() or re.fullmatch(QUANTITY, digits) is None:
        raise NotationError(f"{text!r:.40} is no quantity")
    suffix = re.search(r"(?:[KMGTPE]i|[numkMGTPE])$", digits)
    if suffix is None:
        return Fraction(digits)
    return Fraction(digits.removesuffix(suffix[0])) * SUFFIXES[suffix[0]]


def quantity(text: pl.Expr) -> pl.Expr:
    """The numbers of quantities, memory in bytes; null for other text.

    >>> frame = pl.DataFrame({"q": ["500m", "16Gi", "2", "1e3", "1.5G", "many", "12E"]})
    >>> frame.select(quantity(pl.col("q")))["q"].to_list()
    [0.5, 17179869184.0, 2.0, 1000.0, 1500000000.0, None, 1.2e+19]
    """
    # Mantissa and suffix are separated only where the whole is a quantity.
    fits = text.str.contains(f"^(?:{QUANTITY})$")
    number = text.str.extract(rf"^({NUMBER}(?:[eE][+-]?\d+)?)", 1).cast(pl.Float64, strict=False)
    suffix = text.str.extract(r"([KMGTPE]i|[numkMGTPE])$", 1).fill_null("")
    sizes = {name: float(size) for name, size in SUFFIXES.items()}
    return pl.when(fits).then(number * suffix.replace_strict(sizes, return_dtype=pl.Float64))


def duration(seconds: float) -> str:
    """A duration in the largest unit of which there is one, to a tenth.

    >>> [duration(seconds) for seconds in (12902960.0, 86400.0, 90.0, 1.25)]
    ['149.3 days', '1 day', '1.5 min', '1.25 s']
    """
    for size, unit in ((DAY, "days"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            amount = f"{round(seconds / size, 1):g}"
            return f"{amount} {'day' if amount == '1' and unit == 'days' else unit}"
    return f"{seconds:g} s"


def roughly(seconds: float | None) -> str:
    """A duration with two digits, in a unit of which there are several.

    >>> [roughly(seconds) for seconds in (11_160, 42, 0, 1.2e6, -90.0, math.nan)]
    ['3.1 h', '42 s', '0 s', '14 days', '−1.5 min', '?']
    """
    if seconds is None or not math.isfinite(seconds):
        return "?"
    size, unit = 1.0, "s"
    for larger, name, several in ((DAY, "days", 2.0), (HOUR, "h", 1.5), (MINUTE, "min", 1.5)):
        if abs(seconds) >= larger * several:
            size, unit = larger, name
            break
    amount = seconds / size
    # Above 9.95 a number is rounded to two digits before the point.
    decimals = int(0 < abs(amount) < 9.95)
    text = f"{round(amount, decimals) + 0.0:,.{decimals}f}"  # + 0.0 turns -0.0 into 0.0
    return f"{text.replace('-', '−')} {unit}"
