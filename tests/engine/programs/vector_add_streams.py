"""Vector addition in pieces on several streams, from pinned buffers, timed with events."""

import numpy as np
from numba import cuda


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


def main(n=1 << 16, pieces=4):
    rng = np.random.default_rng(1)
    a = cuda.pinned_array(n, dtype=np.float32)
    b = cuda.pinned_array(n, dtype=np.float32)
    c = cuda.pinned_array(n, dtype=np.float32)
    a[:] = rng.random(n, dtype=np.float32)
    b[:] = rng.random(n, dtype=np.float32)
    streams = [cuda.stream() for _ in range(pieces)]
    start, stop = cuda.event(timing=True), cuda.event(timing=True)
    start.record()
    size = n // pieces
    for k, stream in enumerate(streams):
        part = slice(k * size, (k + 1) * size)
        da = cuda.to_device(a[part], stream=stream)
        db = cuda.to_device(b[part], stream=stream)
        dc = cuda.device_array(size, np.float32, stream=stream)
        add[size // 256, 256, stream](da, db, dc)
        dc.copy_to_host(c[part], stream=stream)
    for stream in streams:
        stream.synchronize()
    stop.record(stream=streams[-1])
    stop.wait()
    stop.synchronize()
    assert cuda.event_elapsed_time(start, stop) >= 0
    np.testing.assert_array_equal(c, np.asarray(a) + np.asarray(b))
    with cuda.defer_cleanup(), streams[0].auto_synchronize() as s:
        d = cuda.to_device(a, stream=s)
        del d
    print("ok", n)


if __name__ == "__main__":
    main()
