"""Registers the built-in names of ``catalogue.toml``, and the traces of ``traces/formats``.

Nothing is imported until it is used.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from gangwise.core.registry import register


def _register_all() -> None:
    catalogue = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for kind, families in catalogue.items():
        for family, rows in families.items():
            for name, row in rows.items():
                register(
                    kind,  # type: ignore[arg-type]  # the table's headers are kinds
                    name,
                    f"gangwise.{row['target']}",
                    row["summary"],
                    family,
                    row.get("revision", 1),
                    **row.get("preset", {}),
                )
    # A trace is registered by the first line of its TOML file: "# name: summary".
    for described in (Path(__file__).parent / "traces" / "formats").glob("*.toml"):
        with described.open(encoding="utf-8") as text:
            name, _, summary = text.readline().removeprefix("# ").strip().partition(": ")
        register("trace", name, f"gangwise.traces.formats.tabular:{name}", summary)


_register_all()
