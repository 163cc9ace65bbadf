"""Sparse matrix times vector (CSR) and breadth-first search, as loops over kernels until nothing changes."""

import numpy as np
from numba import cuda


@cuda.jit
def spmv(indptr, indices, data, x, y):
    row = cuda.grid(1)
    if row < y.size:
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            total += data[k] * x[indices[k]]
        y[row] = total


@cuda.jit
def bfs_level(indptr, indices, level, current, changed):
    v = cuda.grid(1)
    if v < level.size and level[v] == current:
        for k in range(indptr[v], indptr[v + 1]):
            if cuda.atomic.compare_and_swap(level[indices[k] :], -1, current + 1) == -1:
                changed[0] = 1


rng = np.random.default_rng(4)
n = 400
dense = (rng.random((n, n)) < 0.01) * rng.random((n, n))
indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(np.int32)
indices = np.nonzero(dense)[1].astype(np.int32)
data = dense[dense != 0]
x, y = rng.random(n), np.zeros(n)
spmv[13, 32](indptr, indices, data, x, y)
np.testing.assert_allclose(y, dense @ x)

level = np.full(n, -1, np.int32)
level[0] = 0
d_indptr, d_indices, d_level = cuda.to_device(indptr), cuda.to_device(indices), cuda.to_device(level)
changed = cuda.to_device(np.ones(1, np.int32))
current = 0
while changed.copy_to_host()[0]:
    changed.copy_to_device(np.zeros(1, np.int32))
    bfs_level[13, 32](d_indptr, d_indices, d_level, current, changed)
    current += 1
want = np.full(n, -1)
want[0] = 0
front = {0}
depth = 0
while front:
    depth += 1
    front = {int(w) for v in front for w in indices[indptr[v] : indptr[v + 1]] if want[w] == -1}
    for w in front:
        want[w] = depth
assert (d_level.copy_to_host() == want).all()
print("graph ok", depth)
