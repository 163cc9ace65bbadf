"""hardware.py and devices.toml: the figures agree with each other, keep their source, and admit their doubt."""

import copy
import dataclasses
import pickle
import re
import tomllib
from importlib.resources import files

import pytest

from solcourse.errors import LaunchError, UnknownName, WorkError
from solcourse.hardware import CARVEOUTS_KIB, DEFAULT_DEVICE, FIELDS, KIB, PEAK_COLUMNS, Device, device, device_of_driver, devices
from solcourse.occupancy import occupancy

OFFERED = devices()
ALL = devices(all=True)
WITHIN = 0.02

NUMBERS = [
    f for f in FIELDS if f not in {"name", "chip", "cc", "dram_type", "src_spec", "src_perf", "src_lat", "notes", "flagged", "sources"}
]

# Every pair of a published rate and the same rate from lanes x SMs x clock. FMA = 2. `None`: the chip lacks the unit.
# column -> FLOP per clock of the whole chip and the clock it is stated at (MHz)
RATES = {
    "fp32_tflops": lambda d: (2 * d.fp32_lanes_sm * d.sms, d.boost_mhz),
    "fp64_tflops": lambda d: (2 * d.fp64_lanes_sm * d.sms, d.boost_mhz),
    # tensor_fp16_flop_clk_sm already counts FMA as 2, with fp16 accumulation
    "fp16_tensor_tflops_fp16acc": lambda d: (d.tensor_fp16_flop_clk_sm * d.sms, d.tensor_boost_mhz),
    "fp16_tensor_tflops_fp32acc": lambda d: (d.tensor_fp16_flop_clk_sm * d.tensor_fp32acc_factor * d.sms, d.tensor_boost_mhz),
    "bf16_tensor_tflops": lambda d: (d.tensor_fp16_flop_clk_sm * d.tensor_fp32acc_factor * d.sms, d.tensor_boost_mhz),
    "tf32_tensor_tflops": lambda d: (d.tensor_fp16_flop_clk_sm * d.tensor_fp32acc_factor * d.sms / 2, d.tensor_boost_mhz),
    "fp8_tensor_tflops": lambda d: (2 * d.tensor_fp16_flop_clk_sm * d.tensor_fp32acc_factor * d.sms, d.tensor_boost_mhz),
    "int8_tensor_tops": lambda d: (2 * d.tensor_fp16_flop_clk_sm * d.sms, d.tensor_boost_mhz),
    # fp64 tensor cores: 2 x the fp64 lanes on A100 and H100, 1 x on B200; stated at the plain boost clock
    "fp64_tensor_tflops": lambda d: (2 * d.fp64_lanes_sm * d.sms * (1 if d.cc == "10.0" else 2), d.boost_mhz),
    # packed half precision: a whole multiple of the fp32 rate, by architecture (CUDA programming guide, arithmetic throughput)
    "fp16_vec_tflops": lambda d: (2 * d.fp32_lanes_sm * d.sms * FP16_OVER_FP32[d.cc], d.boost_mhz),
}
FP16_OVER_FP32 = {"6.0": 2, "6.1": 1 / 64, "7.0": 2, "7.5": 2, "8.0": 4, "8.6": 1, "8.7": 2, "8.9": 1, "9.0": 2, "10.0": 2, "12.0": 1}
PAIRS = [(d, column) for d in ALL for column in RATES if getattr(d, column) is not None]

# (device, column) -> why rate x clock is not the data sheet's figure there. None is needed: the lower clocks of the tensor peaks
# (H100, H200, B200; L40S: 2490 MHz) are in tensor_boost_mhz, GeForce's half rate in tensor_fp32acc_factor.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def test_nineteen_devices_with_distinct_names_and_known_compute_capability():
    assert len(OFFERED) == len({d.name for d in OFFERED}) == 19
    assert {d.cc for d in ALL} == set(CARVEOUTS_KIB)
    assert {d.cc for d in OFFERED} == set(CARVEOUTS_KIB) - {"6.1"}
    assert device(DEFAULT_DEVICE).name == "A100-SXM4-80GB"


