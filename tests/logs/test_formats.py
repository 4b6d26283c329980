"""Every shipped description of a format can be read, and says nothing of columns that are not."""

from __future__ import annotations

import re

import polars as pl
import pytest

from gangwise.core.registry import entries
from gangwise.logs.format import FORMATS, declared
from gangwise.logs.formats.tabular import _with_options, reader

NAMES = sorted(file.stem for file in FORMATS.glob("*.toml"))
TABLES = [name for name in NAMES if "reader" not in declared(name).mapping]


@pytest.mark.parametrize("name", NAMES)
def test_a_description_registers_its_trace(name):
    first = (FORMATS / f"{name}.toml").read_text().split("\n")[0]
    entry = entries("trace")[name]
    assert first == f"# {name}: {entry.summary}"
    assert entry.load().FORMAT.name == declared(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_rules_are_about_columns_of_their_table(name):
    for table in declared(name).tables:
        columns = {column.name for column in table.schema.columns}
        for check in table.schema.checks:
            assert {*check.broken.meta.root_names()} <= columns
            assert check.columns


@pytest.mark.parametrize("name", TABLES)
def test_a_mapping_is_about_columns_of_its_table(name):
    form = declared(name)
    options = {key: entry["default"] for key, entry in form.mapping.get("options", {}).items()}
    options = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    for section in ("jobs", *form.mapping.get("or", ()), "servers"):
        spec = form.mapping.get(section, {})
        if "table" not in spec:
            continue
        known = {"row", *(column.name for column in form.table(spec["table"]).schema.columns)}
        known |= {*spec.get("with", {})}
        known |= {column for join in spec.get("join", ()) for column in join["columns"]}
        texts = [*spec["columns"].values(), *spec.get("leave_out", {}).values()]
        for text in spec.get("with", {}).values():
            texts += [text] if isinstance(text, str) else text
        texts += [entry["where"] for entry in spec.get("fill", ())]
        for text in texts:
            plain = pl.col(text) if text.isidentifier() else _with_options(text, options)
            assert {*plain.meta.root_names()} <= known, text


def test_a_condition_with_options_alone_is_sql_too(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "rows.csv").write_text("id,n,t\na,1,5\nb,2,9\n")
    made = reader(str(tmp_path / "small.toml"))
    assert made(tmp_path).scan().notes == ("2 rows of one kind",)
    assert made(tmp_path, kind="two", most=3).scan().notes == ("rows of two kinds, 14 in all",)
    with pytest.raises(Exception, match=re.escape("kind is 'three'")):
        made(tmp_path, kind="three")
    with pytest.raises(Exception, match="most is -1"):
        made(tmp_path, most=-1)


SMALL = """# small: two rows
title = "Small"
published = "nowhere"
licence = "none"
options.kind = { default = "one", choices = ["one", "two"] }
options.most = { default = 1, least = 0, most = 9 }
[tables.rows]
title = "rows"
columns = { id = "text", n = "number", t = "number" }
[jobs]
table = "rows"
notes = [
  { if = "$kind = 'one'", count = "n >= $most", text = "{} rows of one kind" },
  { if = "$kind = 'two'", counts = ["SUM(t)"], text = "rows of two kinds, {:.0f} in all" },
]
columns = { name = "id", cpu = "n", mem = "0", gpu = "0", created = "t", deleted = "t + n" }
"""
