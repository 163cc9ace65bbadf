"""numba's compiler, asked for LLVM IR and nothing else. With no_device.py and type_errors.py, all that knows numba's insides.

    kernel[grid, block]  -> launch_of  -> LaunchSpec
    dispatcher, args     -> argument_types -> numba types -> compile_kernel -> KernelIR

Works alike with numba-cuda and with numba's built-in `numba.cuda`, without a GPU, a driver or libNVVM. A second front end
has to supply the same three functions.

Glossary: dispatcher (what `@cuda.jit` returns), overload (one compiled signature of it), entry (the LLVM function of the
kernel: `i32 entry(ptr %.ret, flattened arguments...)`, it returns 0 or the code of a raised exception).
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import operator
import re
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType, MappingProxyType
from typing import Any

import numpy as np

from solcourse.errors import LaunchError, SolcourseError
from solcourse.simt.captured import Captured, captured_by, with_globals
from solcourse.simt.device_memory import allocation_at
from solcourse.simt.frozen import Frozen
from solcourse.simt.no_device import COMPUTE_CAPABILITY, DATA_LAYOUT, LOCK, dispatcher_module, front_end, without_device
from solcourse.simt.records import Source
from solcourse.simt.type_errors import is_learners, type_error

MAX_BLOCK_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED_LIMIT = 48 * 1024  # bytes per block, on every device; ptxas refuses more
SYNTAX = "kernel[blocks_per_grid, threads_per_block](arguments)"


@dataclass(frozen=True)
class KernelIR:
    """One kernel, compiled for one list of argument types.

    llvm         numba's unoptimised NVPTX LLVM IR, every linked device function in the same module
    entry        name of the kernel's function in it; parameters: %.ret, then one per flattened argument part
    parameters   LLVM types of the parameters after %.ret
    static_shared_bytes  declared, before any optimisation
    fingerprint  of the IR without names, paths and line numbers: equal kernels have equal fingerprints
    source_key   of the Python source, its constants, argument types and options: equal on both front ends, "" if unknown
    exceptions   status code -> (exception class, arguments, (function, file, line) or None) that the entry can return; a GPU
                 drops them unless the kernel was made with debug=True
    captured     allocations of device arrays the kernel took from the scope around it: pointer parameters after all others
    modules      the LLVM modules as numba wrote them, for NVIDIA's compiler
    annotation   numba's type annotation of the function
    """

    llvm: str = field(repr=False)
    entry: str
    name: str
    file: str
    first_line: int
    arg_names: tuple[str, ...]
    arg_types: tuple[Any, ...]
    fingerprint: str
    options: Mapping[str, Any]
    parameters: tuple[str, ...] = ()
    static_shared_bytes: int = 0
    source_key: str = ""
    exceptions: Mapping[int, tuple] = field(default_factory=dict, repr=False)
    captured: tuple[Captured, ...] = field(default=(), repr=False)
    modules: tuple[str, ...] = field(default=(), repr=False, compare=False)
    annotation: Any = field(default=None, repr=False, compare=False)

    @property
    def source(self) -> Source:
        """What another compiler needs of it."""
        options = {name: value for name, value in self.options.items() if name not in ("extensions", "link")}
        return Source(self.modules, self.entry, options, self.source_key)

    @property
    def is_cooperative(self) -> bool:
        """Whether it asks for the grid as a group: numba then launches it cooperatively."""
        return "@cudaCG" in self.llvm


class DeviceFunctionLaunched(LaunchError, RuntimeError):
    """A device function that was launched; numba raises RuntimeError for it."""


class WrongArguments(LaunchError, TypeError):
    """Too many or too few arguments, or of a kind that no kernel takes; numba raises TypeError for these."""


@dataclass(frozen=True)
class LaunchSpec:
    """A launch: dimensions as (x, y, z); `stream` is accepted and ignored, every launch is synchronous."""

    dispatcher: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream: Any = field(default=0, repr=False)  # the repr of a numba-cuda stream asks for the driver
    dynamic_shared_bytes: int = 0

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def looks_swapped(self) -> bool:
        """Less than a warp per block where the grid looks like a block size: `kernel[256, 3]` probably meant `[3, 256]`."""
        return self.threads_per_block < 32 and 64 <= self.blocks <= MAX_BLOCK_THREADS and self.blocks % 32 == 0


# ---------------------------------------------------------------------------------------------------------------- launches


def launch_of(configured: Any) -> LaunchSpec:
    """The launch that numba's `kernel[grid, block]` (or `kernel.forall(n)`) describes, checked against CUDA's own limits.

    Raises LaunchError: no [grid, block], or dimensions that no device accepts. The message names the values.
    """
    require_compiler()
    if hasattr(configured, "py_func"):
        name = configured.py_func.__name__
        hint = f"write {name}[blocks_per_grid, threads_per_block] where you wrote {name}"
        raise LaunchError(f"{name} was given without its launch dimensions; {hint}. The syntax is {SYNTAX}.")
    if hasattr(configured, "thread_per_block"):  # kernel.forall(n)
        threads = configured.thread_per_block or 256
        blocks = max(1, -(-configured.ntasks // threads))
        return launch_spec(configured.dispatcher, blocks, threads, configured.stream, configured.sharedmem)
    if not hasattr(configured, "griddim"):
        raise LaunchError(f"A launch is expected, {SYNTAX} without the arguments; got a {type(configured).__name__}.")
    return launch_spec(configured.dispatcher, configured.griddim, configured.blockdim, configured.stream, configured.sharedmem)


def launch_spec(dispatcher: Any, grid: Any, block: Any, stream: Any = 0, dynamic_shared_bytes: int = 0) -> LaunchSpec:
    """Checked LaunchSpec from integers or tuples of up to three. Raises LaunchError that names the values."""
    grid, block = _dimensions(grid, "grid"), _dimensions(block, "block")
    name = dispatcher.py_func.__name__
    if dispatcher.targetoptions.get("device"):
        code = dispatcher.py_func.__code__
        raise DeviceFunctionLaunched(
            f"Cannot compile a device function as a kernel: {name} has device=True, so kernels call it. To launch it, drop device=True.",
            file=code.co_filename,
            line=code.co_firstlineno,
        )
    where = f"{name}[{_short(grid)}, {_short(block)}]"
    swap = ""
    if _product(block) > MAX_BLOCK_THREADS >= _product(grid):
        swap = f" The first number is blocks, the second threads per block: did you mean {name}[{_short(block)}, {_short(grid)}]?"
    for limits, dims, what in ((MAX_GRID, grid, "grid"), (MAX_BLOCK, block, "block")):
        for axis, value, limit in zip("xyz", dims, limits, strict=True):
            if value < 1:
                raise LaunchError(f"{where}: the {what} has {axis} = {value}; every dimension must be at least 1.")
            if value > limit:
                raise LaunchError(f"{where}: the {what} has {axis} = {value:,}; CUDA's limit is {limit:,}.{swap}")
    if _product(block) > MAX_BLOCK_THREADS:
        sizes = " x ".join(str(v) for v in block if v != 1)
        raise LaunchError(f"{where}: {sizes} = {_product(block):,} threads per block; CUDA's limit is {MAX_BLOCK_THREADS}.{swap}")
    bounds = dispatcher.targetoptions.get("launch_bounds")
    most = bounds[0] if isinstance(bounds, tuple) else bounds
    if most and _product(block) > most:
        raise LaunchError(f"{where}: {_product(block):,} threads per block; the kernel's launch_bounds allow {most:,}.")
    if not _is_integer(dynamic_shared_bytes) or dynamic_shared_bytes < 0:
        raise LaunchError(f"{where}: dynamic shared memory is a number of bytes, 0 or more; got {dynamic_shared_bytes!r}.")
    return LaunchSpec(dispatcher, grid, block, stream, int(dynamic_shared_bytes))


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _dimensions(value: Any, what: str) -> tuple[int, int, int]:
    dims = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(dims) <= 3 or not all(_is_integer(v) for v in dims):
        raise LaunchError(f"The {what} is an integer or a tuple of 1 to 3 integers; got {value!r}.")
    x, y, z = (*(operator.index(v) for v in dims), 1, 1)[:3]
    return x, y, z


def _product(dims: tuple[int, int, int]) -> int:
    return dims[0] * dims[1] * dims[2]


def _short(dims: tuple[int, int, int]) -> int | tuple[int, ...]:
    """(16, 1, 1) as the learner writes it: 16."""
    trimmed = dims if dims[2] != 1 else dims[:2] if dims[1] != 1 else dims[:1]
    return trimmed[0] if len(trimmed) == 1 else trimmed


# --------------------------------------------------------------------------------------------------------------- arguments


def argument_types(dispatcher: Any, args: tuple) -> tuple[Any, ...]:
    """numba types that a launch with these arguments is compiled for, as numba infers or (eager signatures) selects them.

    Raises LaunchError: wrong number of arguments, or a value that no kernel can take.
    """
    require_compiler()
    names, variadic = argument_names(dispatcher)
    if len(args) != len(names) and not variadic:
        kernel = f"{dispatcher.py_func.__name__}({', '.join(names)})"
        raise WrongArguments(f"{kernel} takes {len(names)} argument{'s' * (len(names) != 1)}, {len(args)} given.{_defaults(dispatcher)}")
    for i, value in enumerate(args):
        if not dispatcher.targetoptions.get("extensions"):  # which take what they like
            _refuse_hopeless(names[i] if i < len(names) else f"argument {i}", value)
    if not dispatcher._can_compile:
        return _select_overload(dispatcher, args)
    types = []
    for i, value in enumerate(args):
        try:
            types.append(dispatcher.typeof_pyval(value))
        except Exception as error:  # numba raises several unrelated classes here
            name = names[i] if i < len(names) else f"argument {i}"
            what = _article(type(value).__name__)
            cure = f" Pass what the kernel needs of {name} as arguments of their own."
            raise WrongArguments(f"Argument {name!r} is {what}, which kernels cannot take. {_ACCEPTED}{cure}") from error
    return tuple(types)


_ACCEPTED = "They take NumPy arrays, device arrays, numbers, records, and tuples of these."


def argument_names(dispatcher: Any) -> tuple[tuple[str, ...], bool]:
    """(names, whether the kernel ends in *args)."""
    parameters = inspect.signature(dispatcher.py_func).parameters.values()
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return tuple(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL), variadic


def normalized(signature: Any) -> tuple[Any, ...]:
    """Argument types of an eager signature: a string, a tuple of types, or `void(...)`."""
    types, _ = dispatcher_module().sigutils.normalize_signature(signature)
    return tuple(types)


def void_signature(arg_types: tuple) -> Any:
    """numba's signature object of a kernel."""
    module = dispatcher_module()
    return module.typing.signature(module.types.void, *arg_types)


