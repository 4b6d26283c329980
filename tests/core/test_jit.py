from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core.caching import Cache, IndexDataCacheFile
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.dispatcher import Dispatcher
from numba.core.typing import typeof

from gangwise.core import jit
from gangwise.core.jit import PART, KernelFiles, kernel


def same(x):
    return x


@pytest.fixture
def two(tmp_path):
    """The files of one kernel as two processes see them, and those of its older version."""

    def make(kind, stamp="new"):
        files = IndexDataCacheFile(str(tmp_path), "same-1.py", stamp)
        if kind is KernelFiles:
            files.__class__ = KernelFiles
        return files

    return make


def meanwhile(files, step, other):
    """Let ``other`` happen once, just before a step of ``files``."""
    plain = getattr(files, step)

    def interrupted(*given):
        setattr(files, step, plain)
        other()
        return plain(*given)

    setattr(files, step, interrupted)


def interleaved(make, kind):
    """Two processes look, both find nothing, and enter a signature each."""
    first, second = make(kind), make(kind)
    second._load_index = dict
    meanwhile(first, "_save_data", lambda: second.save("float", "code for float"))
    first.save("int", "code for int")
    return make(kind).load("int"), make(kind).load("float")


def test_two_processes_that_compile_at_once_keep_their_code_apart(two):
    found = interleaved(two, KernelFiles)
    assert found[0] in ("code for int", None)
    assert found[1] in ("code for float", None)
    assert any(found)


def too_early(make, kind):
    make(kind, "old").save("float", "old code for float")
    found, first = [], make(kind)
    meanwhile(first, "_save_data", lambda: found.append(make(kind).load("int")))
    first.save("int", "code for int")
    return found


def test_a_process_that_looks_too_early_finds_nothing(two):
    assert too_early(two, KernelFiles) == [None]
    assert two(KernelFiles).load("int") == "code for int"


def test_what_numba_itself_does_shows_that_these_tests_can_fail(two):
    assert interleaved(two, IndexDataCacheFile) == (None, "code for int")
    two(IndexDataCacheFile).flush()
    assert too_early(two, IndexDataCacheFile) == ["old code for float"]


OVERRIDDEN = {  # digests of what core/jit.py overrides or imitates, in numba 0.68
    IndexDataCacheFile: "953c3b4c113b8f4d",
    Cache.load_overload: "49a98e578d710b9b",
    Cache._load_overload: "8cb8c1d9749fda3d",
    CPUCodeLibrary.finalize: "4b4c34b83488a72f",
    CPUCodeLibrary._optimize_final_module: "e405bd473752613b",
    CPUCodeLibrary._optimize_functions: "9439219fa946f1ad",
    CPUCodeLibrary._get_module_for_linking: "56dde0e0555b5ec8",
    Dispatcher.get_call_template: "f15b62d0e9c0f605",
    Dispatcher.get_overload: "7dd56f622edd2016",
    typeof._typeof_tuple: "b66c93fcf165d5a4",
    CompilerBase.compile_extra: "09b90ed8a19dfc12",
}


@pytest.mark.parametrize("part", OVERRIDDEN, ids=lambda part: part.__qualname__)
def test_numba_is_as_these_overrides_know_it(part):
    """Where this fails, read what numba changed, mend core/jit.py if need be, and record it."""
    found = hashlib.sha256(inspect.getsource(part).encode()).hexdigest()[:16]
    assert found == OVERRIDDEN[part], f"numba {numba.__version__} has another {part.__qualname__}"


def test_kernels_use_it():
    assert isinstance(kernel(same)._cache._cache_file, KernelFiles)
    assert not isinstance(numba.njit(cache=True)(same)._cache._cache_file, KernelFiles)


def test_kernels_are_compiled_anew_where_the_compiler_of_jit_py_has_changed(monkeypatch):
    def stamp():
        return kernel(same)._cache._cache_file._source_stamp

    before, plain = stamp(), jit._source
    assert stamp() == before
    monkeypatch.setattr(jit, "_source", lambda path: b"" if path == jit.__file__ else plain(path))
    assert stamp() != before


def test_a_damaged_file_counts_as_absent(two, tmp_path):
    two(KernelFiles).save("int", b"code for int")
    for path in tmp_path.iterdir():
        whole = path.read_bytes()
        for byte in range(len(whole)):
            damaged = bytearray(whole)
            damaged[byte] ^= 1 << byte % 8
            path.write_bytes(damaged)
            assert two(KernelFiles).load("int") is None
            path.write_bytes(whole[:byte])
            assert two(KernelFiles).load("int") is None
        two(KernelFiles).save("int", b"code for int")  # mends it
        assert two(KernelFiles).load("int") == b"code for int"


