"""Compiled inner loops, and their machine code on disk.

Every kernel is a module-level function, so that its machine code is cached: the first use on a
machine compiles, later processes load. Kernels allocate nothing; callers pass work space. Each has
a plain twin in ``tests/reference``. This file alone touches numba's private parts, to load code
fast, to compile large kernels once, and to keep the cache safe under several processes;
``tests/core/test_jit.py`` says when numba has changed them.

numba numbers the files of a kernel's signatures and enters a number before it writes the file. Two
processes that compile two signatures at once may take the same number, and one that looks between
the two steps may load what an older version left under it: code of another signature. Here a file
is named after all that it depends on, and is written first. Of two processes that enter theirs at
once, one entry may be lost; that signature is compiled again some day. Files end with their
digest; a damaged one counts as absent.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
import numpy as np
from numba.core import typed_passes, types, untyped_passes
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.datamodel.models import PrimitiveModel
from numba.core.dispatcher import Dispatcher
from numba.core.extending import intrinsic
from numba.core.runtime.nrt import rtsys
from numba.core.typing.typeof import typeof_impl

numbas: Any = numba.core  # its types are not told

PART = "stamp_of_part"
"""Attribute of a kernel that is compiled with its callers: a digest of what it depends on."""


def _as_bytes(stamp: Any) -> bytes:
    """Stamp by numba of a source file as bytes: a digest, or in older versions time and size."""
    return stamp if isinstance(stamp, bytes) else repr(stamp).encode()


def _stamp(dispatcher: Any, source: bytes) -> bytes:
    """Digest of a kernel's source and options, of this file, and of the kernels it may call."""
    # Code that checks bounds (NUMBA_BOUNDSCHECK=1) is not taken for code that does not.
    options = numbas.config.BOUNDSCHECK, sorted(dispatcher.targetoptions.items())
    called = {source, _source(__file__), repr(options).encode()}
    named = list(dispatcher.py_func.__globals__.values())
    for module in filter(inspect.ismodule, tuple(named)):
        if module.__name__.partition(".")[0] == __name__.partition(".")[0]:
            # A kernel may be called as module.kernel, and so depends on
            # kernels of gangwise's modules it imports.
            named += vars(module).values()
    for other in named:
        if isinstance(other, Dispatcher):
            files = getattr(vars(other)["_cache"], "_cache_file", None)
            # Sorted digests of a set: neither the order of imports nor
            # a kernel named twice changes the stamp.
            called.add(
                getattr(other, PART, source) if files is None else _as_bytes(files._source_stamp)
            )
    return hashlib.sha256(b"".join(sorted(called))).digest()


@functools.cache
def _source(path: str) -> bytes:
    """Digest of a file; of its name alone where it cannot be read, as in an archive."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return path.encode()


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel.

    numba takes compiled code for fresh while the text of the kernel's own file is unchanged. Here
    the files of the kernels that it calls, which are compiled into it, count as well.
    """

    @classmethod
    def of(cls, dispatcher: Any) -> KernelFiles:
        files = cls.__new__(cls)
        # numba's own object has everything but the stamp; making
        # another would look for the folder again.
        vars(files).update(vars(dispatcher._cache._cache_file))
        files._source_stamp = _stamp(dispatcher, _as_bytes(files._source_stamp))
        return files

    def save(self, key: Any, data: Any) -> None:
        """Write compiled code, then enter it; without room on the disk, do without."""
        what = repr((self._version, self._source_stamp, key))
        # Named after version, stamp and signature: no two codes
        # ever share a file, so none is overwritten.
        name = self._data_name_pattern.format(number=0).removesuffix(".0.nbc")
        name = f"{name}.{hashlib.sha256(what.encode()).hexdigest()[:16]}.nbc"
        files: Any = self
        with suppress(OSError):
            # The code first, then the index: a reader between the two finds no entry, and compiles.
            files._save_data(name, data)
            overloads = files._load_index()
            overloads[key] = name
            files._save_index(overloads)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        """What is written ends with its digest: damaged code would crash the process."""
        plain: Any = super()
        # In memory first: the digest is of all of it, and stands behind.
        buffer = io.BytesIO()
        with plain._open_for_write(filepath) as file:
            yield buffer
            data = buffer.getvalue()
            file.write(data + hashlib.sha256(data).digest())

    def _load_index(self) -> dict[Any, str]:
        data = _whole(self._index_path)
        if data is None:
            return {}
        stream = io.BytesIO(data)
        try:
            # The version comes first in the file: what follows may not unpickle with another one.
            if pickle.load(stream) != self._version:
                return {}
            stamp, overloads = pickle.load(stream)
        except (AttributeError, ImportError):  # a class of an older version, which is gone
            return {}
        found: dict[Any, str] = overloads if stamp == self._source_stamp else {}
        return found

    def _load_data(self, name: str) -> Any:
        files: Any = self
        data = _whole(files._data_path(name))
        return None if data is None else pickle.loads(data)


