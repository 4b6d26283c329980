"""Notations of durations, sizes, Slurm and Kubernetes, each read and written in one place.

Durations, sizes and quantities are as people write them, as systems print them, and for people.
Text is read one by one, or as columns of a table (:func:`clock`, :func:`quantity`).

What Slurm writes: node lists, trackable resources (TRES), times, memory, JSON, submit lines. Node
lists as in https://slurm.schedmd.com/scontrol.html (``show hostnames``), the rest as in
https://slurm.schedmd.com/sacct.html; memory of old versions (before 21.08) ends in ``n``, per
node, or ``c``, per core: https://manpages.ubuntu.com/manpages/focal/man1/sacct.1.html.
From 23.02 on, JSON has numbers as ``{"set": …, "infinite": …, "number": …}``, and lists of words.

What Kubernetes writes: times, and what a pod asks for.
"""

import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl


class NotationError(ValueError):
    """Text that is not in the notation in which it is read."""


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


WORDS = tomllib.loads(Path(__file__).with_name("slurm.toml").read_text(encoding="utf-8"))
"""What words of Slurm mean here."""
MAX_NODES = 1 << 16
GIB_IN = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
"""GiB in a unit; without one, memory is in MiB."""
PER_CORE = 2.0**31 / 1024
"""GiB: old versions add 2^31 MiB to an amount that is per core, and may print the sum."""
NO_AMOUNTS: Any = {}  # of a list that is not given
FOREVER = ("INFINITE", "UNLIMITED", "NONE", "-1")


def expand_nodes(text: str) -> list[str]:
    """Names in a node list; none for ``None assigned`` and the like.

    NotationError: When brackets or ranges make no sense, or there are more than 65,536 names.

    >>> expand_nodes("gpu[08-10,12],login")
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login']
    >>> expand_nodes("r[1-2]n[1,3]")
    ['r1n1', 'r1n3', 'r2n1', 'r2n3']
    """
    if text.strip() in ("", "None", "None assigned", "(null)", "N/A"):
        return []
    names: list[str] = []
    # Parts at commas outside brackets; a bracket that is left over is a part of its own.
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+|[,\[\]]", text.strip()):
        if part in "[]":
            raise NotationError(f"brackets do not match in {text!r}")
        if part != ",":
            names += _expand(part)
            if len(names) > MAX_NODES:
                raise NotationError(f"more than {MAX_NODES} nodes in {text!r:.60}")
    return names


def fold_nodes(names: Iterable[str]) -> str:
    """A node list of names, as :func:`expand_nodes` reads it.

    >>> fold_nodes(["n8", "n9", "n10", "n12", "login"])
    'login,n[8-9],n[10,12]'
    """
    by_form, parts = defaultdict(list), []
    for name in names:
        prefix = name.rstrip("0123456789")
        # By their length, too: n8 and n08 are two nodes, and a range keeps its width.
        by_form[prefix, len(name)].append(name[len(prefix) :])
    for (prefix, _), numbers in sorted(by_form.items()):
        # Numbers in a row differ from their places by the same amount.
        runs = groupby(enumerate(sorted(numbers)), lambda item: int(item[1] or 0) - item[0])
        # As text, so that zeros in front stay.
        ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
        text = ",".join(low + f"-{high}" * (high > low) for low, high in ends)
        parts.append(prefix + (f"[{text}]" if len(numbers) > 1 else text))
    return ",".join(parts)


def _expand(part: str) -> list[str]:
    names = [""]
    # Alternating text and brackets: every combination is a name.
    for literal, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
        endings = [literal] if literal else _ranges(inside)
        # Before the names are made: two long ranges in a row would fill the memory.
        if len(names) * len(endings) > MAX_NODES:
            raise NotationError(f"more than {MAX_NODES} nodes in {part!r:.60}")
        names = [name + ending for name in names for ending in endings]
    return names


def _ranges(inside: str) -> list[str]:
    """``08-10,12`` to ``08 09 10 12``: numbers are as wide as the first of their range."""
    numbers: list[str] = []
    for piece in inside.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece.strip())
        if match is None:
            raise NotationError(f"[{inside}] is no list of numbers and ranges")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low >= MAX_NODES:
            raise NotationError(f"the range {piece.strip()} is backwards or too long")
        numbers += [f"{n:0{len(match[1])}d}" for n in range(low, high + 1)]
    return numbers


