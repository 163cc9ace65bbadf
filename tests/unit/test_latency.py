"""One warp's walk: what a dependent chain, independent work, loops, loads and branches cost alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade_runs import load, op, program, store

from solcourse.latency import HOIST, UNROLL, UNROLL_LOADS, Latencies, hoist_loads, schedule, walk

GLOBAL, SHARED = "global_load", "shared_load"


def cycles(prog, executions, *, busy=(1.0,) * 6, site=(), alu=4.0):
    lat = Latencies(alu, 8.0, 22.0, busy, tuple(site), (1.0,) * len(site))
    return walk(schedule(prog), executions, lat)


def chains(n, length):
    """n independent chains of FMAs, interleaved: value v of chain c depends on the value before."""
    return [op(c + n * i, (c + n * (i - 1),) if i else (), "fma") for i in range(length) for c in range(n)]


@pytest.mark.parametrize(("n", "per_fma"), [(1, 4.0), (2, 2.0), (4, 1.0), (8, 1.0)])
def test_independent_chains_hide_the_latency_of_each_other(n, per_fma):
    # latency 4, one issue per clock: max(4 / n, 1) cycles per FMA, as measured on H200 (4.01, 2.00, 1.01, 1.01)
    walked = cycles(program([(chains(n, 1000), ())], ()), [1])
    assert walked.cycles / (n * 1000) == pytest.approx(per_fma, rel=0.01)


def test_a_thin_pipe_holds_back_independent_work():
    # 8 chains, but the pipe takes one warp instruction in 4 cycles (32 lanes / 8 per partition: fp64 on V100)
    busy = (1.0, 1.0, 4.0, 1.0, 1.0, 1.0)  # PIPES: fma alu fp64 ...
    body = [op(c + 8 * i, (c + 8 * (i - 1),) if i else (), "fp64", 1, "fp64") for i in range(100) for c in range(8)]
    walked = cycles(program([(body, ())], ()), [1], busy=busy)
    assert walked.cycles / 800 == pytest.approx(4.0, rel=0.01)
    assert walked.stalls["math_pipe_throttle"] > 0.7 * walked.cycles


def test_stalls_add_up_to_the_cycles():
    body = [op(0), load(1, 0, 0), op(2, (1,), "fma"), op(3, (2,), "xu", 1, "xu"), op(4, (3,), "fma")]
    walked = cycles(program([(body, ())], (GLOBAL,)), [1], site=(500.0,))
    assert sum(walked.stalls.values()) == pytest.approx(walked.cycles)
    # address at 0 is ready at 4, the load at 4 + 500; FMA to 508; MUFU 22 later
    assert walked.stalls["long_scoreboard"] == pytest.approx(499)
    assert walked.stalls["short_scoreboard"] == pytest.approx(21)


def counted_loop(body, n_sites=(), depth=1):
    """entry -> body (back to itself) -> exit."""
    return program([([op(0)], (1,)), (body, (1, 2), depth), ([op(99, (9,))], ())], n_sites)


def test_a_loop_costs_its_iterations():
    # phi 8 <- 9; FMA 9 <- 8: a chain of one FMA per iteration, 4 cycles each
    body = [op(8, (), "none", 0, "none", phi=((0, 0), (1, 9))), op(9, (8,), "fma")]
    walked = cycles(counted_loop(body), [1, 1000, 1])
    assert walked.cycles == pytest.approx(4 * 1000, rel=0.01)


def test_nested_loops_multiply():
    inner = [op(8, (), "none", 0, "none", phi=((1, 7), (2, 9))), op(9, (8,), "fma")]
    prog = program(
        [([op(0)], (1,)), ([op(7)], (2,), 1), (inner, (2, 3), 2), ([op(10, (9,))], (1, 4), 1), ([op(11)], ())],
        (),
    )
    # 10 times (100 FMAs in a chain + about 5 cycles around them)
    assert cycles(prog, [1, 10, 1000, 10, 1]).cycles == pytest.approx(4 * 1000, rel=0.05)


def test_independent_loads_wait_once_and_dependent_ones_each():
    free = [op(0)] + [load(1 + i, 0, 0) for i in range(4)] + [op(9, (1, 2, 3, 4))]
    chained = [op(0)] + [load(1 + i, i, 0) for i in range(4)] + [op(9, (4,))]
    assert cycles(program([(free, ())], (GLOBAL,)), [1], site=(500.0,)).cycles == pytest.approx(500, abs=20)
    assert cycles(program([(chained, ())], (GLOBAL,)), [1], site=(500.0,)).cycles == pytest.approx(2000, abs=20)


def test_a_load_moves_up_past_the_use_of_another_but_not_past_a_store():
    moved = [load(1, 0, 0), op(5, (1,)), load(2, 0, 0), op(6, (2,))]
    barred = [load(1, 0, 0), store(0, 1, 1), load(2, 0, 0), op(6, (2,))]
    assert cycles(program([(moved, ())], (GLOBAL,)), [1], site=(500.0,)).cycles < 520
    assert cycles(program([(barred, ())], (GLOBAL, "global_store")), [1], site=(500.0, 0.0)).cycles > 1000


def test_a_global_load_passes_a_shared_store():
    body = [load(1, 0, 0), store(0, 1, 1, "shared"), load(2, 0, 0), op(6, (2,))]
    assert cycles(program([(body, ())], (GLOBAL, "shared_store")), [1], site=(500.0, 0.0)).cycles < 520


def test_no_load_moves_above_a_barrier():
    body = [load(1, 0, 0), op(3, (1,)), op(-1, (), "lsu", 1, "barrier"), load(2, 0, 0), op(6, (2,))]
    assert cycles(program([(body, ())], (GLOBAL,)), [1], site=(500.0,)).cycles > 1000


def test_hoisting_keeps_every_operation_once_and_operands_first():
    body = [op(0)]
    for i in range(20):
        body += [op(10 + 3 * i, (0,)), load(11 + 3 * i, 10 + 3 * i, 0), op(12 + 3 * i, (11 + 3 * i,))]
    order = hoist_loads(schedule(program([(body, ())], (GLOBAL,))).blocks[0])
    assert sorted(step.dest for step in order) == sorted(o.dest for o in body)
    at = {step.dest: i for i, step in enumerate(order)}
    assert all(at[source] < at[step.dest] for step in order for source in step.sources)
    # between two waits at most HOIST loads are under way
    waited = {11 + 3 * i for i in range(20)}
    under_way = most = 0
    for step in order:
        if step.loads:
            under_way += 1
        elif any(s in waited for s in step.sources):
            most, under_way = max(most, under_way), 0
    assert most == HOIST


def sum_loop(barrier=False):
    """s += x[i]: the loop ptxas unrolls four times."""
    body = [
        op(7, (), "none", 0, "none", phi=((0, 0), (1, 11))),
        op(8, (), "none", 0, "none", phi=((0, 0), (1, 9))),
        load(10, 7, 0),
        op(9, (8, 10), "fma"),
        op(11, (7,)),
        op(-1, (11,), "cbu", 1, "alu"),
    ]
    if barrier:
        body.insert(4, op(-1, (), "lsu", 1, "barrier"))
    return counted_loop(body, (GLOBAL,))


def test_a_small_loop_that_only_loads_has_sixteen_loads_in_flight():
    # 500 cycles of latency, and 16 dependent FMAs of 4 cycles minus what overlaps, for every 16 iterations instead of for each
    per_round = cycles(sum_loop(), [1, 1600, 1], site=(500.0,)).cycles / 100
    assert 500 + 16 * 4 < per_round < 500 + 16 * 4 + 3 * 16
    assert schedule(sum_loop()).stall_weight == (1 / UNROLL_LOADS,)


def test_a_loop_that_fills_shared_memory_has_four_loads_in_flight():
    body = sum_loop().blocks[1].ops
    stores = program([([op(0)], (1,)), ([*body[:-1], store(7, 9, 1), body[-1]], (1, 2), 1), ([op(99, (9,))], ())], (GLOBAL, "shared_store"))
    assert cycles(stores, [1, 400, 1], site=(500.0, 1.0)).cycles / 400 == pytest.approx(500 / UNROLL, rel=0.15)


def test_a_step_from_outside_keeps_a_loop_rolled():
    """A grid-stride loop: its step is gridDim x blockDim, which ptxas does not know."""
    body = [replace(o, sources=(7, 0)) if o.dest == 11 else o for o in sum_loop().blocks[1].ops]
    assert cycles(counted_loop(body, (GLOBAL,)), [1, 400, 1], site=(500.0,)).cycles / 400 > 500


def test_a_barrier_in_the_loop_keeps_it_rolled():
    assert cycles(sum_loop(barrier=True), [1, 400, 1], site=(500.0,)).cycles / 400 > 500
    assert schedule(sum_loop(barrier=True)).stall_weight == (1.0,)


def test_a_loop_that_ends_on_what_it_loads_is_not_unrolled():
    body = [
        op(7, (), "none", 0, "none", phi=((0, 0), (1, 11))),
        load(10, 7, 0),
        op(11, (7,)),
        op(12, (10,)),
        op(-1, (12,), "cbu", 1, "alu"),
    ]
    assert cycles(counted_loop(body, (GLOBAL,)), [1, 400, 1], site=(500.0,)).cycles / 400 > 500


def test_both_sides_of_a_divergent_branch_are_paid_and_a_skipped_side_is_not():
    side = [op(20 + i, (19 + i,) if i else ()) for i in range(10)]
    prog = program([([op(0)], (1, 2)), (side, (3,)), (list(side), (3,)), ([op(40)], ())], ())
    both, one = cycles(prog, [1, 1, 1, 1]).cycles, cycles(prog, [1, 1, 0, 1]).cycles
    assert both - one == pytest.approx(37, abs=5)  # 9 x 4 + 1


def test_a_block_taken_half_the_time_costs_half():
    rare = [op(20 + i, (19 + i,) if i else ()) for i in range(100)]
    prog = program([([op(0)], (1, 2)), (rare, (2,)), ([op(40)], ())], ())
    always, half = cycles(prog, [10, 10, 10]).cycles, cycles(prog, [10, 5, 10]).cycles
    assert half == pytest.approx(always / 2, rel=0.05)


def test_more_iterations_never_cost_less():
    # multiples of 16: the rest of 13 takes an 8 and a 4, one latency each, where 16 go together
    times = [cycles(sum_loop(), [1, n, 1], site=(500.0,)).cycles for n in (1, 2, 3, 16, 17, 24, 32, 100, 101)][3:]
    assert times == sorted(times)
    parts = [cycles(sum_loop(), [1, n, 1], site=(500.0,)).cycles for n in (4, 5, 6, 7)]
    assert parts == sorted(parts)
