"""use_engine(): whole numba.cuda scripts run on the engine, and afterwards numba.cuda is what it was."""

from __future__ import annotations

import asyncio
import inspect

import numpy as np
import pytest
from numba import cuda
from numba.cuda import to_device  # imported early: it must follow too

import solcourse as sol
from solcourse import standin
from solcourse.simt import frontend


@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def scale(x, factor):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] *= factor


@pytest.fixture
def engine():
    with sol.use_engine("Tesla T4") as active:
        yield active


# ------------------------------------------------------------------------------------------------------------ on and off


def everything_replaceable():
    """Identity of all that a script can reach in numba.cuda, and of the places use_engine changes."""
    seen = {f"cuda.{name}": value for name, value in vars(cuda).items()}
    for holder, name, _ in standin._replacements():
        seen[f"{holder!r}.{name}"] = inspect.getattr_static(holder, name, None)
    return seen


def test_leaving_restores_everything():
    before = everything_replaceable()
    with sol.use_engine():
        changed = [key for key, value in everything_replaceable().items() if before.get(key) is not value]
        assert len(changed) > 10
    after = everything_replaceable()
    assert [key for key in before if before[key] is not after[key]] == []
    assert not standin.is_active()


def test_leaving_restores_after_an_error():
    with pytest.raises(ZeroDivisionError), sol.use_engine():
        raise ZeroDivisionError
    assert not standin.is_active()


def test_close_and_nesting():
    outer = sol.use_engine("Tesla T4")
    assert "T4" in repr(outer)
    assert standin.is_active()
    with sol.use_engine("H100-SXM5-80GB"):
        assert cuda.get_current_device().compute_capability == (9, 0)
    assert cuda.get_current_device().compute_capability == (7, 5)
    outer.close()
    outer.close()  # twice is harmless
    assert not standin.is_active()
    assert "closed" in repr(outer)


def test_unknown_device_is_refused_before_anything_changes():
    with pytest.raises(sol.UnknownName, match="A100"):
        sol.use_engine("A100")
    assert not standin.is_active()


def test_after_leaving_launches_go_to_the_driver_again():
    if cuda.is_available():
        pytest.skip("there is a GPU: the launch would work")
    with sol.use_engine():

        @cuda.jit("void(float64[:])")
        def eager(x):
            x[0] = 1

        eager[1, 1](np.zeros(1))
    for kernel in (eager, add_one):
        with pytest.raises(Exception, match="(?i)driver"):
            kernel[1, 1](np.zeros(1))


# --------------------------------------------------------------------------------------------------------------- launches


def test_plain_launch_writes_host_arrays(engine):
    x = np.zeros(100)
    add_one[4, 32](x)
    assert (x == 1).all()


def test_launch_with_stream_and_dynamic_shared_memory(engine):
    seen = []
    engine.run = lambda spec, args: seen.append(spec)
    stream = cuda.stream()
    add_one[(2, 3), 32, stream, 128](np.zeros(1))
    (spec,) = seen
    assert (spec.grid, spec.block, spec.stream, spec.dynamic_shared_bytes) == ((2, 3, 1), (32, 1, 1), stream, 128)


def test_eager_signature_compiles_without_a_driver(engine):
    @cuda.jit("float32(float32)", device=True)
    def twice(a):
        return a * 2

    @cuda.jit("void(float32[:], int32)")
    def eager(x, n):
        i = cuda.grid(1)
        if i < n:
            x[i] = twice(x[i])

    x = np.ones(8, np.float32)
    eager[1, 32](x, 5)
    assert x.tolist() == [2] * 5 + [1] * 3


def test_eager_signatures_are_selected_as_numba_does(engine):
    @cuda.jit(["void(float32[:], int64)", "void(float64[:], int64)"])
    def which(x, n):
        x[0] = x.itemsize + n

    single, double = np.zeros(1, np.float32), np.zeros(1)
    which[1, 1](single, 1)
    which[1, 1](double, np.int8(2))  # converted to int64
    assert (single[0], double[0]) == (5, 10)
    with pytest.raises(sol.LaunchError, match="which"):
        which[1, 1](np.zeros(1, np.int16), 1)


def test_eager_signature_refuses_what_a_gpu_would_misread(engine):
    @cuda.jit("void(float32[:])")
    def eager(x):
        x[0] = 1

    with pytest.raises(sol.LaunchError, match="compiled for"):
        eager[1, 1](np.zeros(4))


def test_eager_kernel_works_outside_too():
    with sol.use_engine():

        @cuda.jit("void(float64[:])")
        def eager(x):
            x[0] = 7

    x = np.zeros(1)
    sol.run(eager[1, 1], x)
    assert x[0] == 7


def test_forall_covers_every_task(engine):
    x = np.zeros(5000)
    add_one.forall(x.size)(x)
    assert (x == 1).all()


def test_specialized_dispatcher(engine):
    x = np.zeros(8)
    add_one.specialize(x)[1, 32](x)
    assert (x == 1).all()