def gib(text: str) -> float:
    """GiB of an amount of memory such as ``16G``, ``515538M`` or ``4000``, which is MiB.

    NotationError: When it is no amount.

    >>> gib("16G"), gib("512M"), gib("2048"), gib("1.5T")
    (16.0, 0.5, 2.0, 1536.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text.strip())
    if match is None:
        raise NotationError(f"{text!r} is no amount of memory")
    return float(match[1]) * GIB_IN[match[2]]


def read_tres(text: str) -> dict[str, str]:
    """Names and amounts of a TRES list, as they are written.

    NotationError: When a piece is not ``name=amount``, or a name is there twice.

    >>> read_tres("cpu=4,gres/gpu:a100=2,mem=16G")
    {'cpu': '4', 'gres/gpu:a100': '2', 'mem': '16G'}
    """
    amounts: dict[str, str] = {}
    for piece in filter(None, text.strip().split(",")):
        name, equals, amount = piece.partition("=")
        if not (name and equals and amount) or name in amounts:
            raise NotationError(f"{piece!r} is no TRES such as cpu=4")
        amounts[name] = amount
    return amounts


def read_count(text: str) -> float:
    """A number of something, such as ``12`` or ``2K``.

    NotationError: When it is none.

    >>> read_count("2k")
    2048.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text.upper())
    if match is None:
        raise NotationError(f"{text!r} is no count")
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")


def gres_words(text: str) -> Iterator[tuple[str, str, int]]:
    """Device type, kind and number of each word of a list of devices.

    >>> list(gres_words("gpu:a100:4(S:0-1),gres:gpu:2,gres/gpu=2"))
    [('gpu', 'a100', 4), ('gpu', '', 2), ('gpu', '', 2)]
    """
    # Sockets and device numbers, in round brackets, are no part of the request.
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        device, *details = re.split(r"[:=]", re.sub(r"^gres[:/]", "", word.strip()))
        if not device or device in ("N/A", "null", "cpu", "mem", "node", "billing"):
            continue
        if "/" not in device:  # others, such as licences, are no devices
            kind = details[0] if details and not details[0].isdigit() else ""
            yield device, kind, int(details[-1]) if details and details[-1].isdigit() else 1


def gpus(gres: str) -> dict[str, int]:
    """GPUs by model in a list of generic resources; the model is empty where none is named.

    >>> gpus("gpu:a100:4(S:0-1),lscratch:3200"), gpus("gpu:2"), gpus("(null)")
    ({'a100': 4}, {'': 2}, {})
    """
    total = Counter[str]()
    for device, model, amount in gres_words(gres):
        if device == "gpu" and amount:
            total[model] += amount
    return dict(total)


def time_limit(text: str) -> float:
    """Seconds of a time: minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``; or inf.

    NotationError: When it is none.

    >>> [time_limit(text) for text in ("90", "1:30", "2:00:00", "1-12", "UNLIMITED", "30 sec")]
    [5400.0, 90.0, 7200.0, 129600.0, inf, 30.0]
    """
    if text.upper() in FOREVER:
        return math.inf
    if match := re.fullmatch(r"(\d+) sec", text):
        return float(match[1])
    seconds = clock_seconds(text, alone=MINUTE)
    if seconds is None:
        raise NotationError(f"{text!r} is not a time")
    return seconds


def node_count(text: str) -> int:
    """A count of nodes; 0 where there may be any number."""
    return 0 if text.upper() in FOREVER else int(text)


def amounts(text: str) -> dict[str, float]:
    """Devices of a TRES list, memory in GiB.

    >>> amounts("cpu=8,gres/gpu=2,mem=512G,node=4")
    {'cpu': 8.0, 'gpu': 2.0, 'mem': 512.0, 'nodes': 4.0}
    """
    names = {"node": "nodes"}
    listed = {_device(name): amount for name, amount in read_tres(text).items()}
    return {names.get(n, n): gib(x) if n == "mem" else float(x) for n, x in listed.items()}


def _device(name: str) -> str:
    return name.lower().removeprefix("gres/")


def weights(text: str) -> dict[str, float]:
    """Weights of a unit of each device, as in TRESBillingWeights: those of memory of a GiB.

    >>> weights("CPU=1,Mem=0.5G,GRES/gpu=16")
    {'cpu': 1.0, 'mem': 0.5, 'gpu': 16.0}
    """
    weight_of = {}
    for name, amount in read_tres(text).items():
        # A weight per unit: of memory in the unit given, here per GiB.
        number, unit = amount.rstrip("KMGTP"), amount.lstrip("0123456789.")
        unit_in_gib = gib(f"1{unit}") if name.lower() == "mem" else 1.0
        weight_of[_device(name)] = float(number) / unit_in_gib
    return weight_of


def shares(text: str) -> dict[str, float]:
    """Weights of a share of each device, as in PriorityWeightTRES: they have no units.

    >>> shares("CPU=1000,Mem=2000,GRES/gpu=3000")
    {'cpu': 1000.0, 'mem': 2000.0, 'gpu': 3000.0}
    """
    return {_device(name): float(weight) for name, weight in read_tres(text).items()}


def licences(text: str) -> dict[str, float]:
    """Number of each licence in a list such as ``ansys:4,matlab=2``.

    >>> licences("ansys:4,matlab")
    {'license/ansys': 4.0, 'license/matlab': 1.0}
    """
    parts = (re.split("[:=]", part) for part in text.split(",") if part)
    return {f"license/{name}": float(number[0]) if number else 1.0 for name, *number in parts}


