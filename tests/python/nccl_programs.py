#!/usr/bin/env python3
"""Ordinary programs for NCCL (PyTorch, JAX, CuPy) on Paceline's libnccl.so.2, on this machine's GPUs.

    python tests/python/nccl_programs.py            # all of them, one line of verdict each; within 5 minutes
    python tests/python/nccl_programs.py training death

Each ends well on Paceline, says by NCCL_DEBUG's line that Paceline served it, and, where it computes something that may
differ, ends with the numbers that it ends with on NCCL. test_nccl_programs.py runs the same.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paceline.door import nccl_environment

HERE = Path(__file__).parent
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


class Absent(Exception):
    """What the program needs is not on this machine."""


class Failed(Exception):
    """The program did not do what it must; the message says what."""


def gpus() -> int:
    """How many GPUs there are, without touching one in this process."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def needs(*packages: str) -> int:
    """The number of GPUs, at least two; Absent without them or without the packages."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Absent(f"{package} is not installed")
    if gpus() < 2:
        raise Absent("fewer than two GPUs")
    return gpus()


def on_paceline(forward: str = "") -> dict[str, str]:
    return {**WITHOUT_MULTICAST, **nccl_environment(), "NCCL_DEBUG": "VERSION", "PACELINE_NCCL_FORWARD": forward}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@dataclass
class Ended:
    status: int
    output: str


PRCTL = ctypes.CDLL(None).prctl  # loaded here: a child may not load libraries between fork and exec
DIE_WITH_PARENT = 1


class Running:
    """A process of its own session, writing into a file: no pipe that nobody reads holds it up.

    It ends with this one, however that ends: ranks that went on waiting for each other would keep the GPUs busy.
    """

    def __init__(self, script: str, *words: str, environment: dict[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), *words],
            env={**os.environ, **environment},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: PRCTL(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0),
        )

    def wait(self, until: float) -> bool:
        """Whether it ended in time; killed otherwise."""
        try:
            self._process.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            return False
        return True

    def ended(self) -> Ended:
        self._output.seek(0)
        return Ended(self._process.returncode, self._output.read().decode(errors="replace"))


def finish(processes: list[Running], seconds: float) -> list[Ended]:
    """All of them, within the time together; else Failed, and none of them is left."""
    until = time.monotonic() + seconds
    in_time = [process.wait(until) for process in processes]
    ended = [process.ended() for process in processes]
    for number, (one, good) in enumerate(zip(ended, in_time)):
        if not good:
            raise Failed(f"process {number} still ran after {seconds:g} s\n{one.output}")
    return ended


def ranks_of(script: str, ranks: int, *words: str, environment: dict[str, str], seconds: float) -> list[Ended]:
    """A process a GPU, as a launcher without an opinion on failures would start them."""
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(ranks)}
    job |= {"LOCAL_WORLD_SIZE": str(ranks)}
    processes = [
        Running(script, *words, environment={**environment, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    return finish(processes, seconds)


def succeeded(ended: list[Ended]) -> str:
    if failed := [(number, one) for number, one in enumerate(ended) if one.status != 0]:
        said = (f"process {number} ended with status {one.status}\n{one.output}" for number, one in failed)
        raise Failed("\n".join(said))
    return "\n".join(one.output for one in ended)


def served(output: str) -> str:
    """The output, if its line of NCCL_DEBUG says that Paceline served the program."""
    if re.search(r"\[paceline\] NCCL INFO Paceline [^\n]*: Paceline serves all_reduce, ", output) is None:
        raise Failed(f"Paceline did not serve it\n{output}")
    if "NCCL serves all its calls" in output:
        raise Failed(f"a communicator became NCCL's\n{output}")
    return output


def collectives() -> str:
    ranks = needs("torch")
    ended = ranks_of("nccl_torch_side.py", ranks, environment=on_paceline(), seconds=60)
    served(succeeded(ended))
    return f"every collective of torch.distributed, {ranks} ranks"


def forwarded(services: str) -> str:
    ranks = needs("torch")
    environment = on_paceline(services)
    succeeded(ranks_of("nccl_torch_side.py", ranks, environment=environment, seconds=60))
    return f"every collective of torch.distributed with PACELINE_NCCL_FORWARD={services}"


def compared(ours: Path, theirs: Path, way: str) -> None:
    import torch

    one, other = (torch.load(directory / f"{way}.pt") for directory in (ours, theirs))
    for what in ("parameters", "losses"):
        difference = float((one[what] - other[what]).abs().max() / other[what].abs().max())
        if not difference <= 1e-6:
            raise Failed(f"{way}: the {what} differ from NCCL's by {difference:.2g}")


def step_microseconds(output: str) -> dict[str, float]:
    return {way: float(time) for way, time in re.findall(r"^(\w+): step ([\d.]+) us$", output, re.MULTILINE)}


def training(*ways: str) -> str:
    ranks = needs("torch")
    with tempfile.TemporaryDirectory() as folder:
        outputs = {}
        for library, environment in (("nccl", WITHOUT_MULTICAST), ("paceline", on_paceline())):
            directory = Path(folder) / library
            directory.mkdir()
            words = (str(directory), ",".join(ways))
            ended = ranks_of("nccl_training_side.py", ranks, *words, environment=environment, seconds=80)
            outputs[library] = succeeded(ended)
        served(outputs["paceline"])
        for way in ways:
            compared(Path(folder) / "paceline", Path(folder) / "nccl", way)
    ours, theirs = step_microseconds(outputs["paceline"]), step_microseconds(outputs["nccl"])
    steps = [f"{way} {ours[way]:.0f} us (NCCL {theirs[way]:.0f}: {theirs[way] / ours[way]:.2f})" for way in ways]
    return f"the numbers of NCCL; steps: {', '.join(steps)}"


def processes() -> str:
    """Steps of training in processes of each library, in turn: not each of Paceline's slower than each of NCCL's.

    Limited by Python, they differ by a third from process to process; what is handed on to NCCL shows how far it is by
    chance.
    """
    ranks = needs("torch")
    ways = ("ddp", "fsdp2", "tensor", "graph")
    libraries = {"nccl": WITHOUT_MULTICAST, "paceline": on_paceline(), "forwarded": on_paceline("all")}
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(5):
        for library in list(libraries)[:: 1 if turn % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                words, environment = (folder, ",".join(ways)), libraries[library]
                output = succeeded(
                    ranks_of("nccl_training_side.py", ranks, *words, environment=environment, seconds=80)
                )
            if library == "paceline":
                served(output)
            for way, spent in step_microseconds(output).items():
                times.setdefault((library, way), []).append(spent)
    verdicts = []
    for way in ways:
        theirs = times["nccl", way]
        ratios = [f"{library} {median(theirs) / median(times[library, way]):.3f}" for library in list(libraries)[1:]]
        verdicts.append(f"{way} {min(theirs):.0f} to {max(theirs):.0f} us, {', '.join(ratios)}")
    verdict = "NCCL's steps and its median / others': " + "; ".join(verdicts)
    if any(min(times["paceline", way]) > max(times["nccl", way]) for way in ways):
        raise Failed(f"slower than NCCL: {verdict}")
    return verdict


def steps() -> str:
    """Steps of training beside the same on NCCL, in one process: none slower by more than pairs of steps can tell."""
    ranks = needs("torch")
    words = ("ddp,fsdp2,tensor,graph,compile", "small,large", "3")
    output = succeeded(ranks_of("nccl_steps_side.py", ranks, *words, environment=on_paceline(), seconds=150))
    served(output)
    found = re.findall(r"^(\w+ \w+): NCCL.* pairs ([\d.]+) \([\d.]+ to ([\d.]+)\)$", output, re.MULTILINE)
    verdict = "NCCL's time / ours: " + ", ".join(f"{training} {ratio}" for training, ratio, _ in found)
    if len(found) != 10 or min(float(high) for _, _, high in found) < 0.99:
        raise Failed(f"slower than NCCL: {verdict}\n{output}")
    return verdict


def small() -> str:
    """Small all-reduces, in graphs and one by one, as fast as NCCL's within 5%: in turn, the least of three rounds.

    Of up to six where that is not so: one by one they take PyTorch's host time, which differs by a third from process
    to process.
    """
    ranks = needs("torch")
    least: dict[tuple[str, str], float] = {}
    ratios: dict[str, float] = {}
    for number in range(6):
        if number >= 3 and min(ratios.values()) >= 0.95:
            break
        for library, environment in (("nccl", WITHOUT_MULTICAST), ("paceline", on_paceline())):
            output = succeeded(ranks_of("nccl_small_side.py", ranks, environment=environment, seconds=60))
            for call, spent in re.findall(r"^(\w+ \d+) ([\d.]+) us$", output, re.MULTILINE):
                least[library, call] = min(float(spent), least.get((library, call), float("inf")))
        ratios = {call: least["nccl", call] / ours for (library, call), ours in least.items() if library == "paceline"}
    served(output)
    verdict = ", ".join(f"{call} B {least['paceline', call]:.1f} us ({ratio:.2f})" for call, ratio in ratios.items())
    if min(ratios.values()) < 0.95:
        raise Failed(f"slower than NCCL: {verdict}")
    return f"NCCL's time / ours: {verdict}"


def death() -> str:
    """The others end by themselves, with a sentence that names the dead rank."""
    ranks = needs("torch")
    environment = {**on_paceline(), "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}  # PyTorch sleeps so long, four times
    ended = ranks_of("nccl_death_side.py", ranks, environment=environment, seconds=60)
    dead = ranks - 1
    sentence = ""
    for rank, one in enumerate(ended[:dead]):
        served(one.output)
        named = re.search(rf"Last error:\s*(rank {dead} \([^\n]*)", one.output)
        if one.status == 0 or named is None:
            raise Failed(f"rank {rank} ended with status {one.status} and did not name rank {dead}\n{one.output}")
        if re.search("watchdog", one.output, re.IGNORECASE) is None:
            raise Failed(f"the watchdog of rank {rank} said nothing\n{one.output}")
        sentence = named.group(1)
    return f"the others' watchdogs fired, saying: {sentence}"


def shrink() -> str:
    """After a rank's death the others go on in a smaller communicator; ranks share GPUs where there are two."""
    ranks = max(3, needs("torch"))
    with tempfile.TemporaryDirectory() as folder:
        ended = ranks_of("nccl_shrink_side.py", ranks, folder, environment=on_paceline(), seconds=60)
    dead = ended.pop(1)
    if dead.status != -signal.SIGKILL:
        raise Failed(f"rank 1 ended with status {dead.status}\n{dead.output}")
    times = re.findall(r"is well: shrunk in (\d+) ms", served(succeeded(ended)))
    return f"{ranks - 1} of {ranks} ranks go on after {max(map(int, times))} ms"


