"""Changes of a document, such as a site file: ``pool.gpu.most_time=1d``, ``nodes.h100+=8``.

A path goes through tables by their keys, and through lists by the ``name`` of an entry or by its
place, from 1 on. What is given is a TOML value, a time such as ``1d6h`` where a number was, or a
text as it stands. Whatever the document holds can be changed: its model checks the result.

==============================  ====================================================
``cap.3.most=16``               another value
``nodes.h100+=8``, ``-=``       more or less
``load*=1.1``                   times as much
``cap+={scope="user", …}``      one more entry of a list
``cap-=3``                      without the third, or the one of that name
==============================  ====================================================
"""

import copy
import math
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches, unified_diff
from typing import Any, NamedTuple

from gangwise import notation
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import Clock, toml_key, toml_text, toml_value

MOST_NAMED = 20  # at most so many of the parts that exist are named in an error

# Quotes keep a path whole; +, − and * before the = belong to the sign.
_CHANGE = re.compile(r'\s*((?:"[^"]*"|[^"=+*])+?)\s*(\+=|-=|\*=|=)\s*(.+?)\s*', re.DOTALL)


def seconds_of(text: str, what: str = "--at") -> float:
    """A time on the log's clock.

    >>> seconds_of("90"), seconds_of("2d6h")
    (90.0, 194400.0)
    """
    try:
        return notation.read_duration(text)
    except notation.NotationError:
        raise ScenarioError(f"{what} {text}: give seconds, or a time such as 12d6h30m") from None


def instant_of(text: str, clock: Clock | None, what: str = "--at") -> float:
    """A time on the log's clock: seconds, a time such as 12d6h30m, or a date.

    >>> instant_of("1970-01-03 06:00", Clock(0.0))
    194400.0
    """
    try:
        # A date is tried last: what reads as a number is seconds.
        return seconds_of(text, what)
    except ScenarioError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise ScenarioError(
                f"{what} {text}: give seconds, a time such as 12d6h30m, or a date such as "
                "2026-01-31T12:00"
            ) from None
    if clock is None:
        raise ScenarioError(
            f"{what} {text}: the log does not say when its time 0 was; give seconds, or a time "
            "such as 12d6h30m"
        )
    return clock.at(date)


def instant_text(at: float, clock: Clock | None) -> str:
    """A time on the log's clock, for people.

    >>> instant_text(8715600.0, None), instant_text(194400.0, Clock(0.0))
    ('8,715,600 s (day 100.9)', '1970-01-03 06:00')
    """
    return (
        f"{clock.date(at):%Y-%m-%d %H:%M}"
        if clock
        else f"{at:,.0f} s (day {at / notation.DAY:.1f})"
    )


class SettingChange(NamedTuple):
    """One change: where, how (``=``, ``+=``, ``-=``, ``*=``) and what, as written."""

    path: str
    how: str
    given: str

    def __str__(self) -> str:
        return f"{self.path}{self.how}{self.given}"

    @property
    def parts(self) -> list[str]:
        """The parts of the path between dots; quotes keep one whole."""
        return [part.strip('"') for part in re.findall(r'"[^"]*"|[^.]+', self.path)]

    @property
    def words(self) -> str:
        """The change in words.

        >>> [one.words for one in changes_of("cap-=1,cap.1.most=4,nodes.all+=10,load*=1.1")]
        ['without cap 1', 'cap 1: most is 4', '10 more nodes', 'load times 1.1']
        """
        *path, key = self.parts
        how_many = {"=": "", "+=": "more ", "-=": "fewer "}.get(self.how)
        if path == ["nodes"] and how_many is not None:
            return f"{self.given} {how_many}nodes{'' if key == 'all' else f' of {key}'}"
        place = f"{' '.join(path)}: " if path else ""
        if self.how == "=":
            return f"{place}{key} is {self.given}"
        if self.how == "*=":
            return f"{place}{key} times {self.given}"
        if path:
            return f"{place}{self.given} {'more' if self.how == '+=' else 'fewer'} of {key}"
        return f"{'one more' if self.how == '+=' else 'without'} {key} {self.given}"


