"""All-pairs gravity with tiles of positions in shared memory; positions and velocities live in a class on the GPU."""

import math

import numpy as np
from numba import cuda, float32

BLOCK = 64
SOFTENING = np.float32(1e-2)


@cuda.jit(device=True, inline=True)
def accelerate(px, py, pz, q, acc):
    dx = q[0] - px
    dy = q[1] - py
    dz = q[2] - pz
    d2 = dx * dx + dy * dy + dz * dz + SOFTENING
    inv = q[3] / (d2 * math.sqrt(d2))
    return acc[0] + dx * inv, acc[1] + dy * inv, acc[2] + dz * inv


@cuda.jit(fastmath=True)
def forces(pos, vel, dt):
    tile = cuda.shared.array((BLOCK, 4), float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    n = pos.shape[0]
    acc = (float32(0), float32(0), float32(0))
    if i < n:
        px, py, pz = pos[i, 0], pos[i, 1], pos[i, 2]
    else:
        px, py, pz = float32(0), float32(0), float32(0)
    for base in range(0, n, BLOCK):
        j = base + t
        for c in range(4):
            tile[t, c] = pos[j, c] if j < n else float32(0)
        cuda.syncthreads()
        for k in range(BLOCK):
            acc = accelerate(px, py, pz, tile[k], acc)
        cuda.syncthreads()
    if i < n:
        for c in range(3):
            vel[i, c] += dt * acc[c]


@cuda.jit
def move(pos, vel, dt):
    i = cuda.grid(1)
    if i < pos.shape[0]:
        for c in range(3):
            pos[i, c] += dt * vel[i, c]


class System:
    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.n = n
        self.host = rng.standard_normal((n, 4)).astype(np.float32)
        self.host[:, 3] = 1
        self.pos = cuda.to_device(self.host)
        self.vel = cuda.to_device(np.zeros((n, 3), np.float32))

    @property
    def launch(self):
        return -(-self.n // BLOCK), BLOCK

    def step(self, dt):
        forces[self.launch](self.pos, self.vel, dt)
        move[self.launch](self.pos, self.vel, dt)


def reference(pos, vel, dt):
    d = pos[None, :, :3] - pos[:, None, :3]
    d2 = (d * d).sum(-1) + SOFTENING
    acc = (d * (pos[None, :, 3] / (d2 * np.sqrt(d2)))[..., None]).sum(1)
    vel = vel + dt * acc
    new = pos.copy()
    new[:, :3] += dt * vel
    return new, vel


system = System(200)
dt = np.float32(1e-3)
pos, vel = system.host.astype(np.float64), np.zeros((200, 3))
for _ in range(3):
    system.step(dt)
    pos, vel = reference(pos, vel, dt)
np.testing.assert_allclose(system.pos.copy_to_host(), pos, rtol=2e-3, atol=2e-3)
print("nbody ok")
