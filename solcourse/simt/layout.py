"""Memory layout shared by the generated code and the machine that runs it: the definition of every offset, in bytes.

THREAD   one per worker thread: cursors, error record, where its counters are
LAUNCH   one per launch: sizes, tables, the arguments, the next block to hand out
ALLOC    one row per array the kernel can address
MEMO     per memory site, a few remembered lane patterns with what they cost
"""

from __future__ import annotations

THREAD = {
    name: 8 * k
    for k, name in enumerate(
        "launch exec shared local saved trace trace_end ctaid_x ctaid_y ctaid_z block warp "
        "error error_site error_lane error_offset error_mask error_size memo totals sum0 sum1 phase arrival scratch allocs words "
        "blocks blocks_count exec_common dummy shared_fill divergent trace_limit trace_dead bypassed trace_warp shapes shapes_used shapes_limit "
        "raised raised_block raised_thread print_at print_end print_lost enter moved moves trace_from shadow".split()
    )
}
THREAD_BYTES = 8 * 64

LAUNCH = {
    name: 8 * k
    for k, name in enumerate(
        "next stop end chunk grid_x grid_y grid_z block_x block_y block_z warps tid_x tid_y tid_z masks "
        "dynamic_shared shared_bytes local_bytes saved_bytes exec_rows exec_rows_blocks exec_row_bytes first done "
        "args trace_blocks shadow_rows".split()
    )
}
LAUNCH_BYTES = 8 * 32

# line: of the array's first byte in the virtual address space, in the upper half of the word
ALLOC = {"base": 0, "size": 8, "line": 16, "read": 24, "written": 32, "stamp": 40, "count": 48, "spare": 56}
ALLOC_BYTES = 64

# One remembered lane pattern of a site. First what every access looks at: hits; mask int32 (of the active lanes, never 0: 0 means
# empty); kind and lines int16 (lines: how many it touches); low: its lowest offset, relative to the first active lane's; room: how
# many lowest offsets are inside the site's array; shape: where the Trace's shapes have its lines; words int32: its mask of the first
# line; run: room where it is 32 lanes at the site's stride from the start of a word, else 0. Then what each hit costs, span (bytes from
# the lowest to behind the highest), the pattern itself (offsets relative to the start of the first active lane's line) and its lines.
MEMO = {
    "hits": 0, "mask": 8, "kind": 12, "lines": 14, "low": 16, "room": 24, "shape": 32, "words": 40, "run": 48,
    "sectors": 64, "wavefronts": 72, "conflicts": 80, "span": 88, "pattern": 128, "line": 384,
}  # fmt: skip
MEMO_BYTES = 384 + 8 * 64
MEMO_WAYS = 32  # a run from the n-th word of a line is in entry n
SITE_BYTES = MEMO_WAYS * MEMO_BYTES + 192  # of one site: no multiple of 4096, or the same entry of all sites would share a set of the cache
# MEMO kind: 1 unit stride over all 32 lanes, 2 one address, 0 anything else

TOTALS_BYTES = 40  # per site: sectors, wavefronts, conflicts; requests and lanes where they are not those of the basic block

ERROR_BOUNDS, ERROR_STOPPED = 1, 2
# why a warp stopped; AT_BOTH: some of its lanes at the block's barrier, some at the grid's. simt_run returns DONE (no block is
# left), FAILED, SPINNING or AT_GRID (a block is suspended, and why), or ENDED (the block that went on has ended)
DONE, AT_BARRIER, FAILED, SPINNING, AT_GRID, AT_BOTH, ENDED = range(7)
FRESH, RELEASED, CONTINUED = 0, 1, 2  # how a warp, or a block, is entered
# the saved state of a warp: state i32 (SAVED_ENDED, or 1 + barrier in lockstep, or 1), why it stopped i32, turns of waiting loops i32,
# from SAVED_MASKS on the mask of each barrier, then (kernels that spin) of each basic block, then values
SAVED_ENDED, SAVED_HOW, SAVED_TURNS, SAVED_MASKS = -1, 4, 8, 64
CHANGED_GLOBAL, CHANGED_OWN = 1, 2  # what a block changed: global memory, its own shared or local memory

# a block that was traced: linear index, addresses of its first request and behind its last
TRACED_BYTES = 24

# The Trace as it is recorded: one word for each request, and what many of them share once, in `shapes`:
#   request  line of the first active lane << 32 | warp in block << 24 | index of its shape
#   shape    header as in records.Trace, without the warp, and its line words, relative to the request's line; the first is empty
LINE_UP, TRACE_WARP = 32, 24
MOST_STRIDE = 1 << 14  # bytes, of a site that looks for runs
UNIFORM_SHAPES = 64  # words of the shapes of a site whose lanes all have one address: a header and a line for each place in a line