class KernelCache(FunctionCache):
    """Cache on disk of one kernel.

    numba imports all that it could compile (linear algebra, a parser of C, random numbers) before
    it loads machine code, a third of a second. Code that is there needs none of it; a compilation
    asks for it by itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        cache: Any = self
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(sig, target_context)


def _whole(path: str) -> bytes | None:
    """The content of a file that ends with its digest; None where it is not what was written."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    # 32 bytes of SHA-256.
    data, digest = content[:-32], content[-32:]
    return data if hashlib.sha256(data).digest() == digest else None


F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function on first use and cache it on disk."""
    # error_model="numpy": a division by zero gives inf or NaN, without a branch at every division.
    return _cached(function, numba.njit(nogil=True, error_model="numpy"))


def _cached(function: F, njit: Any) -> F:
    compiled = njit(function)
    cache: Any = KernelCache
    compiled._cache = cache(function)
    compiled._cache._cache_file = KernelFiles.of(compiled)
    return cast(F, _for_any_number(compiled))


def _for_any_number(dispatcher: Any) -> Any:
    """A kernel that is compiled once for all numbers, not again for each that is in a call."""
    # numba types a literal 3 as Literal[3], and would compile the callee for each of them.
    template, plain = dispatcher.get_call_template, cast(Any, types.unliteral)

    def of_types(args: Any, kws: Any) -> Any:
        return template(tuple(map(plain, args)), {name: plain(of) for name, of in kws.items()})

    dispatcher.get_call_template = of_types
    return dispatcher


# ----------------------------------------------------------------------------------- large kernels


class _Whole(JITCodeLibrary):
    """Code of a lean kernel and of all that it calls.

    numba optimises twice, the first time to bring counts of references together so that it can
    prune them. Here there are none, and what this would leave is slow to optimise again.
    """

    def finalize(self) -> None:
        library: Any = self
        # Taken out, so that numba's own finalize does not link them a second time.
        waiting, library._linking_libraries = library._linking_libraries, []
        _link(library._final_module, waiting, library._reload_init, library._linking_libraries)
        plain: Any = super()
        plain.finalize()

    def _optimize_final_module(self) -> None:
        library: Any = self
        passes, builder = library._codegen._module_pass_manager()
        passes.run(library._final_module, builder)


class _Part(JITCodeLibrary):
    """Code of a kernel that only others call: it is linked and optimised with them, not here."""

    def finalize(self) -> None:
        library: Any = self
        external = numbas.codegen.ll.Linkage.external
        for function in library._final_module.functions:
            if not function.is_declaration and function.linkage == external:
                # The same function may come with several callers:
                # the linker keeps one of the copies.
                function.linkage = "linkonce_odr"
        library._finalized = True

    def _optimize_functions(self, module: Any) -> None:
        library: Any = self
        module.data_layout = library._codegen._data_layout

    def _get_module_for_linking(self) -> Any:
        """With all that it calls, for what is no lean kernel."""
        library: Any = self
        if library._shared_module is None:
            library._shared_module, others = library._final_module.clone(), list[Any]()
            _link(library._shared_module, library._linking_libraries, library._reload_init, others)
            for other in others:
                library._shared_module.link_in(other._get_module_for_linking(), preserve=True)
        return library._shared_module

    @property
    def codegen(self) -> Any:
        return _NoMachineCode


def _link(module: Any, libraries: list[Any], inits: set[Any], others: list[Any]) -> None:
    """Link parts into a module, and what they call; what else is to be linked is put in others.

    A part stands behind one that calls it: what nobody has asked for is not linked.
    """
    waiting, seen = list(libraries), set[Any]()
    while waiting:
        library = waiting.pop(0)
        # A part that several others call is linked once.
        if library in seen:
            continue
        seen.add(library)
        if isinstance(library, _Part):
            part: Any = library
            module.link_in(part._final_module, preserve=True)
            inits.update(part._reload_init)
            waiting += part._linking_libraries
        else:
            others.append(library)


class _NoMachineCode:
    """Stand-in for numba's code generator, where nothing of a kernel is run by itself."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


