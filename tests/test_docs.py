"""The reference has every public name, and pages link to pages that are there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gangwise
from gangwise.study.sweep import Experiment

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = set(re.findall(r"^::: (\S+)", (DOCS / "reference.md").read_text(), re.MULTILINE))
PACKAGES = ["gangwise"] + [
    f"gangwise.{found.name}"
    for found in pkgutil.iter_modules(gangwise.__path__)
    if found.ispkg and found.name != "cli"
]


def homes(package: str) -> dict[str, str]:
    """Where a package's public names come from."""
    source = Path(importlib.import_module(package).__file__ or "").read_text()
    return {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    module = importlib.import_module(package)
    home = homes(package)
    missing = {
        home[name]
        for name in getattr(module, "__all__", ())
        if home.get(name, package) not in (*REFERENCE, package)
    }
    assert not missing, f"docs/reference.md lacks {', '.join(sorted(missing))}"


def test_the_reference_names_modules_that_are_there() -> None:
    for name in REFERENCE:
        path = ROOT / "src" / Path(*name.split("."))
        module, package = path.with_suffix(".py"), path / "__init__.py"
        source = module if module.exists() else package
        assert source.exists(), name
        assert ast.get_docstring(ast.parse(source.read_text())), name


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        text = re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            outside = target.startswith(("http:", "https:", "mailto:"))
            if not outside and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert not broken


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    found = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    pages = {str(page.relative_to(DOCS).with_suffix(".md")) for page in found}
    assert pages == listed


def test_the_tutorials_experiment_is_one() -> None:
    (text,) = re.findall(
        r"```toml\n(.*?)```", (DOCS / "tutorials/figure.md").read_text(), re.DOTALL
    )
    assert len(Experiment.model_validate(tomllib.loads(text)).grid["contention"]) == 4


def plain_snippets() -> dict[str, str]:
    """Python of the pages without prompts, which doctest passes over; one program for each page."""
    found = {}
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        if plain := [block for block in blocks if not re.search("^>>> ", block, re.M)]:
            found[page.name] = "\n".join(plain)
    return found


@pytest.mark.parametrize("name", plain_snippets())
def test_a_snippet_without_prompts_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").symlink_to(DOCS)
    monkeypatch.chdir(tmp_path)
    if "import MaskablePPO" in plain_snippets()[name]:
        pytest.importorskip("sb3_contrib", reason="the extra agents is not installed")
    defined: dict[str, object] = {"__name__": name}
    exec(compile(plain_snippets()[name], name, "exec"), defined)
    assert defined.keys() - {"__name__", "__builtins__"}, (
        "a snippet that defines nothing shows nothing"
    )


class Loaded(HTMLParser):
    """Addresses that a page loads, as against those that it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        self.found += [of[name] or "" for name in ("src", "srcset", "poster") if name in of]
        if tag == "link" and of.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.found.append(of.get("href") or "")


@pytest.mark.full
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="needs pip install '.[docs]'"
)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        parser = Loaded()
        text = page.read_text()
        parser.feed(text)
        assert parser.found, page
        outside = [address for address in parser.found if re.match(r"(?i)(https?:)?//", address)]
        assert not outside, (page, outside)
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", text), page
    assert "<math" in (tmp_path / "algorithms/ogasched/index.html").read_text()


def test_nothing_tells_to_install_a_package_that_nobody_has_published() -> None:
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder, kind in ((DOCS, "*.md"), (ROOT / "src", "*.py"), (ROOT, "README.md"))
        for path in (folder.glob if folder == ROOT else folder.rglob)(kind)
    }
    assert [p for p, text in texts.items() if re.search(r"pip install ['\"]?gangwise", text)] == []
    said = [path.name for path, text in texts.items() if "pip install '.[{" in text]
    assert said == ["errors.py"], "say it with to_install()"
