"""Compiles the cache simulator and the sanitizer's checks once, so that a learner's first profile and check do not wait for them:
`python -m solcourse.warm`, run at set-up.

numba keeps what it compiled in __pycache__, beside solcourse/cachesim.py and solcourse/simt/shadow.py;
where it may not write there, in its own cache folder.
"""

from __future__ import annotations

import warnings

import numpy as np
from numba import cuda


@cuda.jit
def double(x, y):  # x, y (n,) float32
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 2 * x[i]


def warm() -> float:
    """Sanitizes and profiles one small launch. Returns its predicted time, seconds."""
    from solcourse.verbs import profile, sanitize

    x = np.ones(4096, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's advice on small launches
        sanitize(double[16, 256], x, np.empty_like(x))
        return profile(double[16, 256], x, np.empty_like(x)).time_s


if __name__ == "__main__":
    warm()
