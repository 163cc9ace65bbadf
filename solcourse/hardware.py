"""Published figures of GPUs as immutable records. The definition of Device; the figures themselves are in devices.toml.

The course offers 19 of them: devices(). More are found by name, and listed by devices(all=True).

Every figure keeps its source (`Device.sources`) and its doubt (`Device.flagged`): what was recalled, derived, guessed, or filled
from a sister of the same architecture is flagged. None means that the chip has no such unit, or that nobody measured it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from .errors import UnknownName, WorkError

DEFAULT_DEVICE = "A100-SXM4-80GB"

KIB = 1024
MIB = 1024**2

# Sizes in KiB that shared memory can take from the unified L1, by compute capability. Source: cuda_occupancy.h,
# cudaOccAlignUpShmemSizeVoltaPlus (cc 6.0 and 6.1 have separate shared memory: one size).
_AMPERE = (0, 8, 16, 32, 64, 100, 132, 164)
_GA10X = (0, 8, 16, 32, 64, 100)
_HOPPER = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
CARVEOUTS_KIB: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "6.0": (64,),
        "6.1": (96,),
        "7.0": (0, 8, 16, 32, 64, 96),
        "7.5": (32, 64),
        "8.0": _AMPERE,
        "8.6": _GA10X,
        "8.7": _AMPERE,
        "8.9": _GA10X,
        "9.0": _HOPPER,
        "10.0": _HOPPER,
        "12.0": _GA10X,
    }
)

# Which column holds the peak of which kind of FLOP. Tensor peaks are with fp32 accumulation and without structured sparsity.
PEAK_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "fp16": "fp16_vec_tflops",
        "fp32": "fp32_tflops",
        "fp64": "fp64_tflops",
        "tensor_fp64": "fp64_tensor_tflops",
        "tensor_tf32": "tf32_tensor_tflops",
        "tensor_fp16": "fp16_tensor_tflops_fp32acc",
        "tensor_fp16_fp16acc": "fp16_tensor_tflops_fp16acc",
        "tensor_bf16": "bf16_tensor_tflops",
        "tensor_fp8": "fp8_tensor_tflops",
        "tensor_int8": "int8_tensor_tops",
    }
)


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU model. Units are in the names: see the head of devices.toml; rates are peaks at the boost clock.

    What a reader would get wrong: `dram_gbs_spec` is the data sheet's rate (10^9 bytes per second), which no kernel reaches;
    `dram_eta_*` is the fraction that is reached. `*_sm` is per SM, `*_clk` per clock, lat_* in SM clock cycles. `l1_smem_kib_sm` is L1 and
    shared memory together. `l1_caches_global` False (cc 6.1): loads of global and local memory go past L1, with its size and latency,
    unless the code asks for it (`ld.ca`, `__ldg`), which numba's does not.

    flagged  names of the fields that are recalled, derived, guessed or filled from a sister
    sources  field name -> where the figure comes from
    """

    name: str
    chip: str
    cc: str
    sms: int
    boost_mhz: float
    dram_type: str
    dram_gb: float
    dram_gbs_spec: float
    l2_mib: float
    l1_smem_kib_sm: int
    smem_max_kib_sm: int
    smem_max_kib_block: int
    regs32_sm: int
    max_warps_sm: int
    max_blocks_sm: int
    max_threads_sm: int
    fp32_lanes_sm: int
    fp64_lanes_sm: int
    int32_lanes_sm: int
    sfu_lanes_sm: int
    l1_load_bytes_clk_sm: int
    smem_bytes_clk_sm: int
    dram_fetch_bytes: int
    fp32_tflops: float
    fp64_tflops: float
    fp16_vec_tflops: float
    lat_alu: float
    lat_fp64: float
    lat_smem: float
    lat_l1: float
    lat_l2: float
    lat_dram: float
    block_turnaround_cyc: float
    launch_us_stream: float
    launch_us_graph: float
    tdp_w: float
    # what a chip may lack, or nobody measured
    base_mhz: float | None = None
    dram_gbs_meas_copy: float | None = None
    dram_gbs_meas_read: float | None = None
    dram_frac_copy: float | None = None
    l2_gbs_meas: float | None = None
    tensor_fp16_flop_clk_sm: int | None = None
    fp64_tensor_tflops: float | None = None
    tf32_tensor_tflops: float | None = None
    fp16_tensor_tflops_fp32acc: float | None = None
    fp16_tensor_tflops_fp16acc: float | None = None
    bf16_tensor_tflops: float | None = None
    fp8_tensor_tflops: float | None = None
    int8_tensor_tops: float | None = None
    # what the model needs beside the published table
    tensor_boost_mhz: float  # clock at which the tensor peaks are stated
    tensor_fp32acc_factor: float  # rate with fp32 accumulation / rate with fp16 accumulation
    clock_derate: float  # sustained clock / boost clock
    dram_eta_copy: float  # reached fraction of dram_gbs_spec, by kind of traffic
    dram_eta_read: float
    dram_eta_write: float
    l2_bytes_clk: float  # whole chip, per SM clock, as measured
    l2_slices: int
    l1_caches_global: bool = True
    src_spec: str = ""
    src_perf: str = ""
    src_lat: str = ""
    notes: str = ""
    flagged: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, hash=False)

    @property
    def cc_major(self) -> int:
        return int(self.cc.split(".")[0])

    @property
    def clock_hz(self) -> float:
        """Sustained SM clock in Hz = boost x derate: what times are computed with. Peaks are at boost."""
        return self.boost_mhz * 1e6 * self.clock_derate

    @property
    def fp32_flops_per_s(self) -> float:
        return self.peak_flops_per_s("fp32")

    @property
    def dram_bytes_per_s(self) -> float:
        """The data sheet's DRAM rate, bytes per second (the denominator of T_SOL)."""
        return self.dram_gbs_spec * 1e9

    @property
    def l2_bytes(self) -> int:
        return round(self.l2_mib * MIB)

    @property
    def l2_partitions(self) -> int:
        """2 where each half of L2 keeps its own copy of data that SMs of both sides read (A100, H100, B200), else 1."""
        return 2 if self.chip in ("GA100", "GH100", "GB100") else 1

    @property
    def l2_bytes_per_s(self) -> float:
        """L2 rate, bytes per second = l2_bytes_clk x clock_hz."""
        return self.l2_bytes_clk * self.clock_hz

    @property
    def partitions(self) -> int:
        """Sub-partitions (warp schedulers) of an SM: 4, and 2 on cc 6.0. Source: cuda_occupancy.h."""
        return 2 if self.cc == "6.0" else 4

    @property
    def carveouts_kib(self) -> tuple[int, ...]:
        """Sizes that shared memory can take out of `l1_smem_kib_sm`, ascending, KiB."""
        return CARVEOUTS_KIB[self.cc]

    def peak_flops_per_s(self, kind: str) -> float:
        """Peak FLOP per second of one kind (keys of PEAK_COLUMNS), FMA = 2, at the clock of the data sheet.

        Raises: UnknownName for an unknown kind; WorkError where the chip has no such unit.

        >>> device("A100-SXM4-80GB").peak_flops_per_s("fp32")
        19490000000000.0
        """
        if kind not in PEAK_COLUMNS:
            raise UnknownName("kind of FLOP", kind, PEAK_COLUMNS)
        tflops = getattr(self, PEAK_COLUMNS[kind])
        if tflops is None:
            have = [k for k, column in PEAK_COLUMNS.items() if getattr(self, column) is not None]
            raise WorkError(f"{self.name} (cc {self.cc}) has no unit for {kind}. It has: {', '.join(have)}.")
        return float(tflops) * 1e12


