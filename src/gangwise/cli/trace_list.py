"""``gangwise trace list``."""

from __future__ import annotations

import json
from typing import Any

from gangwise.cli.options import Json

__all__ = ["list_command"]


def list_command(as_json: Json = False) -> None:
    """Every trace format: what it is, where it is published, and its tables."""
    from gangwise.traces.known import described

    found = described()
    if as_json:
        print(json.dumps({"traces": found}, indent=2, ensure_ascii=False))
        return
    for trace in found:
        print("\n".join(_lines(trace)), end="\n\n")


def _lines(trace: dict[str, Any]) -> list[str]:
    lines = [f"{trace['name']}: {trace['title']}"]
    rows = [("what", trace["summary"]), ("published", trace["published"]),
            ("licence", trace["licence"]), ("span", trace["span"] or "not stated"),
            ("size", trace["size"] or "not stated")]  # fmt: skip
    checksums = trace["checksums"] or "not published"
    if trace["licence"] == "your own":
        checksums = "none: the files are your own"
    if trace["sha256"]:
        checksums = f"SHA-256, from {trace['checksums']}"
    rows.append(("checksums", checksums))
    lines += [f"  {key:<11s}{text}" for key, text in rows]
    lines += [f"    {digest}  {file}" for file, digest in trace["sha256"].items()]
    for table in trace["tables"]:
        about = [table["gives"] or "not used yet"] + ["needed"] * table["needed"]
        about += ["in parts"] * table["parts"]
        lines.append(f"  table      {table['name']}: {'; '.join(about)}")
    return lines
