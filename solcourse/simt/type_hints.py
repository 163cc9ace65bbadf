"""What to write instead: one row for each way in which numba refuses a kernel. type_errors.py says where."""

from __future__ import annotations

import builtins
import difflib
import importlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """said: pattern in numba's message; at: pattern in the source line; hint: what to try, {1} the first group of `said`;
    alone: numba's own words are about its insides, and left out."""

    said: str
    at: str
    hint: str
    alone: bool = False


_REDUCTIONS = "sum|prod|min|max|mean|std|var|any|all|dot|argmin|argmax|cumsum|sort|argsort|norm|nansum|median"
_MAKERS = "zeros|ones|empty|full|array|asarray|arange|linspace|zeros_like|ones_like|empty_like|eye|copy|astype|stack|concatenate"
_UFUNCS = "i?add|i?sub|i?mul|i?truediv|i?floordiv|i?mod|i?pow|neg|pos|invert|eq|ne|lt|le|gt|ge|and_|or_|not_|contains|abs"

_ARRAYS = (
    "A kernel cannot make arrays in this way. cuda.local.array(shape, dtype) is an array of each thread, cuda.shared.array(shape, dtype) "
    "one of the block, both of constant shape; anything larger is made outside and passed as an argument."
)
_WHOLE = (
    "This computes with a whole array. A kernel computes with numbers, one element per thread: x[i], or x[i, j] where x has two dimensions."
)
_VALUE = "The value is a whole array, and the element takes a number: give it an index."
_REDUCE = (
    "A function of a whole array: each thread of a kernel would compute all of it, and many do not compile. Loop over the elements, or "
    "let every thread add its own with cuda.atomic.add; on the host, call NumPy."
)
_STRINGS = "Kernels cannot make strings. print takes constant texts and numbers, separated by commas: print('i =', i, 'x =', x[i])."
_MESSAGE = (
    "The arguments of an exception must be constants in a kernel: raise ValueError('negative value'), without variables and f-strings."
)
_LISTS = "Kernels have no lists; use cuda.local.array or cuda.shared.array."
_DICTS = "Kernels have no dictionaries; pass arrays: one of the keys, one of the values, or one that the key indexes."
_SETS = "Kernels have no sets; use an array of flags, such as cuda.local.array(n, numba.boolean)."
_OBJECTS = (
    "Kernels know numbers, arrays, tuples, records and functions made with @cuda.jit(device=True), but no other Python objects: "
    "take the numbers and arrays out of it first, outside the kernel."
)
_ATOMIC = "The arguments are array, index, value: cuda.atomic.add(x, i, 1), with a tuple (i, j) as the index of a 2-D array."
_RANDOM = (
    "Kernels draw with numba.cuda.random: states = create_xoroshiro128p_states(n, seed=1) outside, "
    "xoroshiro128p_uniform_float32(states, i) inside."
)
_HOST = "That is a function of the host: call it outside the kernel, and pass the array."

