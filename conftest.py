"""Documentation snippets run as if typed at a prompt: classes they define can be pickled."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import typer.testing

EXTRAS = {"mkdocs": ["docs/hooks.py", "docs/doctests.py"], "optuna": ["docs/how-to/tune.md"]}
"""What cannot be collected without a module of an extra."""
collect_ignore = [
    p for name, of in EXTRAS.items() if not importlib.util.find_spec(name) for p in of
]


# A runner builds all commands anew for each that is typed, which takes longer than most of them.
typer.testing._get_command = functools.cache(typer.testing._get_command)

FIRST = ("tests/jobs/test_simulation.py", "tests/sites/test_slurm_passes.py")
FIRST += ("tests/sites/test_forecast.py", "tests/test_gym.py")
"""Between them these need every large kernel of the engine of jobs."""
PLAYED = ("tests/jobs", "tests/study", "tests/service", "tests/engines", "tests/report")
PLAYED += ("tests/test_", "tests/papers/reproduce/test_field.py", "tests/study/test_job_classes.py")


@pytest.hookimpl(trylast=True)  # of the tests that are left
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that play jobs come second: their kernels take minutes to compile, on one worker.

    What those kernels call is compiled anew in every process that compiles one of them. So one
    worker compiles all of them before anything else, while the other compiles the rest.
    pytest-xdist gives the second of two workers the second half of the list.
    """
    played = [item for item in items if item.nodeid.startswith(PLAYED)]
    played.sort(key=lambda item: not item.nodeid.startswith(FIRST))  # keeps their order
    others = [item for item in items if not item.nodeid.startswith(PLAYED)]
    half = len(items) // 2
    items[:] = [*others[:half], *played, *others[half:]]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Modules without an example are not searched for one, object by object."""
    found = yield
    if file_path.suffix == ".py" and ">>> " not in file_path.read_text(encoding="utf-8"):
        return [each for each in found if type(each) is pytest.Module]  # and no DoctestModule
    return found


@pytest.fixture(autouse=True, scope="session")
def _key_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Checkpoints of tests are not signed with the key of the user who runs them."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works() -> None:
    """Tests of Ctrl-C hold also where the whole session was started with it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Prompt:
    """A stand-in for ``__main__`` that looks names up among those of the snippet."""

    def __init__(self, names: dict[str, Any]):
        self._names = names

    def __getattr__(self, name: str) -> Any:
        try:
            return self._names[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.fixture(autouse=True)
def _snippets_are_main(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    test = getattr(request.node, "dtest", None)
    if test is not None and str(test.filename).endswith(".md"):
        monkeypatch.setitem(sys.modules, "__main__", _Prompt(test.globs))