def _refuse_hopeless(name: str, value: Any) -> None:
    """Values that numba types but cannot pass, or refuses obscurely."""
    what, cure = type(value).__name__, ""
    dtype = getattr(value, "dtype", None)
    if value is None or isinstance(value, (dict, set, str, bytes)):
        what = "None" if value is None else what
    elif isinstance(value, list):
        cure = f" Try np.asarray({name})."
    elif hasattr(value, "to_numpy"):
        cure = " Try .to_numpy()."
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        what = "an integer of more than 64 bits"
    elif getattr(dtype, "hasobject", False):
        what, cure = "an array of Python objects (dtype=object)", f" Try {name}.astype(np.float64)."
    elif isinstance(value, type) or inspect.isfunction(value) or hasattr(value, "py_func"):
        cure = f" Kernels find types and @cuda.jit(device=True) functions by name: make {name} a global or a closure variable."
    elif trouble := isinstance(dtype, np.dtype) and _dtype_trouble(name, dtype):
        what, cure = f"an array of dtype {dtype.str if dtype.names is None else dtype}", trouble
    elif _is_elsewhere(value):
        what, cure = f"{what} in a real GPU's memory", " Copy it to the host first."
    else:
        return
    raise WrongArguments(f"Argument {name!r} is {_article(what)}, which kernels cannot take here. {_ACCEPTED}{cure}")