def test_methods_and_overloads_are_numbas(engine):
    kernel = cuda.jit(add_one.py_func)
    kernel[1, 32](np.zeros(4))
    (overload,) = kernel.overloads.values()
    assert overload.argument_types == frontend.argument_types(kernel, (np.zeros(4),))
    assert "define" in next(iter(kernel.inspect_llvm().values()))
    assert next(iter(kernel.get_shared_mem_per_block().values())) == 0


def test_errors_of_a_launch_are_solcourses(engine):
    with pytest.raises(sol.OutOfBounds):
        scale_unguarded[4, 32](np.zeros(100))
    with pytest.raises(sol.LaunchError, match="x = 0"):
        add_one[0, 32](np.zeros(1))
    with pytest.raises(sol.LaunchError, match="takes 1 argument"):
        add_one[1, 32]()


@cuda.jit
def scale_unguarded(x):
    x[cuda.grid(1)] *= 2


# ----------------------------------------------------------------------------------------------------------------- memory


def test_early_imported_functions_follow(engine):
    x = to_device(np.zeros(8))
    add_one[1, 32](x)
    assert x.copy_to_host().tolist() == [1] * 8


def test_device_memory_is_apart_from_the_host(engine):
    host = np.zeros(4)
    device = cuda.to_device(host)
    host[:] = 9
    add_one[1, 32](device)
    assert device.copy_to_host().tolist() == [1] * 4
    assert host.tolist() == [9] * 4
    with pytest.raises(TypeError):
        device + 1
    with pytest.raises(TypeError):
        np.sqrt(device)


@pytest.mark.parametrize("order", ["C", "F"])
def test_device_arrays_keep_shape_dtype_and_order(engine, order):
    host = np.asarray(np.arange(12).reshape(3, 4), order=order)
    device = cuda.to_device(host)
    assert (device.shape, device.dtype, device.strides, device.size, device.nbytes) == ((3, 4), host.dtype, host.strides, 12, 96)
    assert (device.is_c_contiguous(), device.is_f_contiguous()) == (order == "C", order == "F")
    result = device.copy_to_host()
    assert result.strides == host.strides
    np.testing.assert_array_equal(result, host)
    like = cuda.device_array_like(device)
    assert (like.shape, like.strides) == ((3, 4), host.strides)


def test_views_share_memory_and_copy_out_alone(engine):
    device = cuda.to_device(np.arange(12.0).reshape(3, 4))
    scale[1, 4](device[1], 10)
    assert device.copy_to_host()[1].tolist() == [40, 50, 60, 70]
    assert device[:, 2].copy_to_host().tolist() == [2, 60, 10]
    assert device[1, 2] == 60
    assert device.reshape(4, 3)[0].copy_to_host().tolist() == [0, 1, 2]
    assert device.reshape(-1).shape == device.ravel().shape == (12,)
    assert device.T.copy_to_host().tolist() == device.copy_to_host().T.tolist()
    assert [part.size for part in device.ravel().split(5)] == [5, 5, 2]
    assert device.view(np.int64).dtype == np.int64
    with pytest.raises(NotImplementedError, match="copying"):
        device[:, 1:3].ravel()
    with pytest.raises(TypeError, match="integers and slices"):
        device[[0, 1]]


def test_strided_view_is_launched_with_its_strides(engine):
    device = cuda.to_device(np.zeros(16))
    add_one[1, 32](device[1::3])
    assert np.flatnonzero(device.copy_to_host()).tolist() == [1, 4, 7, 10, 13]


def test_assignment_to_device_arrays(engine):
    device = cuda.to_device(np.zeros((2, 3)))
    device[0] = 5
    device[1, 1:] = np.array([7, 8])
    device[1, 0] = cuda.to_device(np.array(9.0))
    assert device.copy_to_host().tolist() == [[5, 5, 5], [9, 7, 8]]
    with pytest.raises(ValueError, match="Can't copy sequence with size 4"):
        device[0] = np.zeros(4)
    with pytest.raises(ValueError, match="Can't assign 3-D array to 1-D self"):
        device[0] = np.zeros((1, 1, 3))


def test_copies_check_dtype_and_shape(engine):
    device = cuda.to_device(np.zeros(4))
    with pytest.raises(TypeError, match="incompatible dtype"):
        device.copy_to_device(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="incompatible shape"):
        device.copy_to_host(np.zeros(5))
    with pytest.raises(ValueError, match="non-contiguous"):
        cuda.to_device(np.zeros(8)[::2])
    out = np.zeros(4)
    assert device.copy_to_host(out) is out


def test_device_array_is_rubbish_until_written(engine):
    assert np.isnan(cuda.device_array(4, np.float32).copy_to_host()).all()
    assert cuda.device_array((2, 3), np.int32, order="F").strides == (4, 8)
    assert cuda.device_array(0).copy_to_host().shape == (0,)
    assert cuda.device_array(()).shape == ()


