import numpy as np
from numba import cuda, from_dtype

particle_t = np.dtype([("pos", np.float32, 3), ("mass", np.float64), ("id", np.int32), ("alive", np.bool_)], align=True)
particle = from_dtype(particle_t)
cell_t = np.dtype([("count", np.int32), ("sum", np.float32)], align=True)
cell = from_dtype(cell_t)


@cuda.jit
def advance(ps, dt):
    i = cuda.grid(1)
    if i < ps.size and ps[i].alive:
        for c in range(3):
            ps[i].pos[c] += dt * (c + 1)
        ps[i].mass *= 0.5
        ps[i]["id"] = -ps[i]["id"]


@cuda.jit
def count_in_shared(x, out):
    s = cuda.shared.array(1, cell)
    if cuda.threadIdx.x == 0:
        s[0].count = 0
        s[0].sum = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(s["count"], 0, 1)
        cuda.atomic.add(s["sum"], 0, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = s[0]


ps = np.zeros(100, particle_t)
ps["mass"] = np.arange(100)
ps["id"] = np.arange(100)
ps["alive"][::2] = True
d = cuda.to_device(ps)
advance[1, 128](d, np.float32(0.25))
got = d.copy_to_host()
assert (got["pos"][::2] == [0.25, 0.5, 0.75]).all() and (got["pos"][1::2] == 0).all()
assert got["mass"][10] == 5 and got["id"][10] == -10 and got["id"][11] == 11
x = np.ones(200, np.float32)
out = np.zeros(2, cell_t)
count_in_shared[2, 128](x, out)
assert out["count"].tolist() == [128, 72] and out["sum"].tolist() == [128, 72]
r = np.recarray(5, np.dtype([("a", np.int32), ("b", np.float64)], align=True))
r.a = 1
r.b = 2


@cuda.jit
def of_recarray(r):
    i = cuda.grid(1)
    if i < r.size:
        r[i].b += r[i].a


of_recarray[1, 32](r)
assert (r.b == 3).all()
print("records ok")
