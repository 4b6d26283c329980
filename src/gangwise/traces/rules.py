"""What a schema asks of columns that are typed: the rows that keep to it, and why others do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangwise.traces.fidelity import first_reason
from gangwise.traces.schema import Check, Column

if TYPE_CHECKING:
    import polars as pl


class Rules:
    """The rules of some columns of a schema, for frames in which a number is Float64.

    A frame whose lines were taken apart one by one has two columns more: ``broken``, why a line
    could not be, and ``fault``, the first column that is no number. Both are null for sound lines.

    Parameters
    ----------
    columns : sequence of Column
    checks : sequence of Check
    """

    def __init__(self, columns: Sequence[Column], checks: Sequence[Check]):
        self.columns, self.checks = columns, checks

    def judge(self, frame: pl.DataFrame, line: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good rows with their line numbers, and why each other row is refused."""
        import polars as pl

        row = pl.int_range(line, line + len(frame), eager=True).alias("row")
        if "broken" not in frame.columns and frame.select(self._sound(frame)).item():
            nothing = pl.DataFrame(schema={"row": pl.Int64, "reason": pl.String})
            return frame.with_columns(row), nothing
        reason = first_reason(self._rules(frame))
        if "broken" in frame.columns:
            reason = pl.coalesce("broken", reason)
        frame = frame.with_columns(row, reason.alias("reason"))
        refused = pl.col("reason").is_not_null()
        return frame.filter(~refused), frame.filter(refused).select("row", "reason")

    def _rules(self, frame: pl.DataFrame) -> list[tuple[str, pl.Expr]]:
        """What breaks the schema, in the order in which a reason is given."""
        import polars as pl

        rules: list[tuple[str, pl.Expr]] = []
        taken_apart = "fault" in frame.columns
        for c in self.columns:
            value = pl.col(c.name)
            fault = pl.col("fault") == c.name if taken_apart else pl.lit(False)
            blank = value.is_null() & ~fault.fill_null(False) if c.number else value == ""
            if not c.empty:
                rules.append((f"{c.name} is empty", blank))
            if c.number and taken_apart:
                rules.append((f"{c.name} is not a number", fault))
            elif c.pattern:
                fits = value.str.contains(f"^(?:{c.pattern})$")
                rules.append((f"{c.name} does not look like one", ~fits & ~blank))
        return (
            rules
            + _number_rules(self.columns)
            + [(check.reason, check.broken()) for check in self.checks]
        )

    def _sound(self, frame: pl.DataFrame) -> pl.Expr:
        """Whether no row at all breaks a rule, by as few passes as will do."""
        import polars as pl

        sound = []
        for c in self.columns:
            value = pl.col(c.name)
            if c.number:
                within = value.is_between(c.least, c.most) & value.is_finite()
                sound.append((within & (value == value.floor()) if c.whole else within).all())
                if not c.empty:
                    sound.append(value.null_count() == 0)
            else:
                if c.pattern:
                    texts = value.unique() if _come_again(frame[c.name]) else value
                    fits = texts.str.contains(f"^(?:{c.pattern})$")
                    sound.append(((texts == "") | fits if c.empty else fits).all())
                if not c.empty:
                    sound.append((value != "").all())
        sound += [~check.broken().fill_null(False).any() for check in self.checks]
        return pl.all_horizontal(*sound) if sound else pl.lit(True)


def _come_again(texts: pl.Series) -> bool:
    """Whether texts come again so often that looking at each once is faster."""
    return 2 * texts.head(1000).n_unique() < min(len(texts), 1000)


def _number_rules(columns: Sequence[Column]) -> list[tuple[str, pl.Expr]]:
    import polars as pl

    rules: list[tuple[str, pl.Expr]] = []
    for c in (column for column in columns if column.number):
        value = pl.col(c.name)
        rules.append((f"{c.name} is not finite", ~value.is_finite()))
        if c.least == 0:
            rules.append((f"{c.name} is negative", value < 0))
        else:
            rules.append((f"{c.name} is less than {c.least:g}", value < c.least))
        rules.append((f"{c.name} is larger than {c.most:g}", value > c.most))
        if c.whole:
            rules.append((f"{c.name} is not a whole number", value != value.floor()))
    return rules
