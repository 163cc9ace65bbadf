"""Sums to do by hand inside a lesson: the definition of each question, its answer and the slips that have a name.

A learner types a number or an expression ("3 * 4 * 2**26 / 2039e9"); `mark` says right, or which slip it looks like.
Answers are computed from the same Work and Device everything else uses, so that a corrected figure corrects the task.
"""

from __future__ import annotations

import ast
import html
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from solcourse import roofline
from solcourse.errors import UnknownName, WorkError
from solcourse.hardware import DEFAULT_DEVICE, device
from solcourse.work import Work

TOLERANCE = 0.02  # of the answer: figures copied with three digits are right
N = 2**26


@dataclass(frozen=True)
class Task:
    """A question with one number as its answer.

    work     the operation's ledger; the answer is its T_SOL in seconds, or its total bytes when asks_ledger
    slips    (ratio of the wrong answer to the right one, what was probably done)
    hints    three, from a nudge to nearly the answer
    solution an expression that is right
    """

    name: str
    question: str
    work: Work
    slips: tuple[tuple[float, str], ...]
    hints: tuple[str, str, str]
    solution: str
    asks_ledger: bool = False

    @property
    def answer(self) -> float:
        """Seconds on the default device, or bytes for a ledger."""
        return float(self.work.compulsory_bytes) if self.asks_ledger else roofline.sol_time_s(self.work, device(DEFAULT_DEVICE))

    @property
    def plain_question(self) -> str:
        """The question without its markup."""
        return plain(self.question)

    @property
    def unit(self) -> str:
        return "bytes" if self.asks_ledger else "seconds"


@dataclass(frozen=True)
class Marked:
    """What `mark` found. `passed` is None while there is no answer yet; `message` is for the learner."""

    task: str
    passed: bool | None
    message: str  # may hold markup

    def __str__(self) -> str:
        return plain(self.message)


def plain(markup: str) -> str:
    """The text of a little HTML."""
    return html.unescape(re.sub(r"</?\w+>", "", markup))


def _peak_ratio(work: Work) -> float:
    """Time of the bytes / time of the FLOPs on the default device: which of the two a slip would have taken."""
    gpu = device(DEFAULT_DEVICE)
    return (work.compulsory_bytes / gpu.dram_bytes_per_s) / (work.total_flops / gpu.fp32_flops_per_s)


SAXPY = Work.read("x", 4 * N) + Work.read("y", 4 * N) + Work.write("y", 4 * N) + Work.flop("fp32", 2 * N)
POLYNOMIAL = Work.read("x", 4 * N) + Work.write("y", 4 * N) + Work.flop("fp32", 2 * 100 * N)
MATMUL = Work.read("A", 4 * 4096**2) + Work.read("B", 4 * 4096**2) + Work.write("C", 4 * 4096**2) + Work.flop("fp32", 2 * 4096**3)
EPILOGUE = Work.read("x", 4 * 4096**2) + Work.read("residual", 4 * 4096**2) + Work.read("bias", 4 * 4096) + Work.write("y", 4 * 4096**2)

_UNITS = ((1e6, "That is the number of microseconds. The answer is asked in seconds."), (1e3, "That is milliseconds. Seconds, please."))
_BYTES = ((0.25, "A quarter of it: did you count elements instead of bytes? A float32 has four."),)

