"""The engine's counts against Nsight Compute's, on the reference kernels: the reader of its CSV anywhere, the rest where ncu may count."""

from __future__ import annotations

import ncu_counts
import pytest
import reference_launches

import solcourse as sol
from solcourse import gpu as driver
from solcourse.kernels import cases

SAMPLE = """\
something a kernel printed
==PROF== Connected to process 4242
==PROF== Profiling "copy" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","a_op.sum","f_fadd.sum","f_ffma.sum"
"","","","","inst","inst"
"0","4242","copy(Array<float, 1, C>)","1,024","3","5"
"1","4242","scale","2,048","n/a","0"
"""


def test_ncus_rows_are_read_in_order_and_its_units_are_not_a_row():
    rows = ncu_counts.read(SAMPLE)
    assert [row["Kernel Name"] for row in rows] == ["copy(Array<float, 1, C>)", "scale"]
    patterns = {"requests": "a_op.sum", "flops": "f_{fadd,ffma}.sum"}
    assert ncu_counts.counts(rows[0], patterns) == {"requests": 1024, "flops": 13}  # 3 + 2 x 5
    assert ncu_counts.counts(rows[1], patterns) == {"requests": 2048}  # n/a is no count


def test_ncus_own_words_say_why_there_is_no_table():
    refusal = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"
    with pytest.raises(ncu_counts.NcuFailed, match="ERR_NVGPUCTRPERM"):
        ncu_counts.read(refusal)


@pytest.mark.parametrize("cc", [7.5, 8.0, 9.0, 12.0])
def test_ncu_is_asked_for_plain_metrics(cc):
    patterns = ncu_counts.counters(cc)
    assert {"counts.global_load.sectors", "counts.shared_store.wavefronts", "counts.global_atomic.requests"} <= set(patterns)
    asked = ncu_counts.command("ncu", patterns.values(), "pass")
    names = asked[asked.index("--metrics") + 1].split(",")
    assert len(names) > 15
    assert all(name.endswith(".sum") and not set(name) & set("{}/ ") for name in names)


def test_every_reference_kernel_is_launched_once_in_the_script(monkeypatch):
    names = list(cases())
    launched = []
    monkeypatch.setattr(reference_launches, "small", lambda name: (lambda *args: launched.append((name, args)), (1, 2)))
    exec(reference_launches.script(names), {})
    assert launched == [(name, (1, 2)) for name in names]


def test_the_engines_counts_are_ncus(real_gpu):
    cc = float(driver.facts(driver.require_cuda()).cc)
    patterns, names = ncu_counts.counters(cc), list(cases())
    try:
        rows = ncu_counts.run(reference_launches.script(names), list(patterns.values()))
    except ncu_counts.NcuFailed as why:
        pytest.skip(str(why)[:300])
    assert len(rows) == len(names), "ncu saw other launches than the script's"
    unlike, compared = [("kernel", "counter", "engine", "ncu")], 0
    for name, row in zip(names, rows, strict=True):
        launch, arguments = reference_launches.small(name)
        report = sol.profile(launch, *arguments, device=driver.relative_of(driver.facts(driver.require_cuda())))
        for counter, ncu in ncu_counts.counts(row, patterns).items():
            compared += 1
            engine = sol_value(report, counter)
            if engine != ncu:
                unlike.append((name, counter, f"{engine:,}", f"{ncu:,}"))
    print(f"\n{compared - len(unlike) + 1} of {compared} counts are equal\n{reference_launches.table(unlike)}")
    assert compared > 10 * len(names)
    assert len(unlike) == 1


def sol_value(report, name: str) -> int:
    from solcourse.counters import value

    return int(value(report, name))
