"""Exercise 04: half the warps, four times the loads.

Goal
    A camera's sensor counts light in 14 bits, and not quite evenly. `linearise` replaces every count by what the curve of
    16,384 entries says. Each block keeps the curve in shared memory: 32 KiB, of which an SM of an A100 holds four. So with
    blocks of 256 threads half of its places for warps stay empty, and each warp that is there waits for one number at a time.
    Do not bring in more warps. Make each thread wait less often.

Requirements
    - at least 4 loads of `raw` in flight per thread, but for a remainder (counted on 2**23 numbers)
    - theoretical occupancy at most 50 %, as it is: no larger blocks
    - the same sectors: every number read once, every result written once, the curve fetched once by each of 432 blocks
    - right for any number of numbers, in bounds, in one launch
    Change the kernel and `launch` as you like; keep their names and their parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 04, or `solcourse check ex04 --hint 1`.
"""

from numba import cuda, uint16

ENTRIES = 16384  # of the curve


@cuda.jit
def linearise(raw, curve, out):  # raw (n,) uint16 below 16384, curve (16384,) uint16, out (n,) uint16
    table = cuda.shared.array(ENTRIES, uint16)
    for entry in range(cuda.threadIdx.x, ENTRIES, cuda.blockDim.x):
        table[entry] = curve[entry]
    cuda.syncthreads()
    ### BEGIN SOLUTION
    held = cuda.local.array(8, uint16)
    step = cuda.gridsize(1)
    for first in range(cuda.grid(1), out.size, 8 * step):
        for k in range(8):
            if first + k * step < out.size:
                held[k] = raw[first + k * step]
        for k in range(8):
            if first + k * step < out.size:
                out[first + k * step] = table[held[k]]
    ### STUB
    # for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
    #     out[i] = table[raw[i]]
    ### END SOLUTION


def launch(n):
    """The grid and the block for n numbers: blocks, threads. Four blocks for each of 108 SMs, fewer where there is little to do."""
    threads = 256
    return min(4 * 108, (n + threads - 1) // threads), threads


### BEGIN HIDDEN TESTS
import numpy as np  # noqa: E402

from solcourse.grading import Exercise, GateSpec, Ran, blocks, bytes_moved, occupancy, sectors  # noqa: E402
from solcourse.latency import schedule  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(n, rng):
    """Any counts and any curve will do: they decide bank conflicts, and nothing that is judged."""
    return {
        "raw": rng.integers(0, ENTRIES, n, dtype=np.uint16),
        "curve": rng.integers(0, 2**16, ENTRIES, dtype=np.uint16),
        "out": np.empty(n, np.uint16),
    }


def raw_bytes(run: Ran) -> float:
    """Of the numbers alone, without the curve: a load for show is one too many."""
    pairs = (pair for one in run.runs for pair in zip(one.program.sites, one.site_counts, strict=True))
    return sum(counted.bytes for site, counted in pairs if site.kind == "global_load" and site.array == "raw")


def raw_loads_in_flight(run: Ran) -> float:
    """What four of five loads of raw share: so many are under way when the thread waits. Loads of the curve count for nothing."""
    requests: dict[int, int] = {}
    for one in run.runs:
        sites = zip(one.program.sites, one.site_counts, strict=True)
        made = [counted.requests if site.kind == "global_load" and site.array == "raw" else 0 for site, counted in sites]
        for site, together in enumerate(schedule(one.program).together):
            at_once = sum(made[other] > 0 for other in together)
            requests[at_once] = requests.get(at_once, 0) + made[site]
    enough = 0.8 * sum(requests.values())
    return max((least for least in requests if sum(n for at_once, n in requests.items() if at_once >= least) >= enough), default=0)


def gates(n):
    data, curves = 2 * n // 32, 432 * 2 * ENTRIES // 32
    return (
        occupancy(at_most=0.5),
        GateSpec(
            "loads of raw in flight per thread",
            raw_loads_in_flight,
            4,
            float("inf"),
            "A thread waits for a number before it asks for the next one: what could it have asked for already?",
            "",
        ),
        # a fifth more: a block may fetch a little twice, or there may be a few more blocks than 432
        sectors("global_load", at_least=data, at_most=(data + curves) * 6 // 5),
        GateSpec(
            "bytes of loads of raw",
            raw_bytes,
            2 * n,
            2 * n * 6 // 5,
            "Less than the work needs: every number counts.",
            "More than the work needs: a load whose number nobody uses hides no latency, it only takes the memory's time.",
        ),
        sectors("global_store", at_least=data, at_most=data * 6 // 5),
        bytes_moved("global_store", exactly=2 * n),
        blocks(at_least=108),
    )


EXERCISE = Exercise(
    kernel="linearise",
    arguments=arguments,
    outputs=("out",),
    reference=lambda raw, curve, out: {"out": curve[raw]},
    sizes=(1, 33, 1000, 4099, 150_001),
    gate_size=2**23,
    gates=gates,
    work=lambda n: Work.read("raw", 2 * n) + Work.read("curve", 2 * ENTRIES) + Work.write("out", 2 * n),
    hints=(
        "One turn of the loop is: ask for a number, wait for it some hundred cycles, look it up, store. The next number's address is "
        "known long before that. Why does nobody ask for it earlier? Look at what stands between two loads.",
        "Neither thread nor compiler may read `raw` past a store to `out`: for all they know the two overlap. So let one turn handle "
        "several numbers, and finish asking before you begin storing. Let the numbers of one thread lie a whole grid apart: then the "
        "lanes of a warp still read neighbours.",
        "Keep what is read in `held = cuda.local.array(8, uint16)`: with two loops over a fixed range it lives in registers. In the "
        "first, number k of a turn goes into held[k]; in the second it is looked up and stored. Guard both, and let the turns lie eight "
        "grids apart.",
    ),
    after="As many bytes, as few warps, and two thirds of the time or less: the memory was never the limit, the waiting was. "
    "Lesson 05: what happens when the lanes of one warp do not all have work.",
)
### END HIDDEN TESTS