_UNUSED = (  # what lean kernels have none of: closures, contexts, literal loops, array expressions
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.NopythonRewrites,
    typed_passes.DumpParforDiagnostics,
)


class _WholeCompiler(Compiler):
    """numba's compiler with another way to optimise, without passes that lean kernels never use.

    After each pass numba looks up again where every variable lives.
    """

    code: Any = _Whole

    def define_pipelines(self) -> list[Any]:
        untyped: Any = DefaultPassBuilder, PassManager
        builder, manager = untyped
        lean, passes = manager("lean"), builder.define_nopython_pipeline(self.state).passes
        # Each entry is a pass and its name.
        lean.passes = [of for of in passes if of[0] not in _UNUSED]
        lean.finalize()
        return [lean]

    def compile_extra(self, func: Any) -> Any:
        state: Any = self.state
        code = self.code(state.targetctx.codegen(), func.__qualname__)
        code.enable_object_caching()
        state["library"] = code
        numbas: Any = super()
        return numbas.compile_extra(func)


class _PartCompiler(_WholeCompiler):
    """numba's compiler up to the intermediate representation."""

    code = _Part


def lean_kernel(function: F) -> F:
    """A kernel that counts no references to arrays: for those that pass many, and make none.

    Counting costs a locked instruction for every array at every call; here an array of a caller
    outlives the call, so that there is nothing to count. A lean kernel must not allocate.

    For other kernels it is a part like an inner kernel. Its way in from Python, which unpacks all
    arguments, is compiled when Python calls it.
    """
    part: Any = _part(function, forceinline=False)
    alone: Any = _cached(function, _lean(pipeline_class=_WholeCompiler, nogil=True))
    # Other kernels are linked with the part, whose machine code is optimised with theirs.
    alone.get_call_template, alone.get_overload = part.get_call_template, part.get_overload
    return cast(F, alone)


def inner_kernel(function: F) -> F:
    """A lean kernel that only other kernels call: it has no way in from Python.

    It is compiled with its callers. On its own it would be optimised as often as there are callers
    above it, and every way in would unpack all the arrays.
    """
    return _part(function, forceinline=False)


def inlined_kernel(function: F) -> F:
    """An inner kernel that becomes a part of its callers: for what is called all the time."""
    return _part(function, forceinline=True)


def _part(function: F, forceinline: bool) -> F:
    part = _lean(pipeline_class=_PartCompiler, no_cpython_wrapper=True, forceinline=forceinline)(
        function
    )
    setattr(part, PART, _stamp(part, _source(function.__code__.co_filename)))
    return cast(F, _for_any_number(part))


def _lean(**options: Any) -> Any:
    njit: Any = numba.njit
    return njit(error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)


# --------------------------------------------------------------------- large tuples, by reference


class Reference(types.Type):
    """A named tuple in memory that does not change: kernels pass a pointer to it.

    numba passes a tuple as all its members, an array as seven of them: a hundred arrays cost each
    function hundreds of arguments, in compilation first of all.
    """

    def __init__(self, fields: Any):
        self.fields = fields
        tuple_class = fields.instance_class
        # numba tells types apart by their names, and the fields' types in full are kilobytes long.
        digest = hashlib.sha256(f"{tuple_class.__module__} {fields}".encode()).hexdigest()[:12]
        super().__init__(f"{tuple_class.__name__}_{digest}")

    def member(self, name: str) -> tuple[int, Any]:
        """The place of a field, and its type: of a tuple within, if passed so, a reference."""
        i = self.fields.fields.index(name)
        field_type = self.fields[i]
        is_reference = getattr(field_type, "instance_class", None) in _BY_REFERENCE
        return i, Reference(field_type) if is_reference else field_type


_BY_REFERENCE = set[type]()
_UNCHANGED = "noalias", "readonly", "captures(none)"

C = TypeVar("C", bound=type)