@pytest.mark.parametrize("make", [cuda.mapped_array, cuda.managed_array])
def test_mapped_and_managed_memory_need_no_copies(engine, make):
    x = make(8, np.float32)
    x[:] = 3
    add_one[1, 32](x)
    add_one[1, 32](x[2:])
    assert x.tolist() == [4, 4, 5, 5, 5, 5, 5, 5]
    assert (x * 2).tolist()[:2] == [8, 8]
    add_one[1, 32](x * 1)  # the result of arithmetic has memory of its own
    assert x.tolist()[:2] == [4, 4]


def test_pinned_and_mapped_host_arrays(engine):
    x = np.zeros(8)
    with cuda.pinned(x), cuda.mapped(x) as device:
        add_one[1, 32](device)
    assert x.tolist() == [1] * 8
    assert cuda.pinned_array_like(x).shape == (8,)
    assert cuda.mapped_array_like(x).dtype == x.dtype


def test_records_on_the_device(engine):
    kind = np.dtype([("x", np.float32), ("n", np.int64)], align=True)
    host = np.zeros(3, kind)
    host["n"] = [1, 2, 3]
    device = cuda.to_device(host)
    assert device[1]["n"] == 2
    device[1]["n"] = 20
    assert device.copy_to_host()["n"].tolist() == [1, 20, 3]

    @cuda.jit
    def bump(record):
        record.x += 1.5

    bump[1, 1](device[2])
    bump[1, 1](host[0])
    assert device.copy_to_host()["x"].tolist() == [0, 0, 1.5]
    assert host["x"].tolist() == [1.5, 0, 0]


# ------------------------------------------------------------------------------------------------- device, streams, events


def test_device_says_the_figures_of_the_chosen_gpu(engine):
    device = cuda.get_current_device()
    assert "Tesla T4" in device.name
    assert device.compute_capability == (7, 5)
    assert (device.MULTIPROCESSOR_COUNT, device.WARP_SIZE, device.MAX_THREADS_PER_BLOCK) == (40, 32, 1024)
    assert device.MAX_SHARED_MEMORY_PER_BLOCK == 49152
    with pytest.raises(AttributeError, match="NO_SUCH_THING"):
        device.NO_SUCH_THING  # noqa: B018
    assert cuda.is_available()
    assert len(cuda.gpus) == 1
    assert cuda.gpus[0].id == 0
    assert cuda.gpus.current.id == 0
    assert cuda.select_device(0).compute_capability == (7, 5)
    assert cuda.current_context().get_memory_info()[1] == 16_000_000_000
    with pytest.raises(IndexError):
        cuda.select_device(1)


def test_detect_prints_the_device(engine, capsys):
    assert cuda.detect()
    assert "Tesla T4" in capsys.readouterr().out


def test_counts_do_not_depend_on_the_device(launch):
    with sol.use_engine("Tesla T4"):
        old = launch(add_one[4, 32], np.zeros(100)).counts
    with sol.use_engine("H100-SXM5-80GB"):
        new = launch(add_one[4, 32], np.zeros(100)).counts
    assert old == new


def test_streams_have_nothing_to_wait_for(engine):
    stream = cuda.stream()
    heard = []
    stream.add_callback(lambda *args: heard.append(args), "token")
    assert heard == [(stream, 0, "token")]
    with stream.auto_synchronize():
        x = cuda.to_device(np.zeros(4), stream=stream)
        add_one[1, 32, stream](x)
        assert x.copy_to_host(stream=stream).tolist() == [1] * 4
    cuda.synchronize()

    async def wait():
        return await stream.async_done()

    assert asyncio.run(wait()) is stream
    for other in (cuda.default_stream(), cuda.legacy_default_stream(), cuda.per_thread_default_stream(), cuda.external_stream(7)):
        add_one[1, 32, other](x)


def test_events_warn_that_they_time_the_cpu(engine):
    start, stop = cuda.event(), cuda.event()
    start.record()
    add_one[1, 32](np.zeros(4))
    stop.record()
    stop.synchronize()
    assert stop.query()
    with pytest.warns(UserWarning, match=r"not a GPU; sol\.profile"):
        assert cuda.event_elapsed_time(start, stop) > 0
    with pytest.raises(sol.SolcourseError, match="never recorded"):
        cuda.event_elapsed_time(cuda.event(), stop)


def test_profiling_marks_do_nothing(engine):
    cuda.profile_start()
    with cuda.profiling():
        add_one[1, 32](np.zeros(4))
    cuda.profile_stop()
    with cuda.defer_cleanup():
        pass


def test_cache_option_is_accepted(engine):
    @cuda.jit(cache=True)
    def cached(x):
        x[0] = 4

    x = np.zeros(1)
    cached[1, 1](x)
    assert x[0] == 4


def test_reduce(engine):
    total = cuda.reduce(lambda a, b: a + b)
    assert total(np.arange(1000.0)) == 499500


def test_vectorize(engine):
    from numba import vectorize

    @vectorize(["float32(float32, float32)"], target="cuda")
    def add(a, b):
        return a + b

    x = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(add(x, x), 2 * x)
