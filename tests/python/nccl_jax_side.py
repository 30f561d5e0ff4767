"""JAX on NCCL: collectives over all GPUs, of one process or (RANK, WORLD_SIZE) of one process a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PER_DEVICE = 4096


def check(what: str, function: Callable[[Any], Any], replicated: bool, expected: np.ndarray) -> None:
    """function over every device's part of 0, 1, 2, ..., against the whole result."""
    mesh = Mesh(np.array(jax.devices()), ("gpu",))
    split, whole = PartitionSpec("gpu"), PartitionSpec()
    data = np.arange(PER_DEVICE * jax.device_count(), dtype=np.float32)
    x = jax.make_array_from_callback(data.shape, NamedSharding(mesh, split), lambda part: data[part])
    mapped = jax.shard_map(function, mesh=mesh, in_specs=split, out_specs=whole if replicated else split)
    result = jax.jit(mapped)(x)
    for shard in result.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), expected[shard.index]), what


def main() -> None:
    if "WORLD_SIZE" in os.environ:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        jax.distributed.initialize(address, ranks, rank, local_device_ids=[rank])
    n = jax.device_count()
    parts = np.arange(PER_DEVICE * n, dtype=np.float32).reshape(n, PER_DEVICE)
    check("psum", lambda x: lax.psum(x, "gpu"), True, parts.sum(0))
    check("pmax", lambda x: lax.pmax(x, "gpu"), True, parts.max(0))
    check("all_gather", lambda x: lax.all_gather(x, "gpu", tiled=True), False, np.tile(parts.reshape(-1), n))
    check("psum_scatter", lambda x: lax.psum_scatter(x, "gpu", tiled=True), False, parts.sum(0))
    around = [(i, (i + 1) % n) for i in range(n)]
    check("ppermute", lambda x: lax.ppermute(x, "gpu", around), False, np.roll(parts, 1, 0).reshape(-1))
    turned = parts.reshape(n, n, -1).swapaxes(0, 1).reshape(-1)
    check("all_to_all", lambda x: lax.all_to_all(x, "gpu", 0, 0, tiled=True), False, turned)
    print(f"{jax.local_device_count()} of {n} devices are well", flush=True)


if __name__ == "__main__":
    main()