def by_reference(cls: C) -> C:
    """A named tuple of which kernels get a reference; they read its fields, and make none."""
    _BY_REFERENCE.add(cls)

    @typeof_impl.register(cls)
    def type_of(value: Any, context: Any) -> Any:
        each = (typeof_impl(member, context) for member in value)
        # Within a tuple its members lie as they are: only the outermost one is passed as a pointer.
        inner = [of.fields if isinstance(of, Reference) else of for of in each]
        return Reference(numbas.types.BaseTuple.from_types(inner, cls))

    return cls


@numbas.datamodel.register_default(Reference)
class _ReferenceModel(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any):
        model: Any = super()
        model.__init__(dmm, fe_type, dmm.lookup(fe_type.fields).get_value_type().as_pointer())

    def from_argument(self, builder: Any, argument: Any) -> Any:
        """Tell LLVM that it may read the memory early: nobody writes to it meanwhile."""
        set.update(argument.attributes, _UNCHANGED)  # llvmlite knows but two of them
        target = numbas.registry.cpu_target.target_context
        argument.attributes.dereferenceable = target.get_abi_sizeof(argument.type.pointee)
        argument.attributes.align = target.get_abi_alignment(argument.type.pointee)
        return argument


@numbas.pythonapi.unbox(Reference)  # type: ignore[untyped-decorator]  # numba ships no types
def _put_in_memory(of: Any, value: Any, c: Any) -> Any:
    native = c.unbox(of.fields, value)
    # On the stack of the way in from Python, which outlives the call.
    there = numbas.cgutils.alloca_once_value(c.builder, native.value)

    def give_back() -> None:
        if native.cleanup is not None:
            native.cleanup()
        if c.context.enable_nrt:
            c.context.nrt.decref(c.builder, of.fields, native.value)

    return numbas.pythonapi.NativeValue(there, is_error=native.is_error, cleanup=give_back)


# numba ships no types: its class is Any for mypy, which is told so below
@numbas.typing.templates.infer_getattr
class _ReferenceFields(numbas.typing.templates.AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, of: Any, name: str) -> Any:
        return of.member(name)[1] if name in of.fields.fields else None


@numbas.imputils.lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]  # likewise
def _field(context: Any, builder: Any, of: Any, there: Any, name: str) -> Any:
    i, member = of.member(name)
    field = numbas.cgutils.gep_inbounds(builder, there, 0, i)
    if isinstance(member, Reference):
        return field
    return numbas.imputils.impl_ret_borrowed(context, builder, member, builder.load(field))


@numbas.rewrites.register_rewrite("before-inference")
class _AbsentFields(numbas.rewrites.Rewrite):  # type: ignore[misc]  # likewise
    """Fields that are None, as constants: numba prunes branches on ``x.field is None``.

    It does so before it infers types, for arguments alone; what is pruned is not compiled.
    """

    def __init__(self, state: Any):
        self.arguments = state.args

    def match(self, func_ir: Any, block: Any, typemap: Any, calltypes: Any) -> bool:
        self.func_ir, self.block = func_ir, block
        self.absent = [
            statement
            for statement in block.find_insts(numbas.ir.Assign)
            if isinstance(statement.value, numbas.ir.Expr)
            and isinstance(self._type_of(statement.target), types.NoneType)
        ]
        return bool(self.absent)

    def apply(self) -> Any:
        for statement in self.absent:
            statement.value = numbas.ir.Const(None, statement.loc)
            self.func_ir._definitions[statement.target.name] = [statement.value]
        return self.block

    def _type_of(self, variable: Any) -> Any:
        """Type of an argument, or of a field of one; None of all else."""
        find = numbas.ir_utils
        made = find.guard(find.get_definition, self.func_ir, variable)
        if isinstance(made, numbas.ir.Arg):
            return self.arguments[made.index]
        if isinstance(made, numbas.ir.Expr) and made.op == "getattr":
            owner = self._type_of(made.value)
            if isinstance(owner, Reference) and made.attr in owner.fields.fields:
                return owner.member(made.attr)[1]
        return None


