"""``gangwise calibrate``: what a log tells of its site."""

from __future__ import annotations

from pathlib import Path

from gangwise.cli.options import progress, say, settings_of
from gangwise.core.errors import StoreError
from gangwise.core.json_text import json_text


def calibrate_command(
    path: Path,
    out: Path | None = None,
    trace: str = "",
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Find the caps, closing hours and missing capacity that explain a log's waits."""
    from gangwise.experiments.calibrate import FILE, calibrate_log

    with progress("nothing is kept") as tell:
        found = calibrate_log(path, trace, tell, **settings_of(settings))
    print(json_text(found.as_dict()) if as_json else found)
    if out is not None:
        file = out / FILE
        try:
            out.mkdir(parents=True, exist_ok=True)
            with open(file, "x", encoding="utf-8") as made:
                made.write(found.toml())
        except FileExistsError as error:
            what = f"{file} is there already, maybe corrected by hand" if out.is_dir() else str(out)
            raise StoreError(f"{what}; give another --out") from error
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error.strerror or error}") from error
        say(f"wrote {file}; read it, correct it; then: gangwise replay {path} --site {out}")
