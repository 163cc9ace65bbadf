"""Exercise 01: pay for what you use.

Goal
    `normalise` maps every number of an image, four float32 to a pixel (r, g, b, a), to (number - mean) * scale.
    It is right at every size. It is also wasteful: each time a warp asks memory for something, its 32 lanes stand
    16 bytes apart, and the one request pulls 16 sectors of 32 bytes where 4 would do. Make it pull 4.

Requirements
    - 4 sectors per request, for the loads and for the stores (counted on 2**20 pixels)
    - the same work: every number read once, 2 float32 FLOPs on each, every result written once
    - right for any number of pixels, in bounds, in one launch
    Change the kernel and `launch` as you like; keep their names and their parameters.

Hints
    There are three, each plainer than the last: under the Score button in lesson 01, or `solcourse check ex01 --hint 1`.
"""

from numba import cuda


@cuda.jit
def normalise(pixels, mean, scale, out):  # pixels (n_pixels, 4) float32, mean and scale float32, out (n_pixels, 4) float32
    ### BEGIN SOLUTION
    t = cuda.grid(1)
    if t < out.size:
        pixel, channel = t // 4, t % 4
        out[pixel, channel] = (pixels[pixel, channel] - mean) * scale
    ### STUB
    # pixel = cuda.grid(1)
    # if pixel < out.shape[0]:
    #     for channel in range(4):
    #         out[pixel, channel] = (pixels[pixel, channel] - mean) * scale
    ### END SOLUTION


def launch(n_pixels):
    """The grid and the block for an image of n_pixels: blocks, threads."""
    threads = 256
    ### BEGIN SOLUTION
    blocks = (4 * n_pixels + threads - 1) // threads
    ### STUB
    # blocks = (n_pixels + threads - 1) // threads
    ### END SOLUTION
    return blocks, threads


### BEGIN HIDDEN TESTS
import numpy as np  # noqa: E402

from solcourse.grading import Exercise, bytes_moved, flops, sectors_per_request  # noqa: E402
from solcourse.work import Work  # noqa: E402


def arguments(n_pixels, rng):
    """Any numbers will do: the kernel's work does not depend on them."""
    return {
        "pixels": rng.random((n_pixels, 4), dtype=np.float32),
        "mean": np.float32(rng.uniform(0.3, 0.6)),
        "scale": np.float32(rng.uniform(2, 5)),
        "out": np.empty((n_pixels, 4), np.float32),
    }


def reference(pixels, mean, scale, out):
    return {"out": (pixels - mean) * scale}


def gates(n_pixels):
    numbers = 4 * n_pixels
    return (
        sectors_per_request("global_load", 4),
        sectors_per_request("global_store", 4),
        flops("fp32", at_least=2 * numbers),
        # a fifth more may be read: a design may, say, fetch its parameters from memory
        bytes_moved("global_load", at_least=4 * numbers, at_most=4 * numbers * 6 // 5),
        bytes_moved("global_store", exactly=4 * numbers),
    )


EXERCISE = Exercise(
    kernel="normalise",
    arguments=arguments,
    outputs=("out",),
    reference=reference,
    sizes=(1, 31, 33, 257, 1000, 4099),
    gate_size=2**20,
    gates=gates,
    work=lambda n_pixels: Work.read("pixels", 16 * n_pixels) + Work.write("out", 16 * n_pixels) + Work.flop("fp32", 8 * n_pixels),
    hints=(
        "Coalescing is about the 32 lanes of a warp at one instant, not about what one thread does over time. Take lanes 0 and 1 of the "
        "first warp, in the first turn of the loop: which two numbers do they read? How far apart do these lie?",
        "No rule says one thread, one pixel. Neighbouring lanes should take neighbouring *numbers*. Without the loop over the channels, "
        "how many threads do you need, and what must `launch` return then?",
        "Let thread t take number t of the image, counted row by row: that is channel t % 4 of pixel t // 4. There are 4 * n_pixels "
        "threads to guard and to launch. (Blocks of (4, 64) threads do the same; find out why.)",
    ),
    after="A quarter of the sectors, and the time fell far less: L1 had been catching most of the rest. "
    "Lesson 02: what to do when both orders are needed, as in a transpose.",
)
### END HIDDEN TESTS
