"""cuda.random gives numba's own streams: xoroshiro128+ bit for bit, and the normal numbers that follow from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda
from numba.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)

import solcourse as sol

MASK = 2**64 - 1
STREAMS, DRAWS = 96, 5


def rotated(x: int, k: int) -> int:
    return (x << k | x >> (64 - k)) & MASK


def stream(s0: int, s1: int):
    """xoroshiro128+ of Blackman and Vigna, with the constants 55, 14, 36 of its first edition."""
    while True:
        yield (s0 + s1) & MASK
        s1 ^= s0
        s0, s1 = rotated(s0, 55) ^ s1 ^ (s1 << 14 & MASK), rotated(s1, 36)


@pytest.fixture
def states():
    with sol.use_engine():
        made = create_xoroshiro128p_states(STREAMS, seed=11, subsequence_start=3)
        return made.copy_to_host()


@pytest.mark.parametrize(("draw", "t"), [(xoroshiro128p_uniform_float32, np.float32), (xoroshiro128p_uniform_float64, np.float64)])
def test_uniform_numbers_bit_for_bit(launch, states, draw, t):
    """The top 53 bits over 2^53; float32 is that, rounded."""

    @cuda.jit
    def kernel(states, out):
        i = cuda.grid(1)
        for k in range(out.shape[1]):
            out[i, k] = draw(states, i)

    out, before = np.zeros((STREAMS, DRAWS), t), states.copy()
    launch(kernel[3, 32], states, out)
    for row, state, after in zip(out, before, states, strict=True):
        bits = stream(int(state["s0"]), int(state["s1"]))
        assert row.tolist() == [t((next(bits) >> 11) * (1.0 / 2**53)) for _ in range(DRAWS)]
        assert (int(after["s0"]) + int(after["s1"])) & MASK == next(bits)  # the states move on
    assert 0.4 < out.mean() < 0.6


@pytest.mark.parametrize(("draw", "t"), [(xoroshiro128p_normal_float32, np.float32), (xoroshiro128p_normal_float64, np.float64)])
def test_normal_numbers_are_box_muller_of_two_uniform_ones(launch, states, draw, t):
    """float64 normal numbers too: numba draws float32 uniform ones for them, and takes the float32 logarithm (1 ulp: 6e-8)."""

    @cuda.jit
    def kernel(states, out):
        i = cuda.grid(1)
        out[i] = draw(states, i)

    out, before = np.zeros(STREAMS, t), states.copy()
    launch(kernel[3, 32], states, out)
    wanted = []
    for state in before:
        bits = stream(int(state["s0"]), int(state["s1"]))
        a, b = (np.float32((next(bits) >> 11) * (1.0 / 2**53)) for _ in range(2))
        wanted.append(math.sqrt(-2 * float(np.log(a))) * math.cos(2 * math.pi * float(b)))
    np.testing.assert_allclose(out, wanted, rtol=2e-5 if t is np.float32 else 1e-7, atol=1e-6 if t is np.float32 else 1e-12)
