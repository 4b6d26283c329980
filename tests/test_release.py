"""What is released: the wheel works by itself, the source distribution has what its tests read."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from gangwise import __version__

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="needs pip install hatchling"
)


def built(kind: str, folder: Path) -> Path:
    """A wheel or a source distribution, as a build front end has it made."""
    code = f"import hatchling.build as b; print(b.build_{kind}({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel where an installer would put it."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built("wheel", folder)) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def ran(site: Path, words: Sequence[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-m", "gangwise", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_a_wheel_works_without_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    told = json.loads(ran(unpacked, ["--version", "--json"], tmp_path))
    assert told["gangwise"] == __version__
    assert "ogasched-react" in ran(unpacked, ["list"], tmp_path)
    ran(unpacked, ["new", "policy", "Mine"], tmp_path)
    assert (tmp_path / "mine.py").exists()


def test_a_wheel_has_every_file_that_is_no_module(unpacked: Path) -> None:
    source = ROOT / "src"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert not {name for name in expected - found if "egg-info" not in name}
    assert {"gangwise/py.typed", "gangwise/report/templates/page.html"} <= found


@pytest.mark.full
def test_a_source_distribution_has_what_the_tests_read(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs the repository")
    needed = ("src/", "tests/", "docs/", "benchmarks/")
    tracked = [name for name in listed.stdout.split("\n") if (ROOT / name).is_file()]
    assert not {name for name in tracked if name.startswith(needed)} - names
    assert {"conftest.py", "mkdocs.yml", "pyproject.toml", "CITATION.cff", "LICENSE"} <= names


def test_versions_and_licence_are_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {project['version']}" in citation
    assert project["version"] == __version__
    assert f"license: {project['license']}" in citation


def test_the_conda_recipe_has_the_same_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    called = {"isal": "python-isal", "matplotlib": "matplotlib-base"}  # conda-forge's names
    needed = {f"python {project['requires-python']}"}
    # A conda package has no extras: it brings what the extra "full" does.
    for each in [*project["dependencies"], *project["optional-dependencies"]["full"]]:
        name, bound = each.partition(";")[0].split(">=")
        needed.add(f"{called.get(name, name)} >={bound}")
    assert set(recipe["requirements"]["run"]) == needed
    assert recipe["package"]["version"] == project["version"]
    (script,) = project["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(script)]
