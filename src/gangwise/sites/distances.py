"""Where nodes are, as files of a site say it: Slurm's topology.conf, or a table of racks."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangwise.core.errors import ScenarioError
from gangwise.notation import NotationError, slurm
from gangwise.sites.slurm_files import continued


def switch_labels(
    below: Mapping[str, Sequence[str]], nodes: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The place of the leaf switch of each node among all, and the way to it from the top.

    ``below``: the switches below each; ``nodes``: the nodes on each.

    >>> switch_labels({"top": ["s1"], "s1": []}, {"top": [], "s1": ["n1"]})
    {'n1': '0:top/s1'}
    """
    above = {child: name for name, children in below.items() for child in children}
    place_of = {}
    for i, leaf in enumerate(name for name, children in below.items() if not children):
        # From the leaf up, as long as the switch above is not already on the way.
        path = [leaf]
        while path[0] in above and above[path[0]] not in path:
            path.insert(0, above[path[0]])
        for node in nodes[leaf]:
            place_of[node] = f"{i}:{'/'.join(path)}"
    return place_of


def read_topology(file: Path) -> dict[str, dict[str, str]]:
    """Labels of nodes that say where they are.

    Of a topology.conf the label ``switch``; else of a CSV file whose first column is ``node`` and
    whose others are levels, the nearest first: ``node,rack,block``.

    Raises
    ------
    ScenarioError
        Where the file cannot be read, or is neither; names the line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{file} cannot be read: {error}") from error
    if re.search(r"^\s*SwitchName\s*=", text, re.MULTILINE | re.IGNORECASE):
        return {node: {"switch": path} for node, path in _switches(file, text).items()}
    rows = list(csv.reader(text.splitlines()))
    if not rows or len(rows[0]) < 2 or rows[0][0].strip().lower() not in ("node", "server"):
        raise ScenarioError(
            f"{file}: line 1 is no header such as node,rack,block, and no line begins with "
            "SwitchName="
        )
    levels, places = [name.strip() for name in rows[0][1:]], dict[str, dict[str, str]]()
    for i, row in enumerate(rows[1:], 2):
        if row and len(row) != len(rows[0]):
            raise ScenarioError(f"{file}: line {i} has {len(row)} values, the first {len(rows[0])}")
        if row:
            places[row[0].strip()] = dict(zip(levels, map(str.strip, row[1:])))
    return places


def _switches(file: Path, text: str) -> dict[str, str]:
    below, nodes = dict[str, list[str]](), dict[str, list[str]]()
    for number, line in continued(text):
        values = {k.lower(): v for k, v in re.findall(r"(\w+)\s*=\s*(\S+)", line)}
        if (name := values.get("switchname")) is None:
            continue
        try:
            below[name] = slurm.expand_nodes(values.get("switches", ""))
            nodes[name] = slurm.expand_nodes(values.get("nodes", ""))
        except NotationError as error:
            raise ScenarioError(f"{file}: line {number}: {error}") from error
    return switch_labels(below, nodes)
