"""The timeline of one scheduler: sums by hand for tiny programs, laws for any, and agreement with the model it is made of."""

from __future__ import annotations

import html
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from handmade_runs import LANE, copy_run, load, make_run, op, program, store
from reports_by_hand import a_report

import solcourse as sol
from solcourse import bounds, stills, svg
from solcourse.errors import SolcourseError
from solcourse.hardware import device
from solcourse.latency import Latencies, schedule, walk
from solcourse.model import dram_eta, predict, turnaround_cycles
from solcourse.occupancy import occupancy
from solcourse.report import predicted
from solcourse.timeline import STATES, Shared, simulate, timeline
from solcourse.timeline_figures import LOOKS, of_report, picture, window
from solcourse.timeline_streams import Service, pieces, services
from solcourse.traffic import traffic

A100 = device("A100-SXM4-80GB")
LAT = Latencies(4.0, 8.0, 22.0, (1.0,) * 7, (500.0, 1.0, 500.0), (1.0,) * 3, barrier=20.0)
BARRIER = op(-1, (), "adu", 1, "barrier")


def run_of(prog, *blocks, cycles=20_000, lat=LAT, **shared):
    """blocks: one list of executions for each warp of each block."""
    return simulate(schedule(prog), blocks, lat, cycles, shared=Shared(**shared))


def straight(*ops, kinds=("global_load", "global_store", "global_load")):
    return program([(ops, ())], kinds)


def chain(length):
    return straight(*(op(i, (i - 1,) if i else (), "fma") for i in range(length)))


def spans(shown, place=0):
    return [tuple(span) for span in shown.places[place]]


def issued(shown, place):
    return [cycle for start, end, state in shown.places[place] if state == "issued" for cycle in range(start, end)]


def end_of(shown, place=0):
    last = shown.places[place][-1]
    assert last.state == "finished"
    return last.start


LOADS = straight(op(0), load(1, 0, 0), op(2, (1,), "fma"), store(0, 2, 1))
MIXED = straight(op(0), load(1, 0, 0), op(3, (), "xu", 6, "xu"), op(4, (1, 3), "fma", 3), BARRIER, store(0, 4, 1), op(5, (4,), "alu", 2))


def sum_loop():
    """s += x[i]: unrolled by the walk, 16 iterations at a time."""
    body = [
        op(7, (), "none", 0, "none", phi=((0, 0), (1, 11))), op(8, (), "none", 0, "none", phi=((0, 0), (1, 9))),
        load(10, 7, 0), op(9, (8, 10), "fma"), op(11, (7,)), op(-1, (11,), "cbu", 1, "alu"),
    ]  # fmt: skip
    return program([([op(0)], (1,)), (body, (1, 2), 1), ([op(99, (9,))], ())], ("global_load",))


def nested():
    inner = [op(8, (), "none", 0, "none", phi=((1, 7), (2, 9))), op(9, (8,), "fma")]
    return program([([op(0)], (1,)), ([op(7)], (2,), 1), (inner, (2, 3), 2), ([op(10, (9,))], (1, 4), 1), ([op(11)], ())], ())


# ------------------------------------------------------------------------------------------------------------- sums by hand
def test_a_load_and_what_waits_for_it():
    # the address is ready at 4, the value at 4 + 500, the FMA's result at 504 + 4
    assert spans(run_of(LOADS, [[1]]))[:-1] == [
        (0, 1, "issued"), (1, 4, "dependency"), (4, 5, "issued"), (5, 504, "memory"),
        (504, 505, "issued"), (505, 508, "dependency"), (508, 509, "issued"),
    ]  # fmt: skip


def test_the_oldest_warp_that_can_issue_does():
    three = straight(op(0), op(1), op(2))
    shown = run_of(three, [[1]], [[1]], cycles=10)
    assert spans(shown, 0) == [(0, 3, "issued"), (3, 10, "finished")]
    assert spans(shown, 1) == [(0, 3, "not_selected"), (3, 6, "issued"), (6, 10, "finished")]


def test_another_warp_goes_between_the_issues_of_a_long_operation():
    # warp 0's FMA waits from 1 to 4; warp 1 has issued 3 of its 8 by then and goes on afterwards
    prog = program([([op(0)], (1,)), ([op(1, (0,), "fma")], (2,)), ([op(2, (), "alu", 8)], ())], ())
    shown = run_of(prog, [[1, 1, 0]], [[0, 0, 1]], cycles=20)
    assert issued(shown, 0) == [0, 4]
    assert issued(shown, 1) == [1, 2, 3, 5, 6, 7, 8, 9]