# Fields by the column that names their source, and how a blank is filled from a sister: "copy", or scaled by the named ratios.
_PERF = (*PEAK_COLUMNS.values(), "tensor_fp16_flop_clk_sm", "tensor_boost_mhz", "tensor_fp32acc_factor")
_LAT = (
    "lat_alu", "lat_fp64", "lat_smem", "lat_l1", "lat_l2", "lat_dram", "block_turnaround_cyc", "launch_us_stream", "launch_us_graph",
    "dram_gbs_meas_copy", "dram_gbs_meas_read", "dram_frac_copy", "l2_gbs_meas", "l2_bytes_clk",
    "l1_load_bytes_clk_sm", "smem_bytes_clk_sm", "dram_fetch_bytes", "dram_eta_copy", "dram_eta_read",
)  # fmt: skip
_TEXT = frozenset({"name", "chip", "cc", "dram_type", "src_spec", "src_perf", "src_lat", "notes"})
_COPY = (
    "lat_alu", "lat_fp64", "lat_smem", "lat_l1", "lat_l2", "lat_dram", "block_turnaround_cyc", "launch_us_stream", "launch_us_graph",
    "l1_load_bytes_clk_sm", "smem_bytes_clk_sm", "dram_fetch_bytes",
)  # fmt: skip
_SCALE_SMS = ("l2_bytes_clk",)
_SCALE_SMS_CLOCK = ("fp16_vec_tflops", "tf32_tensor_tflops")
_FIRST_CC = {"tf32_tensor_tflops": 8}  # first major compute capability that has the unit