FURTHER = {
    "Tesla P100-PCIE-16GB", "TITAN Xp", "GeForce GTX 1060 6GB", "GeForce GTX 1060 3GB", "GeForce GTX 1050 Ti", "Tesla V100-PCIE-16GB",
    "GeForce GTX 1650 SUPER", "T4G", "GeForce RTX 2070", "GeForce RTX 2060 Max-Q", "GeForce RTX 3050 Laptop GPU", "GeForce RTX 3070",
    "GeForce RTX 3080 Ti", "RTX A4000", "A40", "GeForce RTX 4060 Laptop GPU", "L40",
}  # fmt: skip


def test_the_other_devices_are_listed_on_request_after_the_offered_ones():
    assert ALL[: len(OFFERED)] == OFFERED
    assert {d.name for d in ALL[len(OFFERED) :]} == FURTHER
    assert len(ALL) == len({d.name for d in ALL}) == 19 + 17
    assert all(float(d.cc) >= 6.0 for d in ALL)
    assert all(device(name).flagged for name in FURTHER)


def test_every_rate_has_its_pair():
    # of the 19 + 17 devices: fp32, fp64, fp16 = 108; fp16acc and fp32acc where there are tensor cores: 18 and 17 - 6 (P100, four of
    # cc 6.1, GTX 1650 SUPER) = 58; bf16 and tf32 from cc 8.0: 14 + 7, twice; int8 for all with tensor cores but the three V100: 29 - 3;
    # fp8 from cc 8.9: 8 + 2; fp64 tensor on A100 (2), H100 (2), H200, B200 = 6
    by_cc8 = [d for d in ALL if d.cc_major >= 8]
    fp8 = [d for d in ALL if d.cc in ("8.9", "9.0", "10.0", "12.0")]
    assert (len(by_cc8), len(fp8)) == (21, 10)
    assert len(PAIRS) == 108 + 58 + 42 + 26 + 10 + 6


@pytest.mark.parametrize(("gpu", "column"), PAIRS, ids=lambda x: x.name if isinstance(x, Device) else x)
def test_rate_times_clock_is_the_data_sheet_within_two_percent(gpu, column):
    assert (gpu.name, column) not in EXCEPTIONS
    flop_per_clock, mhz = RATES[column](gpu)
    assert flop_per_clock * mhz * 1e6 == pytest.approx(getattr(gpu, column) * 1e12, rel=WITHIN)


@pytest.mark.parametrize(
    ("name", "column", "change"),
    [
        ("H100-PCIe-80GB", "fp16_tensor_tflops_fp32acc", {"tensor_boost_mhz": 1755}),  # stated at 1620 MHz, not at boost
        ("GeForce RTX 3090", "bf16_tensor_tflops", {"tensor_fp32acc_factor": 1.0}),
        ("H100-PCIe-80GB", "fp32_tflops", {"fp32_lanes_sm": 256}),  # MAC stored as FLOP: 2x too fast
    ],
)
def test_the_two_percent_law_catches_a_wrong_table(name, column, change):
    wrong = dataclasses.replace(device(name), **change)
    flop_per_clock, mhz = RATES[column](wrong)
    assert flop_per_clock * mhz * 1e6 != pytest.approx(getattr(wrong, column) * 1e12, rel=WITHIN)


@pytest.mark.parametrize("gpu", ALL, ids=lambda d: d.name)
def test_measured_fractions_agree_with_measured_rates(gpu):
    if gpu.dram_frac_copy is None:
        assert gpu.dram_gbs_meas_copy is None
        return
    assert gpu.dram_gbs_meas_copy / gpu.dram_gbs_spec == pytest.approx(gpu.dram_frac_copy, rel=WITHIN)
    assert gpu.dram_eta_copy == pytest.approx(gpu.dram_frac_copy, abs=0.01)


