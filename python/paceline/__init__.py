"""Paceline: collective communication for distributed training and HPC.

::

    import numpy, paceline

    with paceline.init() as comm:            # rank, size, address and secret from the launcher
        x = numpy.full(8, comm.rank, numpy.float32)
        comm.all_reduce(x)                   # in place, the same bits on every rank

Start it with `paceline run -n 4 -- python program.py`, torchrun, mpirun or srun.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from . import _native
from .call_arguments import Operation
from .call_queue import Handle
from .communicator import Communicator
from .datatypes import DATA_TYPES, OPERATIONS, DataType, PreMulSum, premulsum
from .errors import (
    Aborted,
    CudaError,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    Mismatch,
    RemoteError,
    ResourceError,
    Timeout,
    Unsupported,
)
from .group import group
from .insight import Plan
from .joining import init, init_all, unique_id
from .memory import empty
from .trace import compare_traces, merge_traces

_MODULES = ("prediction", "topology", "tuning")  # which few programs want

__all__ = [
    "DATA_TYPES",
    "OPERATIONS",
    "Aborted",
    "Communicator",
    "CudaError",
    "DataType",
    "Error",
    "Handle",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Mismatch",
    "Operation",
    "Plan",
    "PreMulSum",
    "RemoteError",
    "ResourceError",
    "Timeout",
    "Unsupported",
    "compare_traces",
    "empty",
    "group",
    "init",
    "init_all",
    "merge_traces",
    "premulsum",
    "unique_id",
]


if TYPE_CHECKING:
    from . import prediction as prediction
    from . import topology as topology
    from . import tuning as tuning

    __version__: str
else:

    def __getattr__(name: str) -> ModuleType | str:
        """`paceline.tuning` and the like after `import paceline`, loaded at first use; the library's version."""
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        if name == "__version__":
            try:
                return _native.version()
            except OSError as error:  # the library does not load
                raise AttributeError(f"module {__name__!r} has no {name}: {error}") from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES, "__version__"})