@dataclass
class _Draft:
    """A record under construction: numbers, what is doubtful, where each came from."""

    values: dict[str, Any]
    flagged: set[str]
    sources: dict[str, str]

    def put(self, key: str, value: float, source: str, doubtful: bool = True) -> None:
        self.values[key] = value
        self.sources[key] = source
        if doubtful:
            self.flagged.add(key)


def _source_column(key: str) -> str:
    return "src_perf" if key in _PERF else "src_lat" if key in _LAT else "src_spec"


def _read(name: str, row: Mapping[str, Any], doubt: Mapping[str, str]) -> _Draft:
    """The row as written: "~29" becomes 29, flagged."""
    draft = _Draft({"name": name}, set(), {})
    for key, value in row.items():
        if key in _TEXT:
            draft.values[key] = value
        elif isinstance(value, str):
            number = float(value.removeprefix("~"))
            source = f"{row.get(_source_column(key), '')} (in doubt: {doubt.get(key, 'see notes')})".strip()
            draft.put(key, int(number) if number.is_integer() else number, source)
        elif isinstance(value, bool):
            draft.put(key, value, row.get("src_lat", ""), doubtful=True)
        elif key != "sisters":
            draft.put(key, value, row.get(_source_column(key), ""), doubtful=False)
    return draft


def _flag_derived_peaks(draft: _Draft, row: Mapping[str, Any]) -> None:
    """Tensor peaks whose source says that they were derived from a relative's rate are in doubt as a whole."""
    if row.get("src_perf", "").startswith("derived"):
        draft.flagged.update(column for column in PEAK_COLUMNS.values() if "_tensor_" in column and column in row)


def _number(value: float | str) -> float:
    return float(value.removeprefix("~")) if isinstance(value, str) else float(value)