@pytest.mark.parametrize(
    ("name", "measured_at_mhz"),
    [("Tesla V100-SXM2-16GB", 1380), ("A100-SXM4-80GB", 1410), ("L40S", 2490), ("H100-PCIe-80GB", 1755), ("H200-SXM-141GB", 1980)],
)
def test_l2_bytes_per_clock_times_clock_is_the_measured_l2_rate(name, measured_at_mhz):
    gpu = device(name)
    # V100: 1770 B/clk x 1.380 GHz = 2443 GB/s, measured 2440
    assert gpu.l2_bytes_clk * measured_at_mhz * 1e6 == pytest.approx(gpu.l2_gbs_meas * 1e9, rel=WITHIN)


@pytest.mark.parametrize("gpu", ALL, ids=lambda d: d.name)
def test_sizes_are_consistent(gpu):
    assert gpu.max_threads_sm == 32 * gpu.max_warps_sm
    assert gpu.regs32_sm == 65536
    assert max(gpu.carveouts_kib) == gpu.smem_max_kib_sm
    assert list(gpu.carveouts_kib) == sorted(gpu.carveouts_kib)
    assert gpu.smem_max_kib_sm < gpu.l1_smem_kib_sm
    # from cc 8.0 on the driver keeps 1 KiB per block
    assert gpu.smem_max_kib_block <= gpu.smem_max_kib_sm - (1 if gpu.cc_major >= 8 else 0)
    assert gpu.l2_bytes == gpu.l2_mib * 1024 * KIB
    assert gpu.partitions == (2 if gpu.cc == "6.0" else 4)
    assert gpu.l2_partitions == (2 if gpu.chip in ("GA100", "GH100", "GB100") else 1)


@pytest.mark.parametrize("gpu", ALL, ids=lambda d: d.name)
def test_memory_levels_are_ordered_by_latency_and_fractions_are_fractions(gpu):
    assert 0 < gpu.lat_alu < gpu.lat_smem < gpu.lat_l2 < gpu.lat_dram
    assert gpu.lat_smem < gpu.lat_l1 < gpu.lat_l2
    assert 0 < gpu.launch_us_graph < gpu.launch_us_stream
    for eta in (gpu.dram_eta_copy, gpu.dram_eta_read, gpu.dram_eta_write):
        assert 0.5 < eta < 1
    assert gpu.dram_eta_copy <= gpu.dram_eta_read
    assert 0 < gpu.clock_derate <= 1
    assert gpu.clock_hz == pytest.approx(gpu.boost_mhz * 1e6 * gpu.clock_derate)
    assert gpu.l2_bytes_per_s > gpu.dram_bytes_per_s or gpu.name == "Jetson AGX Orin 64GB"


@pytest.mark.parametrize("gpu", ALL, ids=lambda d: d.name)
def test_every_figure_has_a_source_and_a_blank_is_flagged(gpu):
    for key in NUMBERS:
        value = getattr(gpu, key)
        if value is None:
            assert key not in gpu.flagged
            continue
        assert isinstance(value, int | float), key
        assert gpu.sources[key], key
        if gpu.sources[key].startswith(("filled", "derived:", "assumed", "default")) and _section(gpu.name).get(key) is None:
            assert key in gpu.flagged, key
    assert gpu.flagged <= set(NUMBERS)


def _section(name):
    return {**_TOML["device"], **_TOML["further"]}[name]


_TOML = tomllib.loads(files("solcourse").joinpath("devices.toml").read_text(encoding="utf-8"))


