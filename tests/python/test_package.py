"""What `import paceline` gives, and what type checkers say of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import paceline
import pytest

PACKAGES = Path(paceline.__file__).parents[1]


def test_modules_are_attributes() -> None:
    program = "import paceline; paceline.tuning.tuning_file; paceline.prediction.predict; paceline.topology.topology"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert {"tuning", "prediction", "topology", "init"} <= set(dir(paceline))
    with pytest.raises(AttributeError, match="module 'paceline' has no attribute 'inti'"):
        _ = paceline.inti  # type: ignore[attr-defined]


TYPED = """
import paceline
op: paceline.Operation = "sum"
def calls(comm: paceline.Communicator, x: bytearray, later: bool) -> None:
    reveal_type(comm.all_reduce(x, op))  # bytearray
    reveal_type(comm.all_reduce(x, async_op=True))  # paceline.call_queue.Handle[bytearray]
    reveal_type(comm.all_reduce(x, async_op=True).wait())  # bytearray
    reveal_type(comm.broadcast(x, async_op=True))  # paceline.call_queue.Handle[bytearray]
    reveal_type(comm.reduce(x, async_op=True))  # paceline.call_queue.Handle[Any]
    reveal_type(comm.all_gather(x, out=x))  # bytearray
    reveal_type(comm.all_gather(x, async_op=True))  # paceline.call_queue.Handle[Any]
    reveal_type(comm.gather(x, async_op=True))  # paceline.call_queue.Handle[Any]
    reveal_type(comm.scatter(x, out=x, async_op=True))  # paceline.call_queue.Handle[bytearray]
    reveal_type(comm.reduce_scatter(x, async_op=True))  # paceline.call_queue.Handle[Any]
    reveal_type(comm.all_to_all(x, async_op=True))  # paceline.call_queue.Handle[Any]
    reveal_type(comm.barrier(async_op=True))  # paceline.call_queue.Handle[None]
    reveal_type(comm.send(x, 1, async_op=True))  # paceline.call_queue.Handle[None]
    reveal_type(comm.recv(x, 1))  # bytearray
    reveal_type(comm.recv(x, 1, async_op=True))  # paceline.call_queue.Handle[bytearray]
    reveal_type(comm.all_gather(x, async_op=later))  # Any
    reveal_type(paceline.tuning.algorithm({}))  # str
"""


def test_types_of_results(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "typed.py"]
    environment = dict(os.environ)
    if PACKAGES.name != "site-packages":  # else mypy finds it, and refuses to be told where
        environment["MYPYPATH"] = str(PACKAGES)
    shown = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    told = [line.partition('Revealed type is "')[2].rstrip('"') for line in shown.stdout.splitlines()[:-1]]
    plain = [each.replace("builtins.", "").rstrip("?") for each in told]
    assert plain == [line.partition("  # ")[2] for line in TYPED.splitlines() if "  # " in line], shown.stdout
