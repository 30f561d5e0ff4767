"""`paceline doctor`: what on this machine would slow or break a job, and the remedy."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import math
import os
import platform
import re
import resource
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .. import _native, interpreter, tuning
from ..errors import Error
from ..topology import topology
from .files import output_file, write_json
from .sizes import size_text


@dataclass(frozen=True)
class Check:
    """One row: ok, warn (slower than need be) or fail (a job would break)."""

    name: str
    state: Literal["ok", "warn", "fail"]
    finding: str
    remedy: str = ""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        allow_abbrev=False,
        help="say what on this machine would slow or break a job",
        description="Look at what a job needs of this machine, and say what would slow it (warn) or break it (fail), "
        "with the remedy. Exit code 1 if anything fails.",
    )
    parser.add_argument(
        "--nccl", action="store_true", help="look at libnccl.so.2 instead: who would serve a program's calls, and why"
    )
    parser.add_argument("--json", type=output_file, metavar="F", help="write the findings to this file")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    state: dict[str, Any] = {}
    if chosen.nccl:
        from . import doctor_nccl

        checks, state = doctor_nccl.checks()
        print(table(checks), doctor_nccl.calls(state), sep="\n\n")
    else:
        checks = [check() for check in CHECKS]
        print(table(checks))
    if chosen.json:
        document: dict[str, Any] = {
            "version": version(),
            "host": socket.gethostname(),
            "checks": [asdict(check) for check in checks],
        }
        if chosen.nccl:
            document["nccl"] = state
        write_json(chosen.json, document)
    return 1 if any(check.state == "fail" for check in checks) else 0


def table(checks: list[Check]) -> str:
    """A line for each check, its remedy below it."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:<4}  {check.name:<{width}}  {check.finding}")
        if check.remedy:
            lines.append(f"{'':<4}  {'':<{width}}  -> {check.remedy}")
    return "\n".join(lines)


def version() -> str | None:
    """The library's; None where it does not load."""
    try:
        return _native.version()
    except OSError:
        return None


def library() -> Check:
    """The shared library loads and belongs to this package, where that is an installed one."""
    path = _native.library_path()
    try:
        found = _native.version()
    except OSError as error:
        return Check(
            "library",
            "fail",
            str(error),
            "unset PACELINE_LIBRARY, or install the wheel again: pip install --force-reinstall paceline-VERSION.whl",
        )
    if (package := _installed_version()) not in (found, None):
        return Check("library", "fail", f"{path} is version {found}, the package {package}",
                     "install the wheel again, and unset PACELINE_LIBRARY")  # fmt: skip
    return Check("library", "ok", f"version {found}, {path}")


def _installed_version() -> str | None:
    """This package's; None: it is a source tree, whether or not another one is installed beside it."""
    try:
        installed = importlib.metadata.distribution("paceline")
    except importlib.metadata.PackageNotFoundError:
        return None
    is_this = Path(str(installed.locate_file("paceline"))).resolve() == Path(__file__).resolve().parents[1]
    return installed.version if is_this else None


def python() -> Check:
    """Versions of Python and NumPy."""
    try:
        numpy = "NumPy " + importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = "no NumPy (arrays then come from torch or the buffer protocol)"
    return Check("python", "ok", f"Python {platform.python_version()}, {numpy}")


def kernel() -> Check:
    """Linux 5.4 or later: what the package is tested with (pidfd_open, process_vm_readv, memory barriers)."""
    release = platform.release()
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit()]
    if numbers < [5, 4]:
        return Check("kernel", "warn", f"Linux {release}", "update to Linux 5.4 or later")
    return Check("kernel", "ok", f"Linux {release}")


def cpus() -> Check:
    """CPUs that the affinity mask and the cgroup quota allow."""
    allowed, quota = len(os.sched_getaffinity(0)), cgroup_cpus()
    of = f"{allowed} of {os.cpu_count()} CPUs allowed"
    if quota < allowed:
        return Check("cpus", "warn", f"{of}, but the cgroup's quota is {quota:g}: more ranks than that are throttled",
                     f"start at most {max(1, int(quota))} ranks, or raise the quota (docker --cpus)")  # fmt: skip
    if allowed == 1:
        return Check(
            "cpus", "warn", of, "several ranks take turns on one CPU: allow more (taskset, docker --cpuset-cpus)"
        )
    return Check("cpus", "ok", of)


