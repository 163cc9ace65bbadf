"""The model's constants with their provenance, read from constants.toml. Figures of one device are in devices.toml, see hardware.py."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

PROVENANCES = ("data sheet", "microbenchmark", "disassembly", "derived", "recalled", "guess", "judgement")
DOUBTFUL = ("recalled", "guess")


@dataclass(frozen=True)
class Constant:
    """One figure. provenance: one of PROVENANCES; source: where it was read, or what it is thought to be."""

    name: str
    value: float
    unit: str
    provenance: str
    source: str

    @property
    def doubtful(self) -> bool:
        return self.provenance in DOUBTFUL


@cache
def constants() -> Mapping[str, Constant]:
    text = files("solcourse").joinpath("constants.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: Constant(name=name, **row) for name, row in tomllib.loads(text).items()})


def constant(name: str) -> float:
    """The value of one constant.

    >>> constant("p_norm")
    3.0
    """
    return constants()[name].value