ROWS = (  # the first that fits wins
    # strings and printing
    Row(r"str\(|Literal\[str\]|'format'|getattr|unicode", r"\b(raise|assert)\b", _MESSAGE, alone=True),
    Row(r"return_dynamic_user_exc", "", _MESSAGE, alone=True),
    Row(r">>> (str|mod|add|repr|format)\(|'(format|join|upper|lower)' of type|format_map|getattr.*unicode", r"['\"]|str\(|repr\(", _STRINGS, alone=True),
    Row(r"f-strings not supported", "", _STRINGS, alone=True),
    Row(r">>> setitem\(array\(.*, (Literal\[str\]|unicode)", "", "The value is a text, and the array holds numbers."),
    Row(r"print\(\) function implementation does not support keyword", "", "print takes positional arguments only in a kernel, and ends the line."),
    Row(r"printing unimplemented", "", "print one element at a time: print(x[i])."),
    Row(r">>> (int|float)\((Literal\[str\]|unicode)|Casting unicode_type", "",
        "Kernels cannot read numbers from texts: write the number, or math.nan, math.inf; or convert outside."),
    # statements
    Row(r"set_try_status|exception_match", "", "Kernels cannot catch exceptions: try, except and finally do not exist there. Test the value before with if.", alone=True),
    Row(r"with \(context manager\)|SETUP_WITH|BEFORE_WITH", "", "Kernels have no with statement: open files and contexts outside."),
    Row(r"yield in a closure", "", "Kernels have no generator expressions: write a for loop."),
    Row(r"kernel cannot be a generator", "", "Write the values into an array argument."),
    Row(r"IMPORT_NAME", "", "Move the import out of the kernel, to the top of the file."),
    Row(r"STORE_GLOBAL|DELETE_GLOBAL", "", "Kernels cannot assign to global variables: write into an array argument."),
    Row(r"UNPACK_EX", "", "Kernels have no starred assignment: take the members by their numbers, t[0], t[1:]."),
    Row(r"unsupported opcode \((\w+)\)", "", "numba.cuda does not compile this statement (its bytecode is {1}); write it with simpler ones."),
    Row(r"Illegal IR, del found", "", "Leave out the del: a kernel's variables end by themselves."),
    Row(r"cell variable", "", "A function inside a kernel cannot call itself, and cannot be changed or share variables that change later: "
        "make it a function outside, with @cuda.jit(device=True)."),
    Row(r"insert_unresolved_ref", "", "numba.cuda compiles a function that calls itself only with the argument types it was called with (the literal 0 is a "
        "type of its own: pass a variable), and not functions that call each other."),
    Row(r"re-entrant", "", "A kernel cannot call itself: put the work into a function made with @cuda.jit(device=True), or write a loop.", alone=True),
    Row(r"runaway recursion", "", "A function that calls itself needs a return before the call, with a value: if n == 0: return 0."),
    Row(r"No conversion from .* to none", r"return|yield", "A kernel cannot return a value: write the result into an array argument."),
    Row(r"Type of variable .* cannot be determined", r":=", "numba.cuda does not type this :=; assign on a line of its own.", alone=True),
    # shared and local arrays
    Row(r"array\(list", r"(shared|local)\.array", "The shape is a number or a tuple: cuda.shared.array((16, 16), float32), not a list."),
    Row(r">>> array\(.*<class '(float|int|bool|complex)'>", r"(shared|local)\.array",
        "The dtype is a type of numba or NumPy: numba.float32, numba.int32, np.float64 ...; Python's {1} says no size."),
    Row(r">>> array\((float\d|Tuple\([^)]*float)", r"(shared|local)\.array", "The size of an array is an integer: n // 2, not n / 2."),
    Row(r"negative size", "", "Give it at least one element; or 0, for dynamic shared memory."),
    Row(r"required argument: 'dtype'", "", "Write cuda.shared.array(shape, dtype), for example cuda.shared.array(32, numba.float32)."),
    Row(r"array\(.*int\d+.*class", r"(shared|local)\.array", "The size of a shared or local array must be a compile-time constant: a literal, "
        "a global or a closure variable (give an expression such as N + 2 a name outside the kernel); or 0, for dynamic shared memory."),
    # numba.cuda's own functions
    Row(r"RequireLiteral|argument can only be|grid\(\) missing|gridsize\(\) missing|function takes 1 argument", r"\.grid(size)?\(",
        "cuda.grid and cuda.gridsize take the number of dimensions as a literal: 1, 2 or 3."),
    Row(r"failed to unpack u?int", r"\.grid(size)?\(", "cuda.grid(1) is one number: i = cuda.grid(1); two are x, y = cuda.grid(2)."),
    Row(r"failed to unpack (\w+)", "", "{1} is one number; there is nothing to unpack."),
    Row(r"wrong tuple length.*expected (\d+), got (\d+)", "", "There are {1} names for {2} values: an array's shape has one number for each of its dimensions."),
    Row(r"Dim3", r"threadIdx|blockIdx|blockDim|gridDim|\w\[", "threadIdx, blockIdx, blockDim and gridDim have members .x, .y, .z, which are the numbers."),
    Row(r"not enough values to unpack|arguments? types? given|(missing|takes) .*argument", r"atomic\.", _ATOMIC),
    Row(r"Cannot cast (Uni)?Tuple|indexing (\d)-D array with", r"atomic\.", _ATOMIC),
    Row(r"(missing|takes) .*argument|argument types given", r"(shfl|vote|ballot|match|all|any|eq)\w*_sync|syncwarp",
        "The warp functions take the mask of lanes first: cuda.shfl_sync(0xffffffff, value, lane), cuda.ballot_sync(0xffffffff, test)."),
    Row(r"'(to_device|device_array|device_array_like|pinned_array|mapped_array|managed_array|copy_to_host|synchronize|stream|event|"
        r"as_cuda_array|get_current_device|current_context|select_device)' of type", "", _HOST),
    Row(r"getitem\(type\(CUDADispatcher", "", "A kernel cannot launch a kernel: launch both from the host, or make the inner one @cuda.jit(device=True) and "
        "call it without [grid, block].", alone=True),
    # functions
    Row(r"get_function_type|argument types given|>>> sorted", r"\b(map|filter|sorted)\(", "Kernels have no map, filter and sorted: write a for loop.", alone=True),
    Row(r"numpy\.linalg|scipy", "", _REDUCE, alone=True),
    Row(r"numpy\.random|<module 'random'|'random'|random_state", "", _RANDOM),
    Row(r"argument types? given|No implementation|Untyped global|maximum recursion", r"(?<!cuda\.)\brandom\.\w+\(", _RANDOM),
    Row(r"Cannot determine Numba type of <class 'function'>", "", "Functions called by a kernel need @cuda.jit(device=True)."),
    Row(r"name '(dict|DictType)'|DictType|class 'dict'|build_map", "", _DICTS),
    Row(r"build_list|NRT required", r"\{.*:.*\}", _DICTS, alone=True),
    Row(r"name 'set'|build_set|\bSet\(|class 'set'|reflected set", "", _SETS, alone=True),
    Row(r"name 'reversed'", "", "Kernels have no reversed: range(n - 1, -1, -1) counts down."),
    Row(r"OverloadSelector.*List", "", "Kernels cannot read a global list: make it an array outside the kernel, G = np.array(G), or a tuple.", alone=True),
    Row(r"Untyped global name '(\w+)': Cannot determine Numba type of <class 'builtin_function_or_method'>", "", "{1} is a function of Python that kernels do not have."),
    Row(r"Untyped global name '(\w+)': Cannot determine Numba type of <class 'type'>", "", "{1} is a class. " + _OBJECTS),
    Row(r"Untyped global name '\w+': Cannot determine Numba type of <class", "", _OBJECTS),
    Row(r">>> where\(|numpy\.where", "", "On elements, write: a if test else b."),
    Row(r"_ol_array_allocate|_allocate|argument types given|NRT required", rf"(?<!shared)(?<!local)\.({_MAKERS})\(", _ARRAYS, alone=True),
    Row(rf">>> ({_MAKERS})\(", rf"(?<!shared)(?<!local)\.({_MAKERS})\(", _ARRAYS),
    Row(rf">>> ({_REDUCTIONS})\(|'({_REDUCTIONS})' of type|unsupported NumPy function|scipy 0.16", rf"\b({_REDUCTIONS})\(", _REDUCE),
    Row(r"argument types given", rf"\b({_REDUCTIONS})\(", _REDUCE, alone=True),
    Row(r">>> i?matmul\(|<built-in function i?matmul>|returning of array passed", "@", "A kernel has no @: each thread computes one element of the product with a loop over k.", alone=True),
    Row(r"clip|argument types given", r"clip\(", "Write min(max(x, low), high)."),
    Row(r"unsupported NumPy function", "", "Of NumPy's functions kernels have those of numbers (np.sqrt, np.sin ...); write the rest as expressions of elements."),
    Row(r"Cannot bind|argument types given", "", "The call's arguments are not those of the function's def line; count them there."),
    # lists, tuples, records
    Row(r"NRT required|No implementation of.*setitem\(.*slice", r"\[[^\]]*:[^\]]*\]\s*=", "Kernels cannot copy slices: copy the elements, x[i] = y[i].", alone=True),
    Row(r"_ol_array_allocate|_allocate|<ufunc", "", _WHOLE, alone=True),
    Row(r"build_list|NRT required|of type list|ListType|reflected list", "", _LISTS, alone=True),
    Row(r"index type list|getitem.*list\(|setitem.*list\(", "", "Kernels index with numbers; take the elements of a list of indices in a loop."),
    Row(r">>> [gs]etitem\(.*readonly|readonly array", "", "The array is read-only (array.flags.writeable is False), or a global, which is a constant in a kernel: "
        "pass it as an argument to write to it."),
    Row(r">>> getitem\((Tuple\(.*\)), u?int", "", "The members of this tuple have different types, so the index must be a literal: t[0], t[1]."),
    Row(r">>> setitem\((Uni)?Tuple", "", "Tuples cannot be changed; use cuda.local.array."),
    Row(r"is not aligned", "", "A field does not lie on a multiple of its size, where a GPU cannot read it: make the dtype with np.dtype(..., align=True)."),
    Row(r"Cannot resolve setattr", "", "Arrays and numbers have no attributes that a kernel can set; write to elements: x[i] = ..."),
    Row(r">>> [sg]etitem\(.*, none\)", "", "The value is None, which is no number."),
    Row(r"'(append|extend|insert|pop|remove|resize)' of type", "", "An array's size is fixed: write to elements, x[i] = ..., and keep a count of your own."),
    Row(r">>> setitem\(array\((float|u?int)\d*[^)]*\), .*, complex\d+\)", "", "A complex number does not fit; write its .real or .imag."),
    Row(r">>> setitem\(array\([^)]*\), .*, array\(", "", _VALUE),
    Row(r"with (\d+) indices: UniTuple\(int64 x (\d+)\)", r"\[\w+\]",
        "There are {1} indices in one variable, for an array of fewer dimensions. cuda.grid(2) is a pair: x, y = cuda.grid(2)."),
    Row(r"cannot index array", "", "There are more indices than the array has dimensions."),
    Row(r"Unsupported array index type float", "", "An index must be an integer: // divides integers, int(...) converts."),
    Row(r"[sg]etitem\((int|float|complex|bool)", "", "A number was passed where the kernel indexes an array."),
    Row(r"getitem\(Function\(", "", "A function is called with ( ), not indexed with [ ]."),
    Row(r"Invalid use of array\(", "", "Arrays are indexed with [ ]; ( ) calls a function."),
    Row(r"as a callable", "", "Only functions can be called; this is a number or an array of that name."),
    # numbers
    Row(r"Int value is too large|int too (large|big)", "", "Integers in a kernel have at most 64 bits."),
    Row(r"Cannot unify", "", "One variable holds two types; give it one, for example np.float32(0)."),
    Row(r">>> (i?xor|i?and_|i?or_|i?lshift|i?rshift)\((?=.*float).*", "", "&, |, ^, << and >> take integers. Powers are written x ** 2; logic is and, or, not."),
    Row(r">>> range\(array", "", "range takes a number: range(x.size), range(x.shape[0])."),
    Row(r">>> len\((float|u?int)", "", "A number has no length; an array does: len(x), x.shape."),
    Row(rf">>> ({_UFUNCS})\(.*array\(|>>> bool\(array", "", _WHOLE, alone=True),
    Row(r">>> \w+\(.*array\(", r"\b(math|np|numpy|libdevice)\.", _WHOLE),
    Row(r"CUDA(CallConv|TargetContext|Context)' object has no attribute|OverloadSelector|NoneType' object", "",
        "numba.cuda has no code for this; write it with numbers, arrays and loops.", alone=True),
)  # fmt: skip