def test_a_tilde_in_the_table_is_a_flag_in_the_record():
    marked = [(d.name, key) for d in ALL for key, v in _section(d.name).items() if isinstance(v, str) and re.match(r"~\d", v)]
    assert len(marked) > 300  # the check found something to check
    for name, key in marked:
        assert key in device(name).flagged, (name, key)
        assert "in doubt" in device(name).sources[key]
    # and a figure that was read in its source is not flagged
    assert not {"sms", "boost_mhz", "dram_gbs_spec", "l2_bytes_clk", "lat_dram"} & device("A100-SXM4-80GB").flagged


def test_blank_figures_are_filled_from_the_sister_scaled_by_sms_and_clock():
    a100, orin = device("A100-SXM4-80GB"), device("Jetson AGX Orin 64GB")
    # 155.9 TFLOP/s x 16/108 SMs x 1300/1410 MHz = 21.29
    assert orin.tf32_tensor_tflops == pytest.approx(155.9 * 16 / 108 * 1300 / 1410, abs=1e-3)
    assert "SMs and boost clock" in orin.sources["tf32_tensor_tflops"]
    # bytes per clock: SMs only. 3260 x 16/108 = 483
    assert orin.l2_bytes_clk == pytest.approx(a100.l2_bytes_clk * 16 / 108, abs=1e-3)
    # cycles are copied
    assert orin.lat_dram == a100.lat_dram
    # A10 from the A40 of the same die: 1380 B/clk x 72/84 SMs
    assert device("A10").l2_bytes_clk == pytest.approx(1380 * 72 / 84, abs=1e-3)
    assert device("A10").block_turnaround_cyc == 375
    for name, key in [("Jetson AGX Orin 64GB", "tf32_tensor_tflops"), ("A10", "l2_bytes_clk"), ("B200-SXM-180GB", "fp16_vec_tflops")]:
        assert key in device(name).flagged


def test_dram_efficiency_is_measured_or_the_default_of_its_memory():
    assert (device("A100-SXM4-80GB").dram_eta_copy, device("A100-SXM4-80GB").dram_eta_read) == (0.85, 0.87)
    assert "dram_eta_copy" not in device("A100-SXM4-80GB").flagged
    assert device("H100-SXM5-80GB").dram_eta_copy == 0.88
    assert device("GeForce RTX 4090").dram_eta_copy == 0.92
    assert device("Tesla T4").dram_eta_copy == 0.75  # 239.6 of 320 GB/s by memcpy: 0.749
    assert "dram_eta_copy" in device("Tesla T4").flagged
    assert "dram_eta_copy" in device("H100-SXM5-80GB").flagged
    assert all("dram_eta_write" in d.flagged for d in ALL)
    # reads where only copies are known: 1.08 x (HBM), 1.05 x (GDDR), at most 0.98
    assert device("H100-SXM5-80GB").dram_eta_read == pytest.approx(0.88 * 1.08, abs=5e-4)
    assert device("GeForce RTX 3070").dram_eta_read == pytest.approx(0.90 * 1.05, abs=5e-4)


# BabelStream in GB/s, 2^25 float64: Copy, Dot, and the data sheet
@pytest.mark.parametrize(
    ("name", "copied", "read", "spec"),
    [
        ("Tesla P100-PCIE-16GB", 541.07, 568.39, 732),
        ("TITAN Xp", 433.18, 435.97, 547.6),
        ("GeForce RTX 2080 Ti", 546.05, 572.58, 616),
    ],
)
def test_dram_efficiencies_of_babelstream(name, copied, read, spec):
    gpu = device(name)
    assert gpu.dram_gbs_spec == spec
    assert gpu.dram_eta_copy == pytest.approx(copied / spec, abs=0.006)
    assert gpu.dram_eta_read == pytest.approx(read / spec, abs=0.006)
    assert "dram_eta_copy" not in gpu.flagged
    assert "BabelStream" in gpu.sources["dram_eta_copy"]


def test_only_compute_capability_6_1_keeps_loads_out_of_l1():
    assert {d.cc for d in ALL if not d.l1_caches_global} == {"6.1"}
    assert {d.cc for d in ALL if "l1_caches_global" in d.flagged} == {"6.0", "6.1"}  # recalled


