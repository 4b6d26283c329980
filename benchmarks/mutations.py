"""Planted faults: which tests see them.

    python -m benchmarks.mutations [--only WORD] [--draw N] [--seed N]

Every fault is one replacement in the syntax tree of one file of a copy of the sources: layout,
comments and names of local variables do not matter. The tests that should see it
run on the copy; a fault that they do not see survived, and the exit code is 1. Before anything is
planted, the tests of all faults must pass on the copy. This is run by hand: kernels compile anew
for each fault, so that it takes minutes.

The faults of ``mutations.toml`` are known to be seen. A tenth as many are drawn anew each time
(``--draw``): a comparison, a sign or a number of any module that has tests of its own name becomes
another. One of these that survives may be no fault at all (a tolerance, a limit of time), so that
it is shown and does not count.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """One fault: ``old`` stands once in the tree of the file, ``new`` in its place is wrong."""

    what: str
    file: str
    old: str
    new: str
    tests: str
    only: str = ""


FAULTS = tuple(
    Fault(**fault)
    for fault in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[
        "faults"
    ]
)


def tree_of(code: str) -> ast.AST:
    """The expression or statement of a text."""
    statement = ast.parse(code.strip()).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def renaming(old: ast.AST, tree: ast.AST, names: dict[str, str]) -> dict[str, str] | None:
    """Old names → names in the tree under which two trees are the same; None if there are none."""
    if isinstance(old, ast.Name) and isinstance(tree, ast.Name):
        other = names.get(old.id)
        if other is None and tree.id not in names.values():
            return names | {old.id: tree.id}
        return names if other == tree.id else None
    if type(old) is not type(tree):
        return None
    for name, value in ast.iter_fields(old):
        other = getattr(tree, name, None)
        if name == "ctx":
            continue
        pairs = [(value, other)]
        if isinstance(value, list):
            if not isinstance(other, list) or len(value) != len(other):
                return None
            pairs = list(zip(value, other))
        for ours, theirs in pairs:
            if isinstance(ours, ast.AST) and isinstance(theirs, ast.AST):
                matched = renaming(ours, theirs, names)
                if matched is None:
                    return None
                names = matched
            elif ours != theirs or type(ours) is not type(theirs):
                return None
    return names


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def local_names(tree: ast.AST) -> set[str]:
    """Names that the functions of a module give: parameters, and what is assigned in them."""
    return {
        part.arg if isinstance(part, ast.arg) else part.id
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.Lambda | ast.GeneratorExp | ast.ListComp)
        for part in ast.walk(function)
        if isinstance(part, ast.arg)
        or (isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    }


def matches(source: str, old: str) -> list[tuple[ast.AST, dict[str, str]]]:
    """Places of a module whose tree is that of ``old``: under its names, or under other locals."""
    tree, pattern = ast.parse(source), tree_of(old)
    renamable, same, renamed = local_names(tree), [], []
    for node in ast.walk(tree):
        names = renaming(pattern, node, {}) if type(node) is type(pattern) else None
        if names is None:
            continue
        if all(a == b for a, b in names.items()):
            same.append((node, names))
        elif all(a == b or b in renamable for a, b in names.items()):
            renamed.append((node, names))
    return same or renamed


def planted(source: str, old: str, new: str) -> str:
    """A module with ``new`` in the one place of ``old``."""
    found = matches(source, old)
    if len(found) != 1:
        raise SystemExit(f"there are {len(found)} places of: {old}")
    (node, names), lines = found[0], source.encode().splitlines(keepends=True)
    text = ast.unparse(_Renamed(names).visit(tree_of(new)))
    text = f"({text})" if isinstance(node, ast.expr) else text
    begin, end = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1]
    lines[node.lineno - 1 : node.end_lineno] = [begin + text.encode() + end[node.end_col_offset :]]
    return b"".join(lines).decode()


OTHER = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
}  # fmt: skip


def places(source: str) -> Iterator[tuple[ast.expr, str]]:
    """Comparisons, sums, products and numbers of a module, and what each could become."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER:
            left, right = (ast.unparse(part) for part in (node.left, node.comparators[0]))
            yield node, f"{left} {OTHER[type(node.ops[0])]} {right}"
        elif isinstance(node, ast.BinOp) and type(node.op) in OTHER:
            left, right = (ast.unparse(part) for part in (node.left, node.right))
            yield node, f"({left}) {OTHER[type(node.op)]} ({right})"
        elif isinstance(node, ast.Constant) and type(node.value) is float and node.value:
            yield node, repr(node.value * 2)


def drawn(number: int, seed: int) -> list[Fault]:
    """Faults at random, in modules with tests of the same name."""
    rng, found = random.Random(seed), []
    base = ROOT / "src" / "gangwise"
    modules = [
        (path, test)
        for path in sorted(base.rglob("*.py"))
        if (test := path.relative_to(base).parent / f"test_{path.stem}.py")
        and (ROOT / "tests" / test).exists()
    ]
    while len(found) < number:
        path, test = rng.choice(modules)
        source = path.read_text(encoding="utf-8")
        node, new = rng.choice(list(places(source)) or [(None, "")])
        old = ast.get_source_segment(source, node) if node else None
        if old and source.count(old) == 1 and "\n" not in old:
            name = str(path.relative_to(base))
            found.append(Fault(f"`{old}` becomes `{new}`", name, old, new, str(test)))
    return found


def run_tests(copy: Path, tests: str, only: str) -> tuple[bool, str]:
    """Whether the tests pass on the copy, and the first that does not."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"tests/{tests}", *(["-k", only] if only else [])]
    env = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode not in (0, 1):
        raise SystemExit(f"the tests of {tests} could not run:\n{done.stdout[-2000:]}")
    return done.returncode == 0, failed[0].split("::")[-1].split(" - ")[0] if failed else ""


def main() -> int:
    """Plant each fault and see who sees it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name has this word")
    parser.add_argument("--draw", type=int, default=len(FAULTS) // 10, help="faults drawn anew")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what they are drawn by")
    given = parser.parse_args()
    listed = [fault for fault in FAULTS if given.only in fault.what]
    chosen = listed + drawn(given.draw, given.seed)
    lines, survived, anew = [], 0, []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "docs", "benchmarks", "conftest.py", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy2(source, copy / name)
        for tests, only in dict.fromkeys((fault.tests, fault.only) for fault in chosen):
            passed, by = run_tests(copy, tests, only)
            if not passed:
                raise SystemExit(f"tests/{tests} fails before anything is planted: {by}")
        for fault in chosen:
            path = copy / "src" / "gangwise" / fault.file
            sound = path.read_text(encoding="utf-8")
            begin = time.perf_counter()
            path.write_text(planted(sound, fault.old, fault.new), encoding="utf-8")
            passed, by = run_tests(copy, fault.tests, fault.only)
            path.write_text(sound, encoding="utf-8")
            seen = "**survived**" if passed else f"`{by}`"
            what = fault.what.replace("|", "\\|")
            (lines if fault in listed else anew).append(f"| {what} | `{fault.file}` | {seen} |")
            survived += passed and fault in listed
            print((lines + anew)[-1], f"({time.perf_counter() - begin:.0f} s)", flush=True)
    print(f"{len(listed) - survived} of {len(listed)} were seen.")
    if anew:
        print(f"Drawn with seed {given.seed}; what survives may be no fault:", *anew, sep="\n")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())
