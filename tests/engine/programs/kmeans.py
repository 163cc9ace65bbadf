import math

import numpy as np
from numba import cuda


@cuda.jit
def assign(points, centroids, labels, sums, counts):
    i = cuda.grid(1)
    if i >= points.shape[0]:
        return
    best = 0
    nearest = math.inf
    for k in range(centroids.shape[0]):
        dx = points[i, 0] - centroids[k, 0]
        dy = points[i, 1] - centroids[k, 1]
        d = math.hypot(dx, dy)
        if d < nearest:
            nearest = d
            best = k
    labels[i] = best
    cuda.atomic.add(sums, (best, 0), points[i, 0])
    cuda.atomic.add(sums, (best, 1), points[i, 1])
    cuda.atomic.add(counts, best, 1)


@cuda.jit
def update(centroids, sums, counts):
    k = cuda.threadIdx.x
    if counts[k] > 0:
        centroids[k, 0] = sums[k, 0] / counts[k]
        centroids[k, 1] = sums[k, 1] / counts[k]
    sums[k, 0] = sums[k, 1] = 0
    counts[k] = 0


def on_cpu(points, centroids, rounds):
    for _ in range(rounds):
        nearest = ((points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
        centroids = np.array([points[nearest == k].mean(axis=0) for k in range(len(centroids))])
    return centroids


rng = np.random.default_rng(7)
points = np.concatenate([rng.normal(c, 0.3, (500, 2)) for c in ((0, 0), (3, 3), (0, 4))])
start = points[[0, 600, 1200]].copy()
d_points, d_centroids = cuda.to_device(points), cuda.to_device(start)
labels = cuda.device_array(len(points), np.int32)
sums, counts = cuda.to_device(np.zeros((3, 2))), cuda.to_device(np.zeros(3, np.int64))
for _ in range(8):
    assign.forall(len(points))(d_points, d_centroids, labels, sums, counts)
    update[1, 3](d_centroids, sums, counts)
np.testing.assert_allclose(d_centroids.copy_to_host(), on_cpu(points, start, 8), rtol=1e-9)
print("kmeans ok", sorted(np.bincount(labels.copy_to_host()).tolist()) == [500, 500, 500])