def changes_of(text: str) -> list[SettingChange]:
    """The changes of a text, separated by commas outside of quotes and brackets.

    >>> [str(one) for one in changes_of('cap.1.only=["a", "b"], load *= 1.1')]
    ['cap.1.only=["a", "b"]', 'load*=1.1']
    """
    # A comma separates changes only outside of quotes and brackets.
    pieces, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        # Brackets within quotes do not count.
        depth += 0 if quoted else (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0 and not quoted:
            pieces.append("")
        else:
            pieces[-1] += letter
    changes = []
    for piece in pieces:
        if (parts := _CHANGE.fullmatch(piece)) is None:
            raise ScenarioError(
                f"change {piece.strip()!r}: write PATH=VALUE, PATH+=VALUE, PATH-=VALUE or "
                "PATH*=VALUE, such as pool.gpu.most_time=1d"
            )
        change = SettingChange(*parts.groups())
        # TOML reads +8 as the number 8, where more was meant.
        if change.how == "=" and change.given.startswith("+"):
            raise ScenarioError(
                f"change {change}: write {change.path}+={change.given[1:]} for more, or "
                f"{change.path}={change.given[1:]} for the number itself"
            )
        changes.append(change)
    return changes


def changed(document: Mapping[str, Any], changes: list[SettingChange]) -> dict[str, Any]:
    """A document after changes.

    ScenarioError for a path that does not exist, with what is there; for a value that is no number
    where one is needed.

    >>> site = {"pool": [{"name": "gpu", "most_time": 3600.0}], "nodes": {"h100": 4}}
    >>> changed(site, changes_of("pool.gpu.most_time=1d,nodes.h100+=8"))
    {'pool': [{'name': 'gpu', 'most_time': 86400.0}], 'nodes': {'h100': 12}}
    >>> changed(site, changes_of("nodes.v100+=8"))
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: change nodes.v100+=8: nodes has no 'v100'; it has h100
    """
    result = copy.deepcopy(dict(document))
    for change in changes:
        at: Any = result
        *path, name = change.parts
        for i, part in enumerate(path):
            key = _key(at, part, change, path[:i])
            if at[key] is None:  # a table that is not there yet: its model knows what it may hold
                at[key] = _NewTable()
            at = at[key]
        key = name if isinstance(at, _NewTable) else _key(at, name, change, path)
        at[key] = _value(change, at[key])
    return result


def setting(document: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a document; raises ScenarioError as :func:`changed` does.

    >>> setting({"pool": [{"name": "gpu", "most_time": 3600.0}]}, "pool.gpu.most_time")
    3600.0
    """
    at: Any = document
    parts = (change := SettingChange(path, "", "")).parts
    for i, part in enumerate(parts):
        at = at[_key(at, part, change, parts[:i])]
    return at


class _NewTable(dict[str, Any]):
    def __missing__(self, key: str) -> None:
        return None


def _key(at: Any, part: str, change: SettingChange, path: list[str]) -> Any:
    if isinstance(at, Mapping):
        keys: dict[str, Any] = {str(key): key for key in at}
    elif isinstance(at, list | tuple):
        names = [x.get("name") if isinstance(x, Mapping) else None for x in at]
        keys = {str(name or i + 1): i for i, name in enumerate(names)}
        # Names before places: an entry that is called 2 is not the second one.
        if part not in keys and part.isdecimal() and 1 <= int(part) <= len(at):
            return int(part) - 1
    else:
        keys = {}
    if part in keys:
        return keys[part]
    place = ".".join(path) or "the site file"
    if not isinstance(at, Mapping | list | tuple):
        raise ScenarioError(f"change {change}: {place} is {at!r}, which has no parts")
    shown = [*keys][:MOST_NAMED]
    parts = ", ".join(shown) + ", …" * (len(keys) > len(shown)) if keys else "nothing"
    near = get_close_matches(part, keys, 1)
    hint = f"; did you mean {near[0]}?" if near and len(keys) > 3 else ""
    raise ScenarioError(f"change {change}: {place} has no {part!r}; it has {parts}{hint}")


def _value(change: SettingChange, old: Any) -> Any:
    try:
        term: Any = tomllib.loads(f"x = {change.given}")["x"]
    except ValueError:  # no value of TOML: a text without its quotes
        term = change.given
    if isinstance(old, list | tuple):
        if change.how == "+=":
            return [*old, term]
        if change.how == "-=":
            entry = term if term in old else old[_key(old, str(term), change, [change.path])]
            return [x for x in old if x is not entry and x != entry]
    # A time such as 1d6h is seconds where a number stands.
    number = isinstance(old, int | float) and not isinstance(old, bool)
    if number and isinstance(term, str):
        term = seconds_of(term, f"change {change}:")
    if change.how == "=":
        return term
    if not number or not isinstance(term, int | float):
        raise ScenarioError(f"change {change}: {change.path} is {old!r}, no number; write =")
    if not math.isfinite(old):
        raise ScenarioError(f"change {change}: {change.path} is not set; write = to set it")
    value = old * term if change.how == "*=" else old + (term if change.how == "+=" else -term)
    # A whole number stays whole: there is no part of a node.
    return round(value) if isinstance(old, int) else value


def changed_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The lines that differ, each with the table it is in: ``-`` as it was, ``+`` as changed.

    >>> changed_lines({"start": {"a": 1, "b": 2}}, {"start": {"a": 3, "b": 2}})
    ['  [start]', '- a = 1', '+ a = 3']
    >>> changed_lines({"cap": [{"most": 8.0}]}, {"cap": [{"most": 4.0}]})
    ['  [[cap]]', '- most = 8', '+ most = 4']
    """
    lines: list[str] = []
    a, b = (  # what it has of Kueue is deep: a path and a value on each line
        _paths("kueue", document.get("kueue", {})) + toml_text({**document, "kueue": 0}).split("\n")
        for document in (_whole(before), _whole(after))
    )
    heading = ""
    # The first three lines are headings of the format.
    for line in list(unified_diff(a, b, n=len(a) + len(b)))[3:]:
        shown = f"{line[0]} {line[1:]}"
        if line[1:].startswith("["):
            heading = shown
        if line[0] in "-+" and line[1:]:
            lines += [heading] * (heading not in ("", shown)) + [shown]
            heading = ""
    return lines


def _whole(value: Any) -> Any:
    """A document whose whole numbers are written without a point, as in a site's own file."""
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _paths(path: str, value: Any) -> list[str]:
    if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        value = {entry.get("name") or i: entry for i, entry in enumerate(value, 1)}
    if not isinstance(value, Mapping):
        return [f"{path} = {toml_value(value)}"]
    return [x for key, sub in value.items() for x in _paths(f"{path}.{toml_key(str(key))}", sub)]