def leaving() -> str:
    """Rank 0 ends before the others, and nobody destroys the process group: as on NCCL, nobody minds."""
    ranks = needs("torch")
    served(succeeded(ranks_of("nccl_leaving_side.py", ranks, environment=on_paceline(), seconds=60)))
    return "ranks that end one after the other, without destroy_process_group"


def one_process(package: str, script: str) -> str:
    devices = needs(package)
    output = served(succeeded(finish([Running(script, environment=on_paceline())], 60)))
    if f"{devices} of {devices} devices are well" not in output:
        raise Failed(output)
    return f"{devices} GPUs of one process"


def many_processes(package: str, script: str) -> str:
    devices = needs(package)
    output = served(succeeded(ranks_of(script, devices, environment=on_paceline(), seconds=60)))
    if output.count(f"1 of {devices} devices are well") != devices:
        raise Failed(output)
    return f"{devices} processes of a GPU"


PROGRAMS: dict[str, Callable[[], str]] = {  # the most telling first
    "collectives": collectives,
    "training": lambda: training("ddp", "fsdp2", "tensor", "graph"),
    "small": small,
    "steps": steps,
    "death": death,
    "shrink": shrink,
    "jax": lambda: one_process("jax", "nccl_jax_side.py"),
    "cupy": lambda: one_process("cupy", "nccl_cupy_side.py"),
    "compile": lambda: training("compile"),
    "leaving": leaving,
    "cupy-processes": lambda: many_processes("cupy", "nccl_cupy_side.py"),
    "jax-processes": lambda: many_processes("jax", "nccl_jax_side.py"),
    "forward-some": lambda: forwarded("broadcast,send_recv"),
    "forward-all": lambda: forwarded("all"),
    "processes": processes,
}


def main() -> int:
    limit = time.monotonic() + 260  # to begin a program
    failures = 0
    for name in sys.argv[1:] or PROGRAMS:
        begin = time.monotonic()
        try:
            if begin > limit:
                raise Absent("no time left")
            verdict = f"PASS  {PROGRAMS[name]()}"
        except Absent as absent:
            verdict = f"SKIP  {absent}"
        except Failed as failed:
            failures += 1
            verdict = f"FAIL  {str(failed)[:200]}"
            print("\n".join(f"    | {line}" for line in str(failed).splitlines()[-40:]))
        print(f"{name:15} {time.monotonic() - begin:5.1f} s  {verdict}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