def test_a_busy_pipe_holds_back_the_warps_that_want_it_and_no_others():
    lat = replace(LAT, busy=(1.0, 1.0, 4.0, 1.0, 1.0, 1.0, 1.0))  # fp64: 4 cycles for a warp
    prog = program([([op(0, (), "fp64", 1, "fp64")], ()), ([op(1)], ())], ())
    shown = run_of(prog, [[1, 0]], [[1, 0]], [[0, 1]], lat=lat, cycles=20)
    assert issued(shown, 1) == [4]
    assert spans(shown, 1)[0] == (0, 4, "dependency")
    assert issued(shown, 2) == [1]


def test_a_barrier_waits_for_every_warp_of_its_block_and_no_other():
    # warp 1 goes through a chain of 25 FMAs first: 24 x 4 + 1 cycles after warp 0's only issue
    prog = program([([op(i, (i - 1,) if i else (), "fma") for i in range(25)], (1,)), ([BARRIER, op(99)], ())], ())
    shown = run_of(prog, [[0, 1], [1, 1]], [[0, 1]])
    late = issued(shown, 1)[-2]
    assert late == pytest.approx(97, abs=3)
    assert ("barrier", late + 1 + 20) in [(state, end) for _, end, state in spans(shown, 0)]
    assert issued(shown, 0)[-1] >= late + 21
    assert issued(shown, 1)[-1] >= late + 21
    assert issued(shown, 2)[-1] == pytest.approx(22, abs=2)


def test_a_warp_that_has_ended_holds_up_no_barrier():
    prog = program([([BARRIER, op(1)], ()), ([op(2)], ())], ())
    assert end_of(run_of(prog, [[1, 0], [0, 1]])) < 30


def test_the_next_block_comes_after_the_turnaround():
    shown = run_of(chain(5), [[1], [1]], turnaround=300.0, blocks=2, cycles=2000)
    first = 18  # two warps of 4 x 4 + 1 cycles, one cycle apart
    assert shown.starts == ((0, first + 300, 2 * (first + 300)),) * 2
    assert [len(issued(shown, place)) for place in (0, 1)] == [15, 15]


# --------------------------------------------------------------------------------------------------------------------- laws
@pytest.mark.parametrize(
    ("prog", "executions"),
    [(chain(300), [1]), (LOADS, [1]), (MIXED, [1]), (sum_loop(), [1, 1600, 1]), (nested(), [1, 10, 400, 10, 1])],
    ids=["chain", "loads", "mixed", "unrolled", "nested"],
)
def test_one_warp_alone_takes_the_walks_cycles(prog, executions):
    shown = run_of(prog, [executions], cycles=80_000)
    assert end_of(shown) == pytest.approx(walk(schedule(prog), executions, LAT).cycles, rel=0.02)
    slots = schedule(prog).slots
    assert len(issued(shown, 0)) == sum(n * times for n, times in zip(slots, executions, strict=True))


@pytest.mark.parametrize(("warps", "utilisation"), [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0), (8, 1.0)])
def test_independent_warps_fill_the_issue_slots(warps, utilisation):
    # a chain leaves 3 of 4 slots empty: latency 4
    shown = run_of(chain(1000), *[[[1]]] * warps, cycles=900)
    assert shown.issue_utilisation == pytest.approx(utilisation, abs=0.01)


@pytest.mark.parametrize("warps", [1, 3, 16])
def test_every_warp_issues_all_its_instructions_and_no_two_at_once(warps):
    shown = run_of(MIXED, *[[[1], [1]]] * warps, cycles=5000)
    each = [issued(shown, place) for place in range(2 * warps)]
    assert {len(cycles) for cycles in each} == {15}
    assert len(set(itertools.chain(*each))) == 15 * 2 * warps


def test_spans_cover_the_window_and_a_window_is_a_part_of_the_whole():
    settings = {"turnaround": 50.0, "blocks": 9, "services": (((Service(2, 30.0, 1.0),)), (), ())}
    whole = run_of(MIXED, [[1], [1]], [[1], [1]], cycles=3000, **settings)
    part = simulate(schedule(MIXED), [[[1], [1]]] * 2, LAT, 700, 1100, Shared(**settings))
    for shown in (whole, part):
        for row in shown.places:
            assert row[0].start == shown.start
            assert row[-1].end == shown.start + shown.cycles
            assert all(a.end == b.start and a.start < a.end for a, b in itertools.pairwise(row))
        assert sum(shown.shares.values()) == pytest.approx(1.0)
        assert set(shown.shares) == set(STATES)
    for place in range(4):
        assert issued(part, place) == [cycle for cycle in issued(whole, place) if 1100 <= cycle < 1800]