def _reference_to(typing_context: Any, made: Any) -> Any:
    def put_in_memory(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return numbas.cgutils.alloca_once_value(builder, values[0])

    return Reference(made)(made), put_in_memory


referenced: Any = intrinsic(_reference_to)
"""A reference to a named tuple that a kernel has made, until it makes another one there."""


class Pinned:
    """A named tuple that is unpacked once, for lean kernels that are called all the time.

    Unpacking takes a microsecond for two or three arrays, at each call. ``opened(pinned)`` is the
    reference. Fields may not be replaced afterwards; what arrays hold may change.
    """

    def __init__(self, value: Any):
        self.value = value  # its arrays stay while their addresses are used
        self.fields, size, write = _layout(value)
        # Kept by this object: a kernel gets the bare address, and nothing else holds the memory.
        self.memory = np.zeros(size, dtype=np.uint8)
        self.address = self.memory.ctypes.data
        write(value, self.address)


def _layout(value: Any) -> tuple[Any, int, Any]:
    """The type of a named tuple, its size in memory, and what writes it: looked up by its members.

    numba needs milliseconds to find the type of a hundred arrays.
    """
    # Kinds of arrays, not their sizes, decide the layout: the same for every play of one kind.
    members = _members(value)
    if members not in _LAYOUTS:
        type_of: Any = numba.typeof  # has no type information
        fields = type_of(value).fields
        context = numbas.registry.cpu_target.target_context
        size = context.get_abi_sizeof(context.get_value_type(fields))
        _LAYOUTS[members] = fields, size, entry(_write, value, size)
    return _LAYOUTS[members]


def _members(value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value), *map(_members, value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.writeable, value.flags.c_contiguous
    return type(value)


_LAYOUTS = dict[Any, tuple[Any, int, Any]]()


class _PinnedType(types.Type):
    def __init__(self, fields: Any):
        self.fields = fields
        super().__init__(f"Pinned_{Reference(fields).name}")


@typeof_impl.register(Pinned)
def _type_of_pinned(value: Pinned, _: Any) -> _PinnedType:
    return _PinnedType(value.fields)


numbas.datamodel.register_default(_PinnedType)(_ReferenceModel)


@numbas.pythonapi.unbox(_PinnedType)  # type: ignore[untyped-decorator]  # numba ships no types
def _unbox_pinned(of: Any, value: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_ulonglong(number)
    c.pyapi.decref(number)
    pointer = c.context.get_value_type(of)
    return numbas.pythonapi.NativeValue(c.builder.inttoptr(address, pointer))


def entry(kernel: Any, *arguments: Any) -> Callable[..., Any]:
    """The machine code of a lean kernel for arguments of these types, which are not checked again.

    Looking at the type of a :class:`Pinned` takes longer than many a kernel.
    """
    # ``compile`` gives the way in of one signature, which skips the search for it at each call.
    code: Callable[..., Any] = kernel.compile(tuple(map(numba.typeof, arguments)))
    return code


def _opened(typing_context: Any, pinned: Any) -> Any:
    return Reference(pinned.fields)(pinned), lambda context, builder, sig, values: values[0]


def _copied(typing_context: Any, source: Any, to: Any, size: Any) -> Any:
    """Copy bytes; a reference stands for its address."""

    def copy(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = numbas.cgutils.voidptr_t
        pointers = [
            builder.bitcast(value, byte)
            if isinstance(of, Reference)
            else builder.inttoptr(value, byte)
            for of, value in zip(signature.args, values[:2])
        ]
        numbas.cgutils.raw_memcpy(builder, pointers[1], pointers[0], values[2], 1)
        return context.get_dummy_value()

    return types.none(source, to, size), copy


opened: Any = intrinsic(_opened)
copy_bytes: Any = intrinsic(_copied)
"""Copy so many bytes from one address to another: ``copy_bytes(source, to, size)``."""


def _size(typing_context: Any, reference: Any) -> Any:
    def size(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        of = context.get_value_type(reference.fields)
        return context.get_constant(types.intp, context.get_abi_sizeof(of))

    return types.intp(reference), size


size_of: Any = intrinsic(_size)


@lean_kernel
def _write(reference: Any, address: int) -> None:
    """Write the members of a named tuple to memory."""
    copy_bytes(reference, address, size_of(reference))


def on_compile(report: Callable[[str], None]) -> None:
    """Call ``report`` with a kernel's name whenever one is compiled rather than loaded."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            report(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            return

    listen: Callable[..., None] = event.register
    listen("numba:compile", Listener())
