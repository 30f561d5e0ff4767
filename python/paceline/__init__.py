"""Paceline: collective communication for distributed training and HPC.

::

    import numpy, paceline

    with paceline.init() as comm:            # rank, size, address and secret from the launcher
        x = numpy.full(8, comm.rank, numpy.float32)
        comm.all_reduce(x)                   # in place, the same bits on every rank

Start it with `paceline run -n 4 -- python program.py`, torchrun, mpirun or srun.
"""

from .call_queue import Handle
from .communicator import Communicator, Plan
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
from .joining import init, init_all, unique_id
from .memory import empty
from .trace import merge_traces

__version__ = "0.1.0"

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
    "Plan",
    "PreMulSum",
    "RemoteError",
    "ResourceError",
    "Timeout",
    "Unsupported",
    "empty",
    "group",
    "init",
    "init_all",
    "merge_traces",
    "premulsum",
    "unique_id",
]