def test_where_bandwidth_is_short_each_warp_waits_longer_than_the_one_before():
    # 100 cycles of the path a request: the nth warp's data are there 500 + 100 n cycles after the first has asked
    shown = run_of(LOADS, *[[[1]]] * 6, services=((Service(0, 100.0, 1.0),), (), ()))
    used = [issued(shown, place)[2] for place in range(6)]
    assert used == [pytest.approx(504 + 100 * n, abs=12) for n in range(6)]


def test_stores_that_the_path_cannot_take_hold_their_warp_back():
    # 40 stores at 100 cycles each; 500 cycles' worth of them may be under way
    prog = straight(op(0), *(store(0, 0, 1) for _ in range(40)))
    shown = run_of(prog, [[1]], services=((), (Service(0, 100.0, 1.0),), ()), in_flight=500.0)
    assert issued(shown, 0)[-1] == pytest.approx(100 * 39 - 500, rel=0.05)
    assert end_of(shown) == pytest.approx(100 * 39, rel=0.05)
    assert shown.shares["memory"] * 20_000 == pytest.approx(100 * 39, rel=0.1)


def test_a_pipe_of_the_whole_sm_is_shared_with_the_other_partitions():
    prog = straight(op(0), *(load(1 + i, 0, 0) for i in range(8)))
    alone, shared = (issued(run_of(prog, [[1]], pipes=(1, 1, 1, 1, n, 1, 1)), 0) for n in (1, 4))
    assert alone[-1] - alone[1] == 7
    assert shared[-1] - shared[1] == 28


def test_a_block_taken_half_the_time_runs_every_other_round_and_a_loops_last_test_last():
    body, rare = [op(8, (), "none", 0, "none", phi=((0, 0), (2, 9))), op(9, (8,))], [op(20)]
    prog = program([([op(0)], (1,)), (body, (2, 3), 1), (rare, (1,), 1), ([op(30)], ())], ())

    def order(executions):
        return "".join(str(piece[-1].dest) + " " for piece in pieces(schedule(prog), executions)).split()

    assert order([1, 4, 2, 1]) == ["0", "9", "20", "9", "9", "20", "9", "30"]
    assert order([1, 4, 3, 1]) == ["0", "9", "20", "9", "20", "9", "20", "9", "30"]
    assert order([1, 0, 0, 1]) == ["0", "30"]


# ------------------------------------------------------------------------------------------------------------ on real devices
def made(run, gpu=A100, registers=32, shared=0):
    fits = occupancy(gpu, run.threads_per_block, registers, shared)
    return run, traffic(run, gpu, fits), gpu, fits


@pytest.mark.parametrize("name", ["A100-SXM4-80GB", "H200-SXM", "P100-PCIE-16GB"])
def test_what_the_requests_take_adds_up_to_the_models_bounds(name):
    run, moved, gpu, _ = made(copy_run(8000, traced=400), device(name))
    sums = [0.0] * 4
    for counted, ways in zip(run.site_counts, services(run, moved, gpu, gpu.sms, gpu.partitions), strict=True):
        for path, cycles, part in ways:
            assert 0 < part <= 1
            sums[path] += counted.requests * cycles / (gpu.sms * gpu.partitions)
    sectors = moved.l1_miss_sectors + run.counts.global_store.sectors
    eta = dram_eta(gpu, moved.dram_read_bytes, moved.dram_write_bytes)
    assert sums[0] == pytest.approx(bounds.fill_cycles(sectors) / gpu.sms)
    assert sums[1] == pytest.approx(bounds.l2_seconds(moved.l2_bytes, 0, gpu) * gpu.clock_hz)
    assert sums[2] == pytest.approx(bounds.dram_seconds(moved.dram_bytes, gpu, eta) * gpu.clock_hz)
    assert sums[3] == 0


def test_the_turnaround_is_the_models():
    for writes in (True, False):
        prog = straight(op(0), load(1, 0, 0), *([store(0, 1, 1)] if writes else [op(2, (1,))]), kinds=("global_load", "global_store"))
        run = make_run(prog, 4000, 256, lambda b, w, n=1 + writes: [(s, 4 * (256 * b + 32 * w + LANE) + (s << 34)) for s in range(n)])
        said = predict(*made(run))
        assert said.block_cycles - said.warp_cycles == pytest.approx(turnaround_cycles(run, A100))


@pytest.mark.parametrize(("shared", "within"), [(0, 0.12), (80 * 1024, 0.12), (150 * 1024, 0.15)], ids=["8 blocks", "2 blocks", "1 block"])
def test_blocks_go_by_as_fast_as_the_model_says(shared, within):
    run, moved, gpu, fits = made(copy_run(80_000, traced=400), shared=shared)
    body_cycles = predict(run, moved, gpu, fits).body_s * gpu.clock_hz
    shown = timeline(run, moved, gpu, fits, cycles=12_000, start=3000)
    issues = 80_000 / gpu.sms * run.warps_per_block / gpu.partitions * 3  # of one scheduler: three instructions a warp
    assert shown.issue_utilisation == pytest.approx(issues / body_cycles, rel=within)


