"""Tables: whatever has rows gives them to polars, pandas and the tools of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gangwise.core.errors import GangwiseError

if TYPE_CHECKING:
    import polars as pl


class Tabular(Protocol):
    """What has a table: a class defines its columns, or makes the frame itself.

    Tools that read Arrow take it as it is: ``pyarrow.table(it)``, ``duckdb.from_arrow(it)``.
    """

    def columns(self) -> Mapping[str, Any]:
        """The table's columns by name, of one length."""
        return {name: column.to_numpy() for name, column in self.to_polars().to_dict().items()}

    def to_polars(self) -> pl.DataFrame:
        import polars as pl  # late: many have tables, few are asked for them, and it takes 0.15 s

        return pl.DataFrame(dict(self.columns()))

    def to_pandas(self) -> Any:
        """The table for pandas; raises GangwiseError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise GangwiseError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.to_polars().to_dict(as_series=False))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The table in Arrow's C stream interface, which pyarrow, DuckDB and others read."""
        return self.to_polars().__arrow_c_stream__(requested_schema)