# threads, registers, shared bytes -> blocks, warps, limiter. cc 6.1: 64 warps, 32 blocks, 4 partitions x 16384 registers, 96 KiB of shared
# memory beside 48 KiB of L1, nothing reserved per block, granules of 256 bytes
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "warps", "limiter"),
    [
        (256, 32, 0, 8, 64, "warps"),  # 8 warps: 64 / 8. 1024 registers a warp: 16 x 4 = 64 warps, as many
        (32, 32, 0, 32, 32, "blocks"),
        (288, 112, 0, 1, 9, "registers"),  # 3584 a warp: 4 x 4 = 16 warps, / 9 = 1 (P100, of 2 partitions: 9 x 2 = 18, / 9 = 2)
        (128, 40, 0, 12, 48, "registers"),  # 1280 a warp: 12 x 4 = 48 warps, / 4
        (256, 32, 40 * KIB, 2, 16, "shared_memory"),  # 96 / 40
        (1024, 32, 48 * KIB, 2, 64, "warps"),  # 64 / 32, and 96 / 48 as well
        (64, 32, 5000, 19, 38, "shared_memory"),  # 5000 -> 5120 = 20 x 256: 98304 / 5120 = 19.2
    ],
)
@pytest.mark.parametrize("name", ["TITAN Xp", "GeForce GTX 1060 6GB", "GeForce GTX 1050 Ti"])
def test_occupancy_on_compute_capability_6_1(name, threads, registers, shared, blocks, warps, limiter):
    o = occupancy(name, threads, registers, shared)
    assert (o.blocks_per_sm, o.warps_per_sm, o.max_warps, o.limiter) == (blocks, warps, 64, limiter)
    assert (o.shared_carveout_bytes, o.l1_bytes) == (96 * KIB, 48 * KIB)


def test_a_block_on_compute_capability_6_1_has_at_most_48_kib_of_shared_memory():
    with pytest.raises(LaunchError, match=r"TITAN Xp.*> 49152"):
        occupancy("TITAN Xp", 32, 32, 48 * KIB + 1)


def test_boards_of_70_watts_do_not_hold_their_boost_clock():
    assert (
        {d.name for d in OFFERED if d.clock_derate < 1}
        == {"Tesla T4", "L4"}
        == {d.name for d in OFFERED if d.tdp_w < 100} - {"Jetson AGX Orin 64GB"}
    )
    assert device("L4").clock_hz == pytest.approx(0.75 * 2040e6)


@pytest.mark.parametrize("kind", PEAK_COLUMNS)
def test_a_peak_is_its_column_in_base_units(kind):
    gpu = device("H100-SXM5-80GB")
    assert gpu.peak_flops_per_s(kind) == pytest.approx(getattr(gpu, PEAK_COLUMNS[kind]) * 1e12)