def test_fewer_resident_warps_leave_more_of_the_issue_slots_empty():
    run = copy_run(80_000, traced=400)
    used = [timeline(*made(run, shared=kib * 1024), cycles=4000, start=2000).issue_utilisation for kib in (150, 80, 40, 0)]
    assert used == sorted(used)
    assert used[-1] > 3 * used[0]


@pytest.mark.parametrize(
    ("block", "blocks", "places"), [(32, 4 * 108, 1), (32, 80_000, 8), (64, 80_000, 16), (96, 80_000, 16), (256, 3, 2)]
)
def test_a_partition_holds_its_part_of_the_resident_warps(block, blocks, places):
    # A100: at most 32 blocks and 64 warps on an SM, a fourth of the warps to each scheduler (96 threads: 21 blocks, 63 warps, 16 here)
    shown = timeline(*made(copy_run(blocks, block, traced=min(blocks, 300))), cycles=400)
    assert len(shown.places) == places


def test_every_device_has_a_timeline():
    for gpu in sol.devices():
        run = copy_run(4000, traced=200)
        shown = timeline(*made(run, gpu), cycles=600)
        assert 0 < shown.issue_utilisation < 1
        assert shown.shares["memory"] > 0.3


def test_warps_may_do_different_things():
    prog = program([([op(0)], (1, 2)), ([op(i, (i - 1,)) for i in range(1, 50)], (2,)), ([op(60)], ())], ())
    executions = np.array([[[1, w % 8 == 0, 1] for w in range(8)]] * 10)
    shown = timeline(*made(make_run(prog, 10, 256, lambda b, w: [], executions=executions)), cycles=400)
    assert [len(issued(shown, place)) for place in (0, 1)] == [51, 2]  # warps 0 and 4 of the only block


# ------------------------------------------------------------------------------------------------------------------ the picture
@pytest.fixture(scope="module")
def report():
    return predicted(copy_run(80_000, traced=400), A100)


def label_of(markup):
    return html.unescape(re.search(r'aria-label="([^"]*)"', markup)[1])


def test_the_picture_says_its_shares(report):
    shown = timeline(report.run, report.traffic, A100, report.occupancy, 800, 1200)
    markup = of_report(report, 800, 1200)
    said = label_of(markup)
    assert "One scheduler, predicted: handmade on A100-SXM4-80GB; cycles 1,200 to 2,000, 16 warps" in said
    assert f"issued in {100 * shown.issue_utilisation:.1f} % of the cycles" in said
    for state, share in shown.shares.items():
        assert f"{LOOKS[state].words} {100 * share:.1f} %" in said
        assert f">{100 * share:.1f} %</text>" in markup


def test_states_differ_by_more_than_colour():
    shapes = [(look.width, look.dashes) for look in LOOKS.values()]
    assert len(set(shapes)) == len(STATES) == len(LOOKS)


def test_every_span_is_drawn_in_its_place():
    shown = run_of(LOADS, [[1]], cycles=760)  # half a pixel for each cycle, from 58 on
    rows = re.findall(r'<path d="(M[\d.]+ 50\.5H[^"]*)"[^>]* stroke-width="(\d)"', picture(shown))
    found = {width: way for way, width in rows}
    assert found[str(LOOKS["memory"].width)] == "M60.5 50.5H310"
    assert found[str(LOOKS["issued"].width)] == "M58 50.5H58.5M60 50.5H60.5M310 50.5H310.5M312 50.5H312.5"


def test_lessons_show_it_and_a_still_can_draw_it(report):
    shown = sol.show.timeline(report)
    start, cycles = window(report.prediction.block_cycles, False)
    assert f"cycles {start:,} to {start + cycles:,}, 16 warps" in str(shown)
    assert len(shown.markup) < 100_000
    canvas = stills.Canvas(*stills.size_of(shown.markup))
    canvas.draw(shown.markup)
    assert canvas.drawn > 25
    assert svg.ORANGE in shown.markup


def test_what_cannot_be_shown_is_refused(report):
    with pytest.raises(SolcourseError, match="without an engine run"):
        sol.show.timeline(a_report(run=None))
    for cycles, start in ((0, 0), (100_000, 0), (500, -1), (500, 10**6)):
        with pytest.raises(SolcourseError, match="1 to 10,000 cycles"):
            sol.show.timeline(report, cycles, start)
