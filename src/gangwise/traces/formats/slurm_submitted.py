"""What jobs of Slurm wait for, beyond devices: others, licences, their array, features of nodes.

``SubmitLine`` of sacct is the line that was typed (21.08 and later): options in a script, after
``#SBATCH``, are not in it. ``Eligible`` is when a job might have started, as far as dependencies,
begin times, holds and ``%N`` of arrays go. https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections import defaultdict

import polars as pl

WANTED = {"d": "dependency", "a": "array", "L": "licenses", "b": "begin", "H": "hold"}
WANTED |= {"C": "constraint"}
ALONE = re.compile(
    "-[hHkOsQvVWIuXZEl]|--(hold|no-|parsable|requeue|exclusive|overcommit|oversubscribe|quiet|wait$"
    "|verbose|contiguous|spread-job|reboot|nice|propagate|x11|get-user-env|immediate|pty|label)"
)
"""Options without a value, or with one only behind =."""
SEEN = 2.0
"""Seconds within which Slurm looks at a job that came: no sooner is it eligible."""


def submitted(line: str) -> dict[str, str]:
    """Options on a line of sbatch, srun or salloc, by their long names, up to the script.

    >>> submitted("sbatch -N 2 --array=1-9%3 -d afterok:7 --hold run.sh -a 5")
    {'N': '2', 'array': '1-9%3', 'dependency': 'afterok:7', 'hold': ''}
    """
    found: dict[str, str] = {}
    words = iter(line.split()[1:])
    for word in words:
        if not re.match("--?[a-zA-Z]", word) or word == "--wrap":
            break
        long = word.startswith("--")
        name, equals, value = word[2:].partition("=") if long else (word[1], "", word[2:])
        if not (equals or value or ALONE.match(word)):
            value = next(words, "")
        found[name if long else WANTED.get(name, name)] = value
    return found


def awaited(asked: str, name: str, tasks: dict[str, list[str]]) -> list[str] | None:
    """Jobs that must have ended before, of a dependency; None where that is not all it says.

    ``tasks`` are the jobs of each number. Whether a job must have succeeded is not asked: who ran
    after it shows that it had.

    >>> awaited("afterok:7,afterany:8_2", "9", {"7": ["7_1", "7_2"], "8_2": ["8_2"]})
    ['7_1', '7_2', '8_2']
    >>> awaited("afterok:7?afterany:8", "9", {}) is awaited("after:7+10", "9", {}) is None
    True
    """
    found: list[str] = []
    for part in asked.split(","):
        kind, *jobs = part.split(":")
        for job in jobs:
            at = f"{job}_{name.partition('_')[2]}" if kind == "aftercorr" else job
            if at not in tasks:  # the log does not say when it ended
                return None
            found += tasks[at]
        if "?" in part or not re.fullmatch("after(ok|any|notok|corr)|singleton", kind):
            return None
    return found


def terms(asked: dict[str, str], name: str, features: str, request: str) -> str:
    """Terms of a job, as :class:`gangwise.jobs.model.Job` has them."""
    found = dict(re.findall(r"(license/[^=,]+)=(\d+)", request))
    for licence, number in re.findall(r"([^,;|:=]+)(?:[:=](\d+))?", asked.get("licenses", "")):
        found.setdefault(f"license/{licence}", number or "1")
    if most := re.search(r"%(\d+)$", asked.get("array", "")):
        found["array"] = f"{name.partition('_')[0]}%{most[1]}"
    if wanted := features or asked.get("constraint", ""):
        found["features"] = wanted.strip("()").replace(",", "&")
    return ",".join(map("=".join, found.items()))


def with_terms(raw: pl.DataFrame) -> pl.DataFrame:
    """Jobs with ``preceding``, those that each waits for, and ``terms``.

    Where what a job waited for is not played, it is submitted when it became eligible: ``late``.
    """
    columns = [pl.col(name).fill_null("") for name in ("name", "line", "features", "req", "alloc")]
    columns += [pl.concat_str("user", pl.lit("/"), "application", ignore_nulls=True)]
    rows, before, held = raw.select(columns).rows(), [""] * len(raw), [False] * len(raw)
    tasks, alike = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name, *_ in rows:
        for key in dict.fromkeys((name, name.partition("_")[0])):
            tasks[key].append(name)
    own, played = [""] * len(raw), [False] * len(raw)
    for i in raw["submit"].arg_sort().to_list():
        name, line, features, req, alloc, title = rows[i]
        asked = submitted(line) if line else {}
        own[i] = terms(asked, name, features, req or alloc)
        held[i], played[i] = "hold" in asked, "array=" in own[i]
        if dependency := asked.get("dependency", ""):
            others = awaited(dependency, name, tasks)
            if others is not None and "singleton" in dependency:
                others += alike.pop(title, [])  # later ones come after this one
            played[i] |= others is not None and not {"begin", "hold"} & {*asked}
            before[i] = "|".join(others or ())
        alike[title].append(name)
    later = (pl.col("eligible") > pl.col("submit") + SEEN) & ~pl.Series(played, dtype=pl.Boolean)
    later &= (pl.col("eligible") <= pl.col("start")) | pl.col("start").is_null()
    came, late = raw["submit"], raw.select(late=later.fill_null(False))["late"]
    submit = pl.when(late).then("eligible").otherwise("submit")
    raw = raw.with_columns(submit=submit, preceding=pl.Series(before), terms=pl.Series(own))
    first: float = raw["submit"].min()  # type: ignore[assignment]  # a number: rows have times
    for i in late.arg_true().to_list():
        if not held[i]:  # one that was held goes to the end of the line
            own[i] += "," * bool(own[i]) + f"queued={came[i] - first:g}"
    raw = raw.with_columns(late=late, terms=pl.Series(own)).drop("eligible", "line", "features")
    blank = [name for name in ("preceding", "terms") if not (raw[name] != "").any()]
    return raw.drop(*blank, *["late"] * (not late.any()))