def _fill_from_sisters(draft: _Draft, row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
    for key in (*_COPY, *_SCALE_SMS, *_SCALE_SMS_CLOCK):
        if key in row or int(row["cc"].split(".")[0]) < _FIRST_CC.get(key, 0):
            continue
        sister = next((s for s in row["sisters"] if key in rows[s]), None)
        if sister is None:
            continue
        factor, how = 1.0, ""
        if key not in _COPY:
            factor, how = row["sms"] / rows[sister]["sms"], ", scaled by SMs"
        if key in _SCALE_SMS_CLOCK:
            factor, how = factor * row["boost_mhz"] / rows[sister]["boost_mhz"], ", scaled by SMs and boost clock"
        value = _number(rows[sister][key]) * factor
        draft.put(key, int(value) if value.is_integer() else round(value, 4), f"filled from {sister}{how}")


def _fill_defaults(draft: _Draft, data: Mapping[str, Any]) -> None:
    v = draft.values
    memory, derived = v["dram_type"], data["dram_eta_derived"]
    defaults: dict[str, tuple[float, str]] = {
        "tensor_boost_mhz": (v["boost_mhz"], "equal to boost_mhz"),
        "tensor_fp32acc_factor": (1.0, "full rate with fp32 accumulation"),
        "l1_caches_global": (True, "loads are cached in L1 by default: recalled for 6.0, from 7.0 on by the tuning guides"),
        "clock_derate": (1.0, "assumed: holds its boost clock"),
        "dram_eta_copy": (data["dram_eta_default"][memory], f"default for {memory}"),
    }
    for key, (value, source) in defaults.items():
        if key not in v:
            recalled = key == "l1_caches_global" and v["cc"] == "6.0"
            draft.put(key, value, source, doubtful=recalled or key in ("clock_derate", "dram_eta_copy"))
    over = {"read": derived["read_over_copy"][re.sub(r"\d.*", "", memory)], "write": derived["write_over_copy"]}
    for kind, ratio in over.items():
        if f"dram_eta_{kind}" not in v:
            most = derived[f"{kind}_most"]
            eta = round(min(most, ratio * v["dram_eta_copy"]), 3)
            draft.put(f"dram_eta_{kind}", eta, f"derived: {ratio} x dram_eta_copy, at most {most}")


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(files("solcourse").joinpath("devices.toml").read_text(encoding="utf-8"))


@cache
def _table() -> Mapping[str, Device]:
    """Every device by name, the offered ones first."""
    data = _data()
    rows = {**data["device"], **data["further"]}
    table = {}
    for name, row in rows.items():
        draft = _read(name, row, data["doubt"])
        _flag_derived_peaks(draft, row)
        _fill_from_sisters(draft, row, rows)
        _fill_defaults(draft, data)
        table[name] = Device(**draft.values, flagged=frozenset(draft.flagged), sources=draft.sources)
    return MappingProxyType(table)


def devices(all: bool = False) -> tuple[Device, ...]:
    """The devices that the course offers and compares, by architecture; all=True: and then every other one that `device` finds.

    >>> len(devices()), device("GeForce RTX 3070") in devices(), device("GeForce RTX 3070") in devices(all=True)
    (19, False, True)
    """
    return tuple(gpu for name, gpu in _table().items() if all or name in _data()["device"])


def device(name: str | Device) -> Device:
    """The device of that name, or of a part that only one name has; a Device passes through (so that a changed copy can be used anywhere).

    A part means an offered device before any other. "Ti", "SUPER", "Max-Q" or "Laptop" make another GPU: they must be in the part.
    Raises: UnknownName, with the nearest name, or with all that a part could mean.

    >>> device("H100-SXM5-80GB").sms, device("rtx 3090").name
    (132, 'GeForce RTX 3090')
    """
    if isinstance(name, Device):
        return name
    table = _table()
    meant = _meant(name, table)
    offered = [known for known in meant if known in _data()["device"]]
    if len(meant) == 1 or len(offered) == 1:
        return table[(offered or meant)[0]]
    several = f"{name!r} could be any of {', '.join(meant)}: say which." if meant else ""
    raise UnknownName("device", name, table, several)


def device_of_driver(name: str) -> Device:
    """The device by the name that its driver gives it.

    Raises: UnknownName, where there are no figures: a near relative's would be wrong without saying so.

    >>> device_of_driver("NVIDIA H100 80GB HBM3").name, device_of_driver("NVIDIA GeForce RTX 4060 Laptop GPU").name
    ('H100-SXM5-80GB', 'GeForce RTX 4060 Laptop GPU')
    """

    def words(text: str) -> list[str]:
        return [word for word in text.lower().split() if word not in ("nvidia", "geforce", "tesla")]

    wanted = words(_data()["driver_names"].get(name, name))
    for gpu in _table().values():
        if words(gpu.name) == wanted:
            return gpu
    raise UnknownName("device", name, _table())


_VARIANTS = ("ti", "super", "maxq", "laptop", "xp")  # words that make another GPU of a name


def _meant(name: object, known: Iterable[str]) -> list[str]:
    """The names that `name` is, or else is a part of, whatever their case, spaces and hyphens: "l4" is L4 and not L40S."""

    def plain(text: str) -> str:
        return text.lower().replace(" ", "").replace("-", "")

    def other(full: str) -> bool:
        return any(variant in map(plain, full.split()) and variant not in wanted for variant in _VARIANTS)

    wanted = plain(name) if isinstance(name, str) else ""
    if len(wanted) < 2:
        return []
    return [k for k in known if plain(k) == wanted] or [k for k in known if wanted in plain(k) and not other(k)]


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Device))