TASKS = (
    Task(
        "ex00.saxpy",
        "T_SOL of <code>y[i] = a * x[i] + y[i]</code> for 2^26 float32 elements on the A100, in seconds",
        SAXPY,
        (
            (2 / 3, "Two thirds of it: y is read <em>and</em> written. Three passes over memory, not two."),
            (1 / 3, "A third of it: one pass counted. x is read, y is read, y is written."),
            (1 / _peak_ratio(SAXPY), "That is the time of the arithmetic. The bytes take longer, and the longer one is T_SOL."),
            (1 + 1 / _peak_ratio(SAXPY), "You added the two times. They overlap: take the larger."),
            *_UNITS,
            *_BYTES,
        ),
        (
            "Two times: FLOPs over FLOP/s, bytes over byte/s. T_SOL is the larger.",
            "Per element: 2 FLOPs (one multiply, one add); x read, y read, y written: 3 x 4 bytes.",
            "The bytes win: 12 * 2**26 / 2039e9.",
        ),
        "12 * 2**26 / 2039e9",
    ),
    Task(
        "ex00.polynomial",
        "T_SOL of a polynomial of degree 100 by Horner's rule, one per element, 2^26 float32 elements on the A100, in seconds",
        POLYNOMIAL,
        (
            (0.5, "Half of it: each step is a multiply <em>and</em> an add, two FLOPs, though the GPU does both in one instruction (FMA)."),
            (_peak_ratio(POLYNOMIAL), "That is the time of the bytes. The arithmetic takes longer here, and the longer one is T_SOL."),
            (1 + _peak_ratio(POLYNOMIAL), "You added the two times. They overlap: take the larger."),
            *_UNITS,
        ),
        (
            "Horner: acc = acc * x + c, a hundred times. Count the FLOPs of one step.",
            "200 FLOPs and 8 bytes per element: 25 FLOP/byte, to the right of the ridge point.",
            "The FLOPs win: 200 * 2**26 / 19.49e12.",
        ),
        "200 * 2**26 / 19.49e12",
    ),
    Task(
        "ex00.matmul",
        "T_SOL of C = A B, all three 4096 x 4096 float32 (no tensor cores), on the A100, in seconds",
        MATMUL,
        (
            (0.5, "Half of it: each of the 4096^3 steps is a multiply <em>and</em> an add."),
            (_peak_ratio(MATMUL), "That is the time of the bytes. The arithmetic takes 70 times as long, and the longer one is T_SOL."),
            (1 + _peak_ratio(MATMUL), "You added the two times. They overlap: take the larger."),
            *_UNITS,
        ),
        (
            "Every element of C is a sum of 4096 products. How many elements are there?",
            "2 x 4096 x 4096 x 4096 FLOPs; A, B and C cross the memory bus once each, whatever the kernel does in between.",
            "The FLOPs win: 2 * 4096**3 / 19.49e12.",
        ),
        "2 * 4096**3 / 19.49e12",
    ),
    Task(
        "ex00.ledger",
        "The ledger of <code>y = max(x + bias, 0) + residual</code>, fused into one kernel: x, residual and y are 4096 x 4096 float32, "
        'bias has 4096. Write it as terms: <code>read("x", 4 * 4096**2) + ... + write("y", ...)</code>',
        EPILOGUE,
        (
            (5 / 3, "Two passes too many: x + bias never goes to memory when the kernel is fused, so it costs nothing."),
            (2 / 3, "One array is missing: x and residual are read, y is written."),
            (4 / 3, "One array too many. A bias of 4096 numbers counts 4096 numbers, however often it is used."),
            *_BYTES,
        ),
        (
            "One term for each array that must cross the memory bus, in or out, once.",
            "Three arrays of 4096 x 4096 (two in, one out) and a small one of 4096.",
            'read("x", 4 * 4096**2) + read("residual", 4 * 4096**2) + read("bias", 4 * 4096) + write("y", 4 * 4096**2)',
        ),
        'read("x", 4 * 4096**2) + read("residual", 4 * 4096**2) + read("bias", 4 * 4096) + write("y", 4 * 4096**2)',
        asks_ledger=True,
    ),
)


def task(name: str) -> Task:
    """The task of that name. Raises UnknownName."""
    for item in TASKS:
        if item.name == name:
            return item
    raise UnknownName("task", name, [t.name for t in TASKS])


def mark(item: Task, answer: Any) -> Marked:
    """Right, or the slip it looks like. `answer` is a number, a Work, an expression as text, or None / ... for none yet."""
    if answer is None or answer is ... or answer == "":
        return Marked(item.name, None, "Not yet: type a number or a sum.")
    try:
        value = evaluate(answer) if isinstance(answer, str) else answer
    except WorkError as error:
        return Marked(item.name, False, html.escape(str(error)))
    if isinstance(value, Work):
        value = value.compulsory_bytes
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return Marked(item.name, False, f"A positive number of {item.unit} is wanted.")
    ratio = value / item.answer
    if abs(ratio - 1) <= (1e-9 if item.asks_ledger else TOLERANCE):
        return Marked(item.name, True, "Right.")
    near = [(abs(ratio / slip - 1), message) for slip, message in item.slips if abs(ratio / slip - 1) <= TOLERANCE]
    return Marked(item.name, False, min(near)[1] if near else f"Not yet: {ratio:.3g} times the answer. The hints below help.")


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "read": Work.read, "write": Work.write, "flop": Work.flop}


def evaluate(text: str) -> Any:
    """The value of an arithmetic expression: numbers, + - * / **, max, min, read, write, flop. Raises WorkError on anything else."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except WorkError:
        raise
    except (SyntaxError, TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        raise WorkError(f"This is not a sum that can be read: {error}") from None


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left), _value(right)
            if isinstance(op, ast.Pow) and max(abs(a), abs(b)) > 1e6:
                raise WorkError("This power is too large to be meant.")
            return _OPERATORS[type(op)](a, b)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, args))
    raise WorkError(f"Only numbers, + - * / **, and {', '.join(sorted(_FUNCTIONS))} can be used here, not: {ast.unparse(node)}")