def test_a_unit_the_chip_lacks_is_an_error_that_names_what_it_has():
    with pytest.raises(WorkError, match=r"Tesla P100.*no unit for tensor_fp16\. It has: fp16, fp32, fp64\."):
        device("Tesla P100-SXM2-16GB").peak_flops_per_s("tensor_fp16")
    with pytest.raises(WorkError, match="no unit for tensor_fp8"):
        device("A100-SXM4-80GB").peak_flops_per_s("tensor_fp8")
    with pytest.raises(UnknownName, match="Did you mean 'fp32'"):
        device("A100-SXM4-80GB").peak_flops_per_s("FP32")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("A100-SXM-80GB", "A100-SXM4-80GB"),
        ("B200-SXM-192GB", "B200-SXM-180GB"),
        ("GTX 3090", "GeForce RTX 3090"),
        ("RTX 4060", "GeForce RTX 4060 Laptop GPU"),  # another GPU, so not taken for it, but offered
        ("RTX 2080", "GeForce RTX 2080 Ti"),
        ("RTX 3080", "GeForce RTX 3080 Ti"),
    ],
)
def test_an_unknown_device_offers_the_nearest_name(wrong, nearest):
    with pytest.raises(UnknownName, match=f"Did you mean '{nearest}'") as info:
        device(wrong)
    assert info.value.nearest == nearest
    assert "There is no device named" in str(info.value)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("RTX 3090", "GeForce RTX 3090"),
        ("T4", "Tesla T4"),
        ("H200", "H200-SXM-141GB"),
        ("h100-sxm5-80gb", "H100-SXM5-80GB"),
        ("L4", "L4"),  # a whole name, though L40S begins with it too
        ("a10", "A10"),
        ("rtx3090", "GeForce RTX 3090"),
        ("a100 sxm4 40gb", "A100-SXM4-40GB"),
        (" L40 ", "L40"),
        ("P100", "Tesla P100-SXM2-16GB"),  # an offered one before others
        ("RTX 3070", "GeForce RTX 3070"),
        ("rtx 4060 laptop", "GeForce RTX 4060 Laptop GPU"),
        ("1050 Ti", "GeForce GTX 1050 Ti"),
        ("2060 max-q", "GeForce RTX 2060 Max-Q"),
        ("T4G", "T4G"),
    ],
)
def test_a_part_that_only_one_name_has_is_enough(part, name):
    assert device(part).name == name


@pytest.mark.parametrize("name", [d.name for d in ALL])
def test_a_whole_name_means_itself(name):
    assert device(name).name == device(name.lower()).name == name


def test_a_part_of_several_names_lists_them():
    with pytest.raises(UnknownName) as info:
        device("H100")
    assert str(info.value) == "'H100' could be any of H100-SXM5-80GB, H100-PCIe-80GB: say which."
    with pytest.raises(UnknownName, match="A100-SXM4-40GB, A100-SXM4-80GB"):
        device("A100")
    with pytest.raises(UnknownName, match="GeForce GTX 1060 6GB, GeForce GTX 1060 3GB"):
        device("GTX 1060")
    with pytest.raises(UnknownName, match="V100-SXM2-16GB, Tesla V100-SXM2-32GB, Tesla V100-PCIE-16GB"):
        device("V100")


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA TITAN Xp", "TITAN Xp"),
        ("GeForce GTX 1060 6GB", "GeForce GTX 1060 6GB"),
        ("NVIDIA GeForce RTX 2060 with Max-Q Design", "GeForce RTX 2060 Max-Q"),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", "GeForce RTX 3050 Laptop GPU"),
        *((d.name, d.name) for d in ALL),
    ],
)
def test_a_drivers_name_finds_its_device(driver, name):
    assert device_of_driver(driver).name == name


@pytest.mark.parametrize(
    "driver",
    [
        "NVIDIA GeForce RTX 3080",
        "NVIDIA GeForce RTX 2080",
        "NVIDIA GeForce RTX 4060",
        "NVIDIA GeForce RTX 3070 Laptop GPU",
        "NVIDIA A100 80GB PCIe",
        "",
    ],
)
def test_a_driver_of_a_relative_finds_nothing(driver):
    with pytest.raises(UnknownName, match="no device named"):
        device_of_driver(driver)


@pytest.mark.parametrize("wrong", [None, 8, ["A100"], "", "  ", "4"])
def test_a_device_that_is_not_a_name_is_unknown(wrong):
    with pytest.raises(UnknownName, match="no device named"):
        device(wrong)


def test_a_device_passes_through_and_cannot_be_changed():
    gpu = dataclasses.replace(device("A10"), dram_gbs_spec=1.0)
    assert device(gpu) is gpu
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.sms = 1
    assert copy.deepcopy(gpu) == pickle.loads(pickle.dumps(gpu)) == gpu
    assert hash(device("A10")) == hash(device("A10"))
    assert gpu != device("A10")
