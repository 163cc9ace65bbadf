"""Launch errors as programs catch them: solcourse's, and at the same time the class that numba raises where a GPU's driver refuses."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from solcourse.errors import LaunchError, RunawayKernel

INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE: what the driver says to a grid, a block or shared memory that it cannot have


@contextlib.contextmanager
def as_numba_has_them() -> Iterator[None]:
    """Around a launch that a program makes: the errors that leave it are ones that the program may expect."""
    try:
        yield
    except LaunchError as error:
        if type(error) is LaunchError:  # the others are numba's already
            raise _driver_error()(error) from None
        raise
    except RunawayKernel as error:
        if error.interrupted:  # by Ctrl-C
            raise KeyboardInterrupt(str(error)) from None
        raise


@functools.cache
def _driver_error() -> Any:
    from numba.cuda.cudadrv.driver import CudaAPIError

    class DriverError(LaunchError, CudaAPIError):
        """A launch that solcourse refuses as the driver would."""

        __module__, __str__ = LaunchError.__module__, Exception.__str__

        def __init__(self, refused: LaunchError):
            Exception.__init__(self, str(refused))
            self.file, self.line = refused.file, refused.line
            self.code, self.msg = INVALID_VALUE, str(refused)

    DriverError.__name__ = DriverError.__qualname__ = "LaunchError"
    return DriverError