def test_a_full_disk_is_done_without(two, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    files = two(KernelFiles)
    monkeypatch.setattr("os.replace", full)
    files.save("int", "code for int")
    assert two(KernelFiles).load("int") is None


CALLED = """
from gangwise.core.jit import inlined_kernel, inner_kernel


@inlined_kernel
def twice(values, i):
    return {factor} * values[i]


@inner_kernel
def total(values):
    sum = 0.0
    for i in range(values.size):
        sum += twice(values, i)
    return sum
"""
CALLING = """
from gangwise.core.jit import lean_kernel
from {called} import total, twice


@lean_kernel
def first_and_all(values):
    return twice(values, 0) + total(values)


@lean_kernel
def play(values):
    return first_and_all(values) + total(values)
"""


def test_kernels_that_only_kernels_call_are_compiled_with_their_callers(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    stamps = []
    for name, factor in (("before", 2), ("after", 2), ("other", 3)):
        (tmp_path / f"called_{name}.py").write_text(CALLED.format(factor=factor))
        (tmp_path / f"calling_{name}.py").write_text(CALLING.format(called=f"called_{name}"))
        calling = importlib.import_module(f"calling_{name}")
        stamps.append(getattr(calling.total, PART))
        values = np.array([1.0, 2.0, 4.0])
        assert calling.play(values) == factor * (1 + 7 + 7)
        assert calling.first_and_all(values) == factor * (1 + 7)
        assert len(calling.twice.signatures) == 1  # for i, and for the 0 of a call
    assert stamps[0] == stamps[1] != stamps[2]  # what callers ask whether they are fresh


BY_REFERENCE = """
from typing import Any, NamedTuple
from gangwise.core.jit import by_reference, inner_kernel, kernel, lean_kernel, referenced


@by_reference
class Inner(NamedTuple):
    factor: float
    values: Any


@by_reference
class Outer(NamedTuple):
    inner: Inner
    sums: Any
    rows: Any


@inner_kernel
def total(x):
    sum = 0.0
    for i in range(x.values.size):
        sum += x.factor * x.values[i]
    return sum


@lean_kernel
def add_up(x):
    x.sums[0] += total(x.inner)
    for i in range(x.rows.shape[0]):
        x.sums[1 + i] += total(referenced(Inner(1.0, x.rows[i])))


@kernel
def twice(x):
    add_up(x)
    add_up(x)
"""


def test_a_tuple_by_reference_is_one_pointer_to_its_members(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "by_reference.py").write_text(BY_REFERENCE)
    code = importlib.import_module("by_reference")
    values, sums, rows = np.array([1.0, 2.0]), np.zeros(3), np.array([[1.0, 3.0], [5.0, 7.0]])
    held = [sys.getrefcount(each) for each in (values, sums, rows)]
    code.twice(code.Outer(code.Inner(10.0, values), sums, rows))
    assert sums.tolist() == [60.0, 8.0, 24.0]
    assert held == [sys.getrefcount(each) for each in (values, sums, rows)]
    code.add_up(code.Outer(code.Inner(10.0, values), sums, rows))
    assert sums.tolist() == [90.0, 12.0, 36.0]
    assert len(code.total.signatures) == 1  # one made in a kernel is as one that came from Python
    (argument,) = code.twice.signatures[0]
    assert str(argument).startswith("Outer_")


ABSENT = """
from typing import Any, NamedTuple
from gangwise.core.jit import by_reference, inner_kernel, lean_kernel


@by_reference
class Limits(NamedTuple):
    most: Any


@by_reference
class Parts(NamedTuple):
    limits: Any
    values: Any


@inner_kernel
def bounded(limits, value):
    return min(value, limits.most[0])


@lean_kernel
def total(parts):
    sum = 0.0
    for value in parts.values:
        if parts.limits is not None and parts.limits.most.size > 0:
            sum += bounded(parts.limits, value)
        else:
            sum += value
    return sum
"""


def test_what_depends_on_an_absent_part_is_not_compiled(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "absent.py").write_text(ABSENT)
    code = importlib.import_module("absent")
    values = np.array([1.0, 5.0])
    assert code.total(code.Parts(None, values)) == 6.0
    assert code.bounded.signatures == []
    assert code.total(code.Parts(code.Limits(np.array([3.0])), values)) == 4.0
    assert len(code.bounded.signatures) == 1


LOADING = """
import sys
import numpy as np
from loaded import norm, root

values = np.array([9.0, 16.0])
assert root(values) == 7.0
print("numba.np.linalg" in sys.modules)
assert len(sys.argv) == 1 or norm(values[:1]) == 9.0  # compiled, beside what was loaded
"""
LOADED = """
import numpy as np
from gangwise.core.jit import kernel


@kernel
def root(values):
    some = np.sqrt(values)
    return some[0] + some[1]


@kernel
def norm(values):
    return np.linalg.norm(values)
"""


@pytest.mark.full
def test_code_that_is_there_is_loaded_without_all_that_could_compile_it(tmp_path):
    (tmp_path / "loaded.py").write_text(LOADED)
    surroundings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    surroundings["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    said = [
        subprocess.run(
            [sys.executable, "-c", LOADING, *more],
            env=surroundings,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for more in ([], [], ["compile"])
    ]
    assert said == ["True\n", "False\n", "False\n"]


BEYOND = """
import numpy as np
from gangwise.core.jit import inlined_kernel, lean_kernel

@inlined_kernel
def put(x, i):
    x[i] = 1.0

@lean_kernel
def play(x, i):
    put(x, i)

def test():
    play(np.zeros(9)[:3], 3)
"""


def test_bounds_are_checked_in_kernels_that_become_part_of_others(tmp_path):
    """With NUMBA_BOUNDSCHECK, as .ci/run sets it; code without checks is not taken for it."""
    (tmp_path / "beyond.py").write_text(BEYOND)
    said = []
    for checks in "0", "1":
        environment = os.environ | {"NUMBA_BOUNDSCHECK": checks, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", "import beyond; beyond.test()"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        said.append("IndexError" in done.stderr)
    assert said == [False, True]