def hint_for(text: str, source: str, function: Any, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """(what to try or '', whether it stands in place of numba's words) for numba's message and the line it is about."""
    if gone := re.search(r"module 'numpy' has no attribute '(float|int|bool|complex|object|str)'", text):
        return f"NumPy has no np.{gone[1]} any more; write the size: np.float32, np.int32, or numba's types.", True
    known = _near_name(text, function) or _near_attribute(text, source, function) or _missing_field(text, source, arguments)
    if known:
        return known, False
    for said, at, hint, alone in ROWS:
        found = re.search(said, text)
        if found and re.search(at, source):
            words = re.sub(r"\{(\d)\}", lambda group: str(found[int(group[1])]), hint)  # noqa: B023
            row = _row_of_a_matrix(source, arguments) if hint in (_WHOLE, _VALUE) else ""
            return row or words, alone
    return "", False


def _row_of_a_matrix(source: str, arguments: Mapping[str, Any]) -> str:
    """x[i] where x has several dimensions."""
    for name, index in re.findall(r"\b(\w+)\[([^\[\],:]+)\]", source):
        dimensions = getattr(arguments.get(name), "ndim", 1)
        if dimensions > 1:
            element = ", ".join(("i", "j", "k")[:dimensions]) if dimensions <= 3 else "i, j, ..."
            return (
                f"{name} has {dimensions} dimensions, so {name}[{index}] is a whole row of it, an array; one element is {name}[{element}]."
            )
    return ""


def _near_name(text: str, function: Any) -> str:
    unknown = re.search(r"NameError: name '(\w+)' is not defined", text)
    if not unknown:
        return ""
    name = unknown[1]
    if name in ("np", "numpy", "math", "cuda", "numba"):
        how = {"np": "import numpy as np", "cuda": "from numba import cuda"}.get(name, f"import {name}")
        return f"It is not imported: {how}, outside the kernel."
    if homes := [home for home in ("numba.cuda", "math", "numba") if hasattr(importlib.import_module(home), name)]:
        return f"Did you mean {homes[0].removeprefix('numba.')}.{name}?"
    return _nearest(name, (*function.__code__.co_varnames, *function.__globals__, *dir(builtins)))


def _near_attribute(text: str, source: str, function: Any) -> str:
    """A member that a module, an array or one of numba's types does not have: the nearest one that it has."""
    unknown = re.search(r"(?:module|type object) '[\w.]+' has no attribute '(\w+)'|Unknown attribute '(\w+)' of type ([^\n]+)", text)
    if not unknown:
        return ""
    name, kind = unknown[1] or unknown[2], unknown[3] or ""
    if kind.startswith("Dim3"):
        return "Its members are x, y and z."
    if re.match(r"(\w+ )*array\(", kind):
        return _nearest(name, ("shape", "size", "ndim", "strides", "itemsize", "nbytes", "dtype", "T", "flat", "real", "imag"))
    written = re.search(rf"([A-Za-z_][\w.]*)\.{name}\b", source)
    if not written:
        return ""
    first, *rest = written[1].split(".")
    home: Any = function.__globals__.get(first)
    for part in rest:
        home = getattr(home, part, None)
    if home is None or hasattr(home, name):  # it exists, but not in kernels
        return ""
    members = [n for n in dir(home) if not n.startswith("_")]
    listed = f"{written[1]} has {', '.join(members)}." if len(members) <= 20 else ""
    return _nearest(name, members, written[1] + ".") or listed


def _missing_field(text: str, source: str, arguments: Mapping[str, Any]) -> str:
    """A record's field that does not exist: numba says its name and nothing else."""
    name = re.fullmatch(r"'(\w+)'", text.strip())
    records = {n: getattr(kind, "dtype", kind) for n, kind in arguments.items() if re.search(rf"\b{n}\b", source)}
    for argument, record in records.items():
        if name and hasattr(record, "fields"):
            return f"The records of {argument} have no field {name[1]!r}; they have {', '.join(record.fields)}."
    return ""


def _nearest(name: str, known: Any, prefix: str = "") -> str:
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name, known, n=1) or [lower[k] for k in difflib.get_close_matches(name.lower(), lower, n=1)]
    return f"Did you mean {prefix + near[0]!r}?" if near else ""