def _dtype_trouble(name: str, dtype: np.dtype) -> str:
    """Why no kernel takes arrays of this dtype, and the way out; '' if nothing is wrong with it."""
    if dtype.subdtype or dtype.names:
        members = [dtype.base] if dtype.subdtype else [member for member, *_ in dtype.fields.values()]  # type: ignore[union-attr]
        trouble = next(filter(None, (_dtype_trouble(name, member) for member in members)), "")
        return re.sub(r"\.astype\('.*'\)", f".astype({name}.dtype.newbyteorder('='))", trouble)
    if not dtype.isnative:
        native = dtype.newbyteorder("=").str[1:]
        return f" Its bytes are in the other order ({dtype.str} is {'big' if dtype.str[0] == '>' else 'little'}-endian): {name}.astype('{native}')."
    if dtype.kind == "V":
        return f" Its bytes have no type: {name}.view(dtype) says which, for example np.int32."
    if dtype in (np.longdouble, np.clongdouble) and dtype.itemsize > np.dtype(np.double).itemsize * (1 + (dtype.kind == "c")):
        return f" GPUs have no floating-point numbers of more than 64 bits: {name}.astype(np.{'complex128' if dtype.kind == 'c' else 'float64'})."
    return ""


def _defaults(dispatcher: Any) -> str:
    """What a learner may have expected of a parameter that has a default, or a keyword."""
    parameters = inspect.signature(dispatcher.py_func).parameters.values()
    optional = [p.name for p in parameters if p.default is not p.empty or p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    return f" Kernels have no default and no keyword arguments: pass {', '.join(optional)} too, by position." if optional else ""


def _is_elsewhere(value: Any) -> bool:
    """Whether an array's memory is a real GPU's."""
    if hasattr(value, "engine_owner") or hasattr(value, "__array_interface__") or not hasattr(value, "__cuda_array_interface__"):
        return False
    interface = value.__cuda_array_interface__
    return 0 not in interface["shape"] and allocation_at(interface["data"][0]) is None


def _article(what: str) -> str:
    return what if what == "None" or what.startswith("an ") else f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def _select_overload(dispatcher: Any, args: tuple) -> tuple[Any, ...]:
    """Eager signatures: numba's own C dispatcher chooses, conversions included."""
    overloads = list(dispatcher.overloads.values())
    if dispatcher.specialized or len(overloads) == 1:
        return tuple(overloads[0].argument_types)
    module = dispatcher_module()
    extra = {}
    if hasattr(module, "_LAUNCH_CONFIG_KW"):
        extra = {module._LAUNCH_CONFIG_KW: None}
    try:
        kernel = module._dispatcher.Dispatcher._cuda_call(dispatcher, *args, **extra)
    except TypeError as error:
        raise WrongArguments(f"{dispatcher.py_func.__name__}: {error}") from error
    return tuple(kernel.argument_types)


# ------------------------------------------------------------------------------------------------------------- compilation


_KERNELS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # dispatcher -> {(types, options): (KernelIR, Frozen)}


def compile_kernel(dispatcher: Any, arg_types: tuple) -> KernelIR:
    """Compile a kernel for argument types; cached in memory for as long as the dispatcher lives.

    As on the GPU, global constants are frozen at the first compilation; a number that has changed since is warned of, once.

    Raises KernelTypeError (numba's message, trimmed, with the learner's line), LaunchError (shared arrays above 48 KiB),
    SolcourseError (NUMBA_ENABLE_CUDASIM).
    """
    require_compiler()
    options = _options(dispatcher)
    key = (tuple(arg_types), tuple(sorted((k, repr(v)) for k, v in options.items())))
    with LOCK:
        kernels = _KERNELS.setdefault(dispatcher, {})
        if key not in kernels:
            kernels[key] = _compile(dispatcher, tuple(arg_types), options), Frozen(dispatcher.py_func)
        kernel, numbers = kernels[key]
        numbers.check()
        return kernel


def require_compiler() -> None:
    """Raises SolcourseError where numba's CUDA simulator has replaced its compiler."""
    if importlib.import_module("numba.core.config").ENABLE_CUDASIM:
        raise SolcourseError(
            "NUMBA_ENABLE_CUDASIM is set, so numba.cuda is numba's own (slow) simulator and has no compiler. "
            "Unset the variable NUMBA_ENABLE_CUDASIM (or cuda_sim in .numba_config.yaml) and restart Python; solcourse needs no GPU either."
        )


def _options(dispatcher: Any) -> Mapping[str, Any]:
    """The dispatcher's options that matter to code, and its argument extensions."""
    given = dispatcher.targetoptions
    names = ("debug", "fastmath", "opt", "inline", "forceinline", "max_registers", "launch_bounds", "link", "extensions")
    return MappingProxyType({name: given[name] for name in names if given.get(name) not in (None, [], ())})


def _compile(dispatcher: Any, arg_types: tuple, options: Mapping[str, Any]) -> KernelIR:
    from numba.cuda.compiler import compile_cuda

    debug, fastmath = bool(options.get("debug")), options.get("fastmath", False)
    flags: dict[str, Any] = {
        "debug": debug,
        "lineinfo": True,
        "fastmath": fastmath,
        "nvvm_options": {"fastmath": fastmath, "opt": 3 if options.get("opt", True) else 0},
        "cc": COMPUTE_CAPABILITY,
    }
    if front_end() == "numba-cuda":
        flags |= {"forceinline": options.get("forceinline", False), "max_registers": options.get("max_registers")}
    else:
        flags |= {"inline": options.get("inline", False) is True}
    function, (names, _) = dispatcher.py_func, argument_names(dispatcher)
    if inspect.isgeneratorfunction(function):
        raise type_error(TypeError("a kernel cannot be a generator (it contains yield)"), function, names, arg_types)
    with without_device(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Could not find source for function")  # numba's own lambdas have none
        warnings.filterwarnings("ignore", message=r"Context\.call_conv is deprecated")  # numba-cuda's own use, in recursion
        try:
            from numba.core import types

            try:
                result = compile_cuda(function, types.void, arg_types, **flags)
            except ZeroDivisionError:  # numba cannot describe a tuple of empty tuples to a debugger: without line numbers, then
                result = compile_cuda(function, types.void, arg_types, **flags | {"lineinfo": False})
            modules = list(result.library.llvm_strs)
        except Warning:  # the caller made warnings errors: not the kernel's fault
            raise
        except Exception as error:  # typing, lowering, and numba's own assertions: all mean "cannot compile this"
            raise type_error(error, function, names, arg_types) from None  # numba stays in __context__; its traceback helps no learner
    for what, code in _REFUSED:
        if place := _place_in(modules, code):
            raise type_error(TypeError(f"{what}\n{place}"), function, names, arg_types)
    entry = result.fndesc.llvm_func_name
    captured = captured_by(getattr(result.library, "referenced_objects", {}).values(), function)
    llvm, parameters, static_shared_bytes = _link([with_globals(text, captured) for text in modules], entry)
    code = function.__code__
    if static_shared_bytes > STATIC_SHARED_LIMIT:
        raise LaunchError(
            f"{function.__name__} declares {static_shared_bytes:,} bytes of shared arrays per block; CUDA's limit for arrays of fixed "
            f"size is {STATIC_SHARED_LIMIT:,} (48 KiB). Use smaller tiles.",
            file=code.co_filename,
            line=code.co_firstlineno,
        )
    return KernelIR(
        llvm=llvm,
        entry=entry,
        name=function.__name__,
        file=code.co_filename,
        first_line=code.co_firstlineno,
        arg_names=names,
        arg_types=arg_types,
        fingerprint=_fingerprint(llvm, entry, options),
        options=options,
        parameters=(*parameters, *("ptr" for _ in captured)),
        static_shared_bytes=static_shared_bytes,
        source_key=_source_key(dispatcher, arg_types, options),
        exceptions=_exceptions(result.call_helper),
        captured=captured,
        modules=tuple(modules),
        annotation=result.type_annotation,
    )


_REFUSED = (  # IR that numba makes and no GPU runs: (what it is, pattern in the IR)
    ("a shared or local array of negative size", re.compile(r"\[-\d+ x .*?!dbg !(\d+)")),
    ("Python's random numbers: numba_get_random_state", re.compile(r"call .*@\"?numba_get_\w+_random_state.*?!dbg !(\d+)")),
)


def _place_in(modules: list[str], code: re.Pattern) -> str:
    """Where the first instruction like `code` comes from, or the call that led there from the learner's file; '' if there is none."""
    text = "\n".join(modules)
    found = code.search(text)
    for _ in range(8):
        if found is None:
            break
        place = _metadata(text, found[1])
        file = _metadata(text, _metadata(text, place.get("scope", "")).get("file", ""))
        path = f"{file.get('directory')}/{file.get('filename')}"
        if file and is_learners(path):
            return f'File "{path}", line {place["line"]}'
        inside = re.findall(r'^define .*?@("[^"]+"|[\w.$]+)\(', text[: found.start()], re.MULTILINE)[-1]
        found = re.search(rf"call .*?@{re.escape(inside)}\(.*?!dbg !(\d+)", text)
    return "" if code.search(text) is None else "somewhere in the kernel"


def _metadata(text: str, number: str) -> dict[str, str]:
    """The members of debug information !number in the IR."""
    found = re.search(rf"^!{number} = .*$", text, re.MULTILINE) if number else None
    return dict(re.findall(r'(\w+): !?"?([^",)]*)', found[0])) if found else {}


def ptx(dispatcher: Any, arg_types: tuple, compute_capability: tuple[int, int]) -> str:
    """What NVIDIA's compiler makes of the kernel; it needs no GPU. Raises SolcourseError where it is not installed."""
    options = _options(dispatcher)
    chosen = {name: options[name] for name in ("debug", "fastmath", "opt", "forceinline", "launch_bounds") if name in options}
    lineinfo = bool(dispatcher.targetoptions.get("lineinfo"))
    try:
        importlib.import_module("numba.cuda.cudadrv.nvvm").NVVM()
    except Exception as error:  # the loader has an error of its own for each way of not finding it
        raise SolcourseError(
            "PTX is made by NVIDIA's compiler NVVM, which is not installed: pip install 'numba-cuda[cu13]' (it needs no GPU)."
        ) from error
    compile_ptx = importlib.import_module("numba.cuda.compiler").compile_ptx
    return compile_ptx(dispatcher.py_func, arg_types, lineinfo=lineinfo, cc=compute_capability, **chosen)[0]


def _link(modules: list[str], entry: str) -> tuple[str, tuple[str, ...], int]:
    """One module of several (numba keeps one per device function), the entry's LLVM parameter types, bytes of static shared memory."""
    import llvmlite.binding as llvm

    first, *rest = [llvm.parse_assembly(text) for text in modules]
    for module in rest:
        first.link_in(module)
    arguments = list(first.get_function(entry).arguments)
    for argument in arguments:  # built-in numba.cuda says arg.x.4 where numba-cuda says x.4
        argument.name = argument.name.removeprefix("arg.")
    parameters = [str(argument.type) for argument in arguments]
    data = llvm.create_target_data(DATA_LAYOUT)
    shared = [v for v in first.global_variables if "addrspace(3)" in str(v.type) or "addrspace(3)" in str(v).split("global")[0]]
    return str(first), tuple(parameters[1:]), sum(data.get_abi_size(v.global_value_type) for v in shared)


def _exceptions(call_helper: Any) -> Mapping[int, tuple]:
    known = getattr(call_helper, "exceptions", None) or {}
    return MappingProxyType({code: (kind, values or (), place) for code, (kind, values, place) in known.items()})


# numba's unique number inside mangled names: B2v7 -> B2v; environment and file names never reach the code
_UNIQUE = re.compile(r"B\d+v\d+")
_DEBUG = re.compile(r",? ?!dbg !\d+|^source_filename.*$|^; .*$|^!.*$|^@_ZN08NumbaEnv.*$", re.MULTILINE)
_ARRAY = re.compile(r"_cudapy_[sl]mem_\d+")


def _fingerprint(llvm: str, entry: str, options: Mapping[str, Any]) -> str:
    text = _DEBUG.sub("", _UNIQUE.sub("Bv", llvm.replace(entry, "entry")))
    numbers: dict[str, str] = {}  # numba counts shared and local arrays per process
    text = _ARRAY.sub(lambda m: numbers.setdefault(m[0], f"array_{len(numbers)}"), text)
    settings = {k: v for k, v in options.items() if k not in ("extensions", "link")}
    return hashlib.sha256(f"{sorted(settings.items())}{text}".encode()).hexdigest()[:32]


def _source_key(dispatcher: Any, arg_types: tuple, options: Mapping[str, Any]) -> str:
    """Hash of what a reader of the source would call the same kernel; '' when a captured value has no stable text."""
    try:
        parts = _source_parts(dispatcher.py_func, set())
    except (OSError, TypeError, ValueError):
        return ""
    settings = sorted((k, v) for k, v in options.items() if k not in ("extensions", "link", "inline", "forceinline"))
    return hashlib.sha256(repr((parts, [str(t) for t in arg_types], settings)).encode()).hexdigest()[:32]


def _global_names(code: CodeType) -> set[str]:
    """The names that code reads as globals, inner functions included. Those of attributes, `x` in threadIdx.x, are none of them."""
    import dis

    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*map(_global_names, inner))


def _source_parts(function: Any, seen: set) -> list:
    """The function's syntax tree and the values of the names it takes from outside, device functions included."""
    import ast
    import textwrap
    from types import ModuleType

    if function in seen:
        return []
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    tree.decorator_list = []  # type: ignore[attr-defined]
    parts: list = [ast.dump(tree)]
    taken = {name: function.__globals__[name] for name in _global_names(function.__code__) if name in function.__globals__}
    for name, value in sorted({**taken, **inspect.getclosurevars(function).nonlocals}.items()):
        inner = getattr(value, "py_func", None)
        if inner is not None:
            parts.append((name, _source_parts(inner, seen)))
        elif isinstance(value, (ModuleType, type)) or callable(value):
            parts.append((name, getattr(value, "__name__", str(value))))
        elif hasattr(value, "tobytes"):
            parts.append((name, str(value.dtype), value.shape, value.tobytes()))
        elif isinstance(value, (bool, int, float, complex, str, tuple, frozenset)):
            parts.append((name, repr(value)))
        else:
            raise ValueError(name)
    return parts