def cgroup_cpus(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """The smallest CPU quota of this process's cgroup and those above it, in CPUs; infinity without any."""
    least = math.inf
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        folder = base / path.strip("/")
        for level in (folder, *folder.parents):
            least = min(least, _quota(level))
            if level == base:
                break
    return least


def _quota(folder: Path) -> float:
    quota, _, period = _read(folder / "cpu.max").partition(" ")  # cgroup 2
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except ValueError:  # "max", or no such file
        return math.inf


def shared_memory() -> Check:
    """/dev/shm: large enough and writable."""
    name, remedy = "/dev/shm", "mount it larger: docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm"
    try:
        space = os.statvfs(name)
    except OSError as error:
        return Check(name, "fail", f"{error.strerror}", "mount it: mount -t tmpfs tmpfs /dev/shm")
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    finding = f"{size_text(size // 2**20 * 2**20)} bytes, {size_text(free // 2**20 * 2**20)} free"
    if not os.access(name, os.W_OK | os.X_OK):
        if space.f_flag & os.ST_RDONLY:
            return Check(name, "fail", "mounted read-only", "mount -o remount,rw /dev/shm, or PACELINE_TRANSPORT=tcp")
        return Check(name, "fail", "not writable", "chmod 1777 /dev/shm, or PACELINE_TRANSPORT=tcp")
    if free < 2**24:
        return Check(name, "fail", finding, f"remove what fills it (ls -l /dev/shm), or {remedy}")
    if left := left_behind():
        finding += f"; {len(left)} files of ranks that were killed as they started"
        return Check(name, "warn", finding, f"rm {' '.join(map(str, left[:3]))}{' ...' if len(left) > 3 else ''}")
    return Check(name, "warn", finding, remedy) if free < 2**28 else Check(name, "ok", finding)


def left_behind(folder: Path = Path("/dev/shm")) -> list[Path]:
    """This user's, of ranks of this pid namespace that died before the others had mapped it. Without /proc: none."""
    try:
        here = f"{Path('/proc/self/ns/pid').stat().st_ino:x}"
    except OSError:
        return []
    ours = ((path, re.match(r"paceline-(\d+)-([0-9a-f]+)-", path.name)) for path in sorted(folder.glob("paceline-*")))
    dead = [path for path, name in ours if name and name[2] == here and not Path("/proc", name[1]).exists()]
    return [path for path in dead if _is_own(path)]


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except FileNotFoundError:  # it has gone since it was listed
        return False


def descriptors() -> Check:
    """Open files: a connection for each pair of ranks on different nodes, a few for each rank of the node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finding = f"{soft} a process (hard limit {'none' if hard == resource.RLIM_INFINITY else hard})"
    if soft != resource.RLIM_INFINITY and soft < 1024:
        state: Literal["warn", "fail"] = "fail" if soft < 64 else "warn"
        return Check("open files", state, finding, "ulimit -n 65536")
    return Check("open files", "ok", finding)


def locked_memory() -> Check:
    """Locked memory matters where a network card reads it directly."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    finding = "unlimited" if soft == resource.RLIM_INFINITY else f"{size_text(soft)} bytes"
    cards = Path("/sys/class/infiniband")
    if soft != resource.RLIM_INFINITY and cards.is_dir() and any(cards.iterdir()):
        return Check("locked memory", "warn", f"{finding}, and there is an RDMA network card", "ulimit -l unlimited")
    return Check("locked memory", "ok", finding)


def single_copy() -> Check:
    """Whether one rank may read another's memory (process_vm_readv): large messages then need one copy, not two."""
    error = _read_between_siblings()
    scope = _read(Path("/proc/sys/kernel/yama/ptrace_scope")) or "none"
    if error == 0:
        return Check("single copy", "ok", f"process_vm_readv works between processes (ptrace scope: {scope})")
    remedy = (
        "sysctl kernel.yama.ptrace_scope=0"
        if scope not in ("none", "0")
        else "in a container: docker run --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined"
    )
    remedy += "; or allocate arrays with paceline.empty, which needs no such copy"
    finding = f"process_vm_readv: {os.strerror(error)} (ptrace scope: {scope}): large messages are copied twice"
    return Check("single copy", "warn", finding, remedy)


# A rank that tells where a word of its memory is, and one that reads it there. Siblings, as ranks are: a parent may
# read its children under rules that do not hold between ranks.
_TARGET = """
import ctypes, sys
word = ctypes.c_uint64(0x7061636c696e65)
print(ctypes.addressof(word), flush=True)
sys.stdin.read()
"""
_READER = """
import ctypes, sys
pid, address = map(int, sys.argv[1:])
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
word = ctypes.c_uint64()
readv = ctypes.CDLL(None, use_errno=True).process_vm_readv
readv.restype = ctypes.c_ssize_t
here, there = Piece(ctypes.addressof(word), 8), Piece(address, 8)
count = readv(pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0))
print(ctypes.get_errno() if count != 8 else 0 if word.value == 0x7061636c696e65 else 5)
"""


def _read_between_siblings() -> int:
    """0, or the errno of one process reading another's memory."""
    with subprocess.Popen(interpreter.python(_TARGET), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdout is not None
        address = target.stdout.readline().decode().strip()
        reader = interpreter.python(_READER, str(target.pid), address)
        found = subprocess.run(reader, stdout=subprocess.PIPE, check=False)
        target.kill()
    return int(found.stdout) if found.returncode == 0 else 38


def huge_pages() -> Check:
    """Transparent huge pages: fewer page faults and translations for large buffers."""
    setting = _read(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    chosen = setting.partition("[")[2].partition("]")[0]
    if chosen == "never":
        return Check("huge pages", "warn", "transparent huge pages: never",
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")  # fmt: skip
    return Check("huge pages", "ok", f"transparent huge pages: {chosen or 'unknown'}")


def loopback() -> Check:
    """Rank 0 listens on the loopback interface when all ranks are on this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2):
            return Check("loopback", "ok", "127.0.0.1 accepts connections")
    except OSError as error:
        return Check(
            "loopback", "fail", f"127.0.0.1: {error}", "ip link set lo up, and let the firewall pass 127.0.0.1"
        )


def gpus() -> Check:
    """GPUs that this process sees."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Check("gpus", "ok", "none (no CUDA driver): collectives run on CPUs")
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return Check("gpus", "ok", "a CUDA driver, but no GPU visible: collectives run on CPUs")
    return Check("gpus", "ok", f"{count.value} visible")


def tuned() -> Check:
    """What the choice of algorithms goes by: a profile of `paceline tune`, if there is one of this machine."""
    try:
        named = tuning.tuning_file()["path"]
    except OSError:
        return Check("tuning", "ok", "unknown: the library does not load")
    if not named and not tuning.is_off():
        finding = f"{tuning.NO_FOLDER}: algorithms are chosen by built-in costs"
        return Check("tuning", "warn", finding, "set HOME, or PACELINE_TUNING to a profile's file")
    if not named:
        return Check("tuning", "ok", "switched off (PACELINE_TUNING): algorithms are chosen by built-in costs")
    path, remedy = Path(named), "paceline tune, which takes three minutes"
    if not _is_absent(path):
        if not os.access(path, os.R_OK, effective_ids=True):
            remedy = "let this user read it, or set PACELINE_TUNING to another profile's file"
            return Check("tuning", "warn", f"{path} is not used: it cannot be read", remedy)
        if reason := tuning.reason_against_file(path):
            return Check("tuning", "warn", f"{path} is not used: {reason}", remedy)
        return Check("tuning", "ok", f"algorithms are chosen by {path}")
    finding = f"algorithms are chosen by built-in costs: there is no {path}"
    if others := sorted(path.parent.glob("tuning-*.json")):
        finding += f", but {others[0].name}, of another machine or of this one with other parts"
        return Check("tuning", "warn", finding, remedy)
    return Check("tuning", "ok", f"{finding}, which `paceline tune` makes")


def topology_file() -> Check:
    """What jobs started here would know of what is between their machines."""
    path = os.environ.get("PACELINE_TOPOLOGY")
    if not path:
        return Check("topology", "ok", "none is given (PACELINE_TOPOLOGY): links between machines are measured")
    remedy = "docs/topology.md has the file's form"
    if _is_absent(Path(path)):
        return Check("topology", "fail", f"PACELINE_TOPOLOGY={path}: there is no such file", remedy)
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # to open a pipe would wait for who writes to it
            return Check("topology", "fail", f"PACELINE_TOPOLOGY={path}: it is not a file", remedy)
        known = topology({"file": Path(path).read_text(encoding="utf-8")})
    except (OSError, ValueError, Error) as error:
        return Check("topology", "fail", f"PACELINE_TOPOLOGY={path}: {error}", remedy)
    return Check("topology", "ok", f"PACELINE_TOPOLOGY={path} has {len(known['gpus'])} GPUs: rank r is on GPU r")


def job_on_this_machine() -> Check:
    """Two ranks meet and add two numbers: the whole way of a call."""
    from ..launch import rank_environment

    program = "import paceline, array; c = paceline.init(timeout=10); x = array.array('f', [1]); c.all_reduce(x); " \
              "assert x[0] == 2; c.close(); print('well')"  # fmt: skip
    shared = dict(os.environ) | rank_environment(2) | {"PACELINE_JOIN_TIMEOUT": "10"}
    ranks = [
        subprocess.Popen(interpreter.python(program), env=shared | {"PACELINE_RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        for rank in range(2)
    ]  # fmt: skip
    problems = []
    for rank in ranks:
        try:
            said, errors = rank.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            rank.send_signal(signal.SIGKILL)
            said, errors = rank.communicate()
        if said.strip() != "well":  # where SIGCHLD is ignored, the exit code is 0 in any case
            problems.append((errors.strip().splitlines() or [f"ended with {rank.returncode}"])[-1])
    if problems:
        return Check(
            "job", "fail", f"two ranks could not add two numbers: {problems[0]}", "PACELINE_LOG=debug tells more"
        )
    return Check("job", "ok", "two ranks met and added two numbers")


def _is_absent(path: Path) -> bool:
    """Whether there is no such file; one in a folder that this user may not enter might be there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


CHECKS: tuple[Callable[[], Check], ...] = (
    library, python, kernel, cpus, shared_memory, descriptors, locked_memory, single_copy, huge_pages, loopback, gpus,
    tuned, topology_file, job_on_this_machine,
)  # fmt: skip
