"""A rank that tunes GPUs which are none: with a stand-in for the driver, whose calls the host's engine makes.

It prints the setting that it found, as JSON.
"""

import json

from paceline import init, tuning
from paceline.command import gpu_tune
from paceline.cuda_driver import Gpu

MACHINE = {"gpu": "fake GPU", "link": "nvlink", "ranks": 2, "blocks": 32}


def main() -> None:
    tuning.gpu_table = lambda comm: {**MACHINE, "source": "rules", "table": []}
    gpu_tune._CALLS = ((1 << 62, 2),)  # the times are of no use
    with init() as comm, Gpu(comm.rank) as gpu:
        # A graph of the stand-in runs while it is captured: no graphs.
        found = gpu_tune.GpuTuning(comm, ["all_reduce"], 16 << 10, 0.1, gpu.free_bytes(), graphs=False).run()
        if comm.rank == 0:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