def json_value(value: Any) -> Any:
    """A value in either dialect of JSON; None where it is not set, inf where there is no limit.

    >>> json_value(5), json_value({"set": True, "infinite": False, "number": 5})
    (5, 5)
    """
    if not isinstance(value, Mapping):
        return value
    # First, as ``set`` is false of a value without a limit.
    if value.get("infinite"):
        return math.inf
    return value.get("number") if value.get("set", True) else None


def json_words(value: Any) -> list[str]:
    """A word, several with commas or plus signs, or (from 23.02 on) a list."""
    if isinstance(value, str):
        return [word for word in re.split("[,+]", value) if word]
    return [str(word) for word in value or () if word]


def json_settings(kind: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings of an entry that Slurm prints as JSON, as the text that it prints without.

    >>> limits = {"limits": {"max": {"tres": {"total": [{"type": "cpu", "name": "", "count": 8}]}}}}
    >>> wait = {"priority": {"set": True, "infinite": False, "number": 5}}
    >>> list(json_settings("qos", {"name": "fast", "flags": ["NOT_SET"], **limits, **wait}))
    [('Name', 'fast'), ('Priority', '5'), ('Flags', ''), ('GrpTRES', 'cpu=8')]
    """
    for path, setting in (pair.split(":") for pair in WORDS["json"]["settings"][kind].split()):
        value: Any = entry
        for part in path.split("/"):
            names = part, part.replace("_", " ")  # 22.05 has "min nodes per job"
            parent = value if isinstance(value, Mapping) else {}
            value = next((parent[name] for name in names if name in parent), None)
        if isinstance(value, Mapping) and "number" in value:
            value = json_value(value)
            value = "UNLIMITED" if value == math.inf else value
        if value is None or isinstance(value, Mapping):
            continue
        words = WORDS["json"]["words"].get(setting, {})
        if isinstance(value, list):
            texts = [_json_item(item) for item in value]
            value = ("+" if setting == "State" else ",").join(
                filter(None, (words.get(text.upper(), text) for text in texts))
            )
        text = str(value)
        # JSON has seconds since 1970 where the text has a date.
        if setting in ("StartTime", "EndTime") and text.isdecimal():
            text = datetime.fromtimestamp(int(text), UTC).isoformat()
        elif setting == "PreemptExemptTime" and text:
            text += " sec" * text.isdecimal()
        yield setting, words.get(text, text)


def _json_item(item: Any) -> str:
    """One of a list: a word, or so much of a device."""
    if not isinstance(item, Mapping):
        return str(item)
    name = "/".join(filter(None, (str(item.get("type", "")), str(item.get("name") or ""))))
    return f"{name}={item.get('count', 0)}" + "M" * (name == "mem")


def timestamp(text: Any) -> float | None:
    """Seconds since 1970 of a time as the API writes it; None where there is none.

    NotationError: When it is no time.

    >>> timestamp("1970-01-01T00:01:00Z"), timestamp(None)
    (60.0, None)
    """
    if not text:
        return None
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        raise NotationError(f"{text!r:.40} is no time") from None


def controller(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the owner that controls an object."""
    owners = record["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def required(pod: Mapping[str, Any], kind: str) -> Any:
    """The rules of an affinity of a pod without which it does not start; None for none."""
    rules = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return rules.get("requiredDuringSchedulingIgnoredDuringExecution")


def pod_total(
    spec: Mapping[str, Any], amounts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Counter[str]:
    """Request of a pod by resource, in the numbers that ``amounts`` makes of quantities.

    Init containers run one by one before the others, but one that restarts always (a sidecar) goes
    on beside all that come later. So a pod asks for its containers and sidecars together, or for an
    init container with the sidecars before it where that is more, and for its overhead on top.

    >>> def cpus(number, **more):
    ...     return {"resources": {"requests": {"cpu": number}}, **more}
    >>> spec = {
    ...     "initContainers": [cpus(2, restartPolicy="Always"), cpus(6)],
    ...     "containers": [cpus(1)],
    ... }
    >>> pod_total(spec, dict)["cpu"]
    8
    """
    total, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()

    def asked(container: Mapping[str, Any]) -> Mapping[str, Any]:
        """The API server copies limits to requests where these are not given; so do we."""
        resources = container.get("resources") or {}
        return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})

    for container in spec.get("containers") or ():
        total.update(asked(container))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.update(asked(container))
            # ``|`` of Counters is the larger amount of each resource.
            peak |= sidecars
        else:
            # While this one runs, the sidecars before it run as well.
            peak |= sidecars + Counter(asked(container))
    total.update(sidecars)
    total |= peak
    # A pod may ask as a whole; its limit is its request where its containers have none.
    of_pod = spec.get("resources") or {}
    for name, size in amounts(of_pod.get("limits") or {}).items():
        total.setdefault(name, size)
    for name, size in amounts(of_pod.get("requests") or {}).items():
        total[name] = size
    total.update(amounts(spec.get("overhead") or {}))
    return total
