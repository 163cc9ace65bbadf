import sys

import numpy as np
from numba import cuda

from . import physics
from .physics import devices


@cuda.jit
def potentials(r, out):
    i = cuda.grid(1)
    if i < r.size:
        out[i] = devices.lennard_jones(r[i]) + physics.EPSILON


def main(argv):
    r = np.linspace(0.8, 3, 1000)
    out = np.zeros_like(r)
    potentials[8, 128](r, out)
    s = r**-8 / r**-4 * r**-2
    np.testing.assert_allclose(out, 2 * (s * s - s) + 0.5, rtol=1e-12)
    print("package ok", argv)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
