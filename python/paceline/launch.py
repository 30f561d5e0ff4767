"""Starting the ranks of a job on this machine, and seeing all of them to their end.

Used by `paceline run`, and by the commands that start ranks of their own. The secret goes through the environment
only. When a rank fails the others get a grace period, in which they should end by themselves with an error that names
it; then they are terminated, and killed. The same after a second signal that asks the job to end. No rank outlives its
launcher, also when that is killed. Where a job is ended before its time, neither do the processes that ranks have
started and not made sessions of their own; but a launcher that is killed cannot end those.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from . import interpreter
from .tagged_output import TaggedOutput

# The variables of each launcher that say, where none is empty, that this process is a rank already; the last one has
# the number of ranks (src/bootstrap/launcher.cc). A Slurm batch script has SLURM_PROCID too, but is no step.
_LAUNCHERS = (
    ("PACELINE_RANK", "PACELINE_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_NTASKS"),
)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What ends a job before its time. SIGPIPE: rank 0's sign that nobody reads any more (`end_with_reader`).
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_ONE_SIGNAL = 0.2  # s: timeout(1) sends its signal to the program and once more to its group
_LOOK_AGAIN = 1.0  # s: a signal does not end a wait for ranks
_LAUNCHER = "PACELINE_LAUNCHER"  # of a command's own ranks: the process that has started them
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


class NoSuchAddress(OSError):
    """Rank 0 cannot listen on an address: which, and why."""


def launched_size() -> int | None:
    """How many ranks the launcher of this process has started; None where there is no launcher."""
    for names in _LAUNCHERS:
        if all(os.environ.get(name) for name in names) and os.environ[names[-1]].isdigit():
            return int(os.environ[names[-1]])
    return None


def rank_environment(ranks: int, address: str = "127.0.0.1") -> dict[str, str]:
    """What a job's ranks have in common in their environments: size, address and a fresh secret.

    Raises:
        NoSuchAddress: this machine cannot listen on the address.
    """
    host = address.strip("[]")
    named = f"[{host}]" if ":" in host else host
    return {
        "PACELINE_SIZE": str(ranks),
        "PACELINE_ADDRESS": f"{named}:{_free_port(host)}",
        "PACELINE_SECRET": secrets.token_hex(32),
    }


def _free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            # Resolved here: bind() would drop the zone of fe80::1%eth0.
            probe.bind(socket.getaddrinfo(address, 0, family, socket.SOCK_STREAM)[0][4])
        except (socket.gaierror, UnicodeError):
            raise NoSuchAddress(f"{address}: no such host") from None
        except OSError as error:
            absent = error.errno == errno.EADDRNOTAVAIL
            why = "no interface of this machine has it" if absent else error.strerror
            raise NoSuchAddress(f"{address}: {why}") from None
        return int(probe.getsockname()[1])


def launch(
    command: Sequence[str],
    ranks: int,
    *,
    address: str = "127.0.0.1",
    timeout: float | None = None,
    grace: float = 10.0,
    program: str = "paceline run",
    environment: Mapping[str, str] | None = None,
    bind: bool = False,
    keep_going: bool = False,
    tag: bool = False,
) -> int:
    """Run a command as `ranks` ranks on this machine, and wait for all of them.

    Args:
        command: the program and its arguments, the same for every rank; rank 0 keeps standard input.
        address: this machine's address on which rank 0 listens.
        timeout: PACELINE_TIMEOUT of the ranks, seconds; None: as it is.
        grace: after a rank failed, seconds that the others have to end by themselves.
        program: who speaks on standard error when a rank fails.
        environment: the ranks' environment besides their own variables; None: this process's.
        bind: each rank runs on one CPU, of its own where there are enough; else neighbours share one.
        keep_going: the failure of a rank ends no other one.
        tag: each line of the ranks' output begins with the rank's number.

    Returns:
        0, or the exit code of the rank that failed first (128 + number for a signal); with keep_going 0 where a rank
        has ended with 0.

    Raises:
        NoSuchAddress: this machine cannot listen on the address.
    """
    shared = dict(os.environ if environment is None else environment) | rank_environment(ranks, address)
    # Otherwise every rank's BLAS would start a thread for each CPU, and they would fight.
    shared.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // ranks)))
    if timeout is not None:
        shared["PACELINE_TIMEOUT"] = f"{timeout:g}"
    if tag:  # else Python ranks would write into a pipe when they end
        shared.setdefault("PYTHONUNBUFFERED", "1")
    return _Job(command, ranks, shared, grace, program, bind, keep_going, tag).run()


class _Job:
    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        environment: dict[str, str],
        grace: float,
        program: str,
        bind: bool,
        keep_going: bool,
        tag: bool,
    ):
        self._command, self._ranks, self._environment = list(command), ranks, environment
        self._cpus = sorted(os.sched_getaffinity(0)) if bind else []
        self._grace, self._program, self._keep_going = grace, program, keep_going
        self._processes: list[subprocess.Popen[bytes]] = []
        self._descriptors: dict[int, int] = {}  # of processes that run -> rank
        self._tagged = TaggedOutput() if tag else None
        self._code = 0  # of the first failure
        self._succeeded = 0  # ranks
        self._older_children = frozenset(_children())  # of this process, which are none of the job's
        self._started = False
        self._early: list[int] = []  # signals that came for the ranks before all were there
        self._ending = 0  # the last signal that ends the job
        self._asked: float | None = None  # when the first one came that ends it
        self._hurried = False  # whether another one has come
        self._answers_until = 0.0  # an exit code up to then is a rank's answer to the last one
        self._sent: set[int] = set()  # all signals that the ranks have got
        self._deadline: float | None = None  # when the ranks' grace period ends
        self._given = 0.0  # s, how long it is
        self._reason = ""  # why it has begun
        self._told_of_stopped = False

    def run(self) -> int:
        # What was ignored when this began stays so, here and in the ranks: by nohup, or by a shell's background job.
        watched = [number for number in (*_FORWARDED, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
        if self._environment.get(_LAUNCHER) == str(os.getpid()):
            watched.append(signal.SIGPIPE)
        previous = {number: signal.signal(number, self._forward) for number in watched}
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # then nobody learns with what code a child ends
            previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        files = _allow_many_files()
        reaped = _reap_orphans(True)  # what ranks leave behind comes to this process
        try:
            try:
                self._start()
            except OSError as error:
                if error.errno == errno.EMFILE:
                    many = "three times as many" if self._tagged else "as many"
                    self._say(f"{self._ranks} ranks need {many} open files here, and a few more: raise `ulimit -n`, "
                              f"which is {_most_files()}")  # fmt: skip
                    return 1
                self._say(f"{self._command[0]}: {error.strerror}")
                return 127 if isinstance(error, FileNotFoundError) else 126
            self._wait()
        finally:
            self._end_all(signal.SIGKILL)
            for process in self._processes:
                process.wait()
            if self._is_cut_short():
                self._end_orphans()
            if self._tagged and (lost := self._tagged.finish(self._patience)):
                self._say(f"{lost} bytes of the ranks' output are lost, since nobody reads them")
            _reap_orphans(reaped)
            _remove_shared_memory_of([process.pid for process in self._processes])
            resource.setrlimit(resource.RLIMIT_NOFILE, files)
            for descriptor in self._descriptors:
                os.close(descriptor)
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._ending == signal.SIGPIPE:
            return 1  # as any command whose reader has gone
        code = self._code
        if self._keep_going and self._succeeded:
            code = 0
        return code or (128 + self._ending if self._ending else 0)

    def _is_cut_short(self) -> bool:
        """Whether the job was asked to end, or has failed."""
        return bool(self._ending or (self._code and not (self._keep_going and self._succeeded)))

    def _patience(self) -> float | None:
        """For how many seconds to wait for who reads nothing of the ranks' output when they have ended."""
        if self._hurried:
            return _ONE_SIGNAL
        return max(self._grace, 1.0) if self._is_cut_short() else None

    def _start(self) -> None:
        if self._ranks * (3 if self._tagged else 1) > _most_files():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        die_with_parent = _die_with(os.getpid())
        for rank in range(self._ranks):
            if self._ending:
                break  # nobody wants the rest
            cpus = self._cpu_of(rank)
            streams: list[int] = []
            try:
                if self._tagged:
                    for to in (1, 2):
                        streams.append(self._tagged.pipe(rank, to))
                process = subprocess.Popen(
                    self._command,
                    env=self._environment | {"PACELINE_RANK": str(rank)},
                    stdin=None if rank == 0 else subprocess.DEVNULL,
                    stdout=streams[0] if streams else None,
                    stderr=streams[1] if streams else None,
                    preexec_fn=lambda cpus=cpus: _become_rank(die_with_parent, cpus),
                )
            finally:
                for stream in streams:
                    os.close(stream)
            self._processes.append(process)
            self._descriptors[os.pidfd_open(process.pid)] = rank
        self._started = True
        for number in self._early:
            self._end_all(_sent_on(number))

    def _cpu_of(self, rank: int) -> list[int]:
        """Where the rank is bound: with more ranks than CPUs neighbours share one. Empty: nowhere."""
        place = rank * len(self._cpus) // max(self._ranks, len(self._cpus))
        return self._cpus[place : place + 1]

    def _wait(self) -> None:
        sterner = [signal.SIGTERM, signal.SIGKILL]
        ends = select.poll()  # select takes no descriptors from 1024 on
        for descriptor in self._descriptors:
            ends.register(descriptor, select.POLLIN)
        if self._tagged:
            self._tagged.watch(ends)
        look_at = time.monotonic() + _LOOK_AGAIN
        while self._descriptors:
            due = self._deadline if sterner else None  # a rank may take long to go even after SIGKILL
            remaining = _LOOK_AGAIN if due is None else max(0.0, due - time.monotonic())
            ready = [descriptor for descriptor, _ in ends.poll(1000 * min(remaining, _LOOK_AGAIN))]
            ended = [descriptor for descriptor in ready if descriptor in self._descriptors]
            for descriptor in ready:
                if self._tagged and descriptor not in self._descriptors:
                    self._tagged.turn(descriptor)
            for descriptor in ended:
                ends.unregister(descriptor)
                self._note_end(self._descriptors.pop(descriptor))
                os.close(descriptor)
            if not ready or time.monotonic() >= look_at:  # output may come without a pause
                look_at = time.monotonic() + _LOOK_AGAIN
                self._bury_orphans()
                if due is None:
                    self._tell_of_stopped()
            if not ended and due is not None and time.monotonic() >= due:
                still = ", ".join(str(rank) for rank in sorted(self._descriptors.values()))
                number = sterner.pop(0)
                self._say(f"rank {still} still there {self._given:g} s after {self._reason}: {number.name}")
                self._end_all(number)
                self._extend_grace(min(self._grace, 5.0))
        if self._keep_going and self._code and self._ending != signal.SIGPIPE:
            self._say(f"{self._succeeded} of {self._ranks} ranks ended well")

    def _tell_of_stopped(self) -> None:
        """Where the others have ended, and nobody may be there to wake those that are stopped."""
        pids = {rank: self._processes[rank].pid for rank in sorted(self._descriptors.values())}
        if self._told_of_stopped or not 0 < len(pids) < self._ranks or not all(map(_is_stopped, pids.values())):
            return
        self._told_of_stopped = True
        which = ", ".join(f"rank {rank} (pid {pid})" for rank, pid in pids.items())
        wake = " ".join(["kill -CONT", *map(str, pids.values())])
        self._say(f"{which} stopped, the others have ended: waiting for `{wake}`")

    def _begin_grace(self, reason: str) -> None:
        if self._deadline is None:
            self._reason = reason
            self._extend_grace(self._grace)

    def _extend_grace(self, seconds: float) -> None:
        self._given += seconds
        self._deadline = time.monotonic() + seconds

    def _note_end(self, rank: int) -> None:
        process = self._processes[rank]
        code = process.wait()
        if code == 0:
            self._succeeded += 1
            return
        failed = not self._is_answer(code)
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else "a signal"
            how, code = f"was killed by {name} (signal {-code})", 128 - code
        else:
            how = f"exited with code {code}"
        self._code = self._code or code
        if failed:
            others = "; the others go on" if self._keep_going and self._descriptors else ""
            self._say(f"rank {rank} (pid {process.pid}) {how}{others}")
            if not self._keep_going:
                self._begin_grace("the failure")

    def _is_answer(self, code: int) -> bool:
        """Whether a rank ended so because the job is to end: by a signal that it got, or with a code soon after it."""
        if not self._ending:
            return False
        number = -code if code < 0 else code - 128  # as shells and many programs say it
        return number in self._sent or (code > 0 and time.monotonic() <= self._answers_until)

    def _end_all(self, number: signal.Signals) -> None:
        self._sent.add(number)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _bury_orphans(self) -> None:
        """Ask how those ended that ranks have left behind: until then they are in the table of processes."""
        ranks = {process.pid for process in self._processes}
        for pid in set(_children()) - self._older_children - ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _end_orphans(self) -> None:
        """Kill what the ranks have left behind, but for sessions of their own."""
        session = os.getsid(0)
        for _ in range(1000):  # a child of a child comes here when its parent has gone
            killed = []
            for pid in set(_children()) - self._older_children:
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(pid) == session:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
            if not killed:
                return
            for pid in killed:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _forward(self, number: int, _: FrameType | None) -> None:
        if number in _ENDING:
            self._ending = number
            self._note_request(number)
        if not self._started:
            self._early.append(number)
        elif number != signal.SIGINT or not _from_terminal():  # which has sent it to the ranks itself
            self._end_all(_sent_on(number))

    def _note_request(self, number: int) -> None:
        """After the first signal the ranks end when they want to; who sends a second one wants the end."""
        now = time.monotonic()
        self._answers_until = now + self._grace
        self._sent.add(number)  # by the terminal, perhaps
        if self._asked is None:
            self._asked = now
        elif now > self._asked + _ONE_SIGNAL:
            self._hurried = True
            self._begin_grace(f"a second signal ({signal.Signals(number).name})")

    def _say(self, text: str) -> None:
        if self._tagged:
            self._tagged.say(f"{self._program}: {text}")
            return
        try:
            print(f"{self._program}: {text}\n", end="", file=sys.stderr, flush=True)
        except OSError:  # nobody reads it any more: no reason to end the job, nor for Python to fail at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _sent_on(number: int) -> signal.Signals:
    """What the ranks get of a signal that has come for the job."""
    return signal.SIGTERM if number == signal.SIGPIPE else signal.Signals(number)


def _from_terminal() -> bool:
    """Whether Ctrl-C reaches this process and its ranks through the terminal, wherever their output goes."""
    with contextlib.suppress(OSError), Path("/dev/tty").open("rb", 0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def _allow_many_files() -> tuple[int, int]:
    """Raise this process's limit of open files, and so the ranks': a launcher needs one for each rank, and rank 0 too.

    Up to 65536, if it may: some programs close every descriptor that there could be, and where the limit is 2^30 that
    takes minutes. Returns the limits as they were.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < many:
        resource.setrlimit(resource.RLIMIT_NOFILE, (many, hard))
    return soft, hard


def _most_files() -> int:
    """How many files this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _prctl() -> Callable[..., int]:
    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function


def _reap_orphans(wanted: bool) -> bool:
    """Whether children of this process's children become its own when their parents go. Returns how it was."""
    before = ctypes.c_int()
    _prctl()(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _prctl()(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return before.value != 0


def _remove_shared_memory_of(processes: Sequence[int]) -> None:
    """Take away the names of memory that they were killed with, before the other ranks had mapped it."""
    with contextlib.suppress(OSError):
        namespace = f"{Path('/proc/self/ns/pid').stat().st_ino:x}"
        for pid in processes:
            for name in Path("/dev/shm").glob(f"paceline-{pid}-{namespace}-*"):
                name.unlink()


def _children() -> list[int]:
    with contextlib.suppress(OSError):  # a kernel without this file: nothing is known
        return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return []


def _die_with(parent: int) -> Callable[[], None]:
    """For a new child, before it becomes the rank: the kernel kills it when the launcher dies."""
    prctl = _prctl()  # loaded here: a child may not load libraries between fork and exec

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask


def _become_rank(die_with_parent: Callable[[], None], cpus: Sequence[int]) -> None:
    die_with_parent()
    if cpus:
        os.sched_setaffinity(0, cpus)


def launch_self(words: Sequence[str], ranks: int, program: str) -> int:
    """Run this same command line as a job of `ranks` ranks."""
    environment = os.environ | {_LAUNCHER: str(os.getpid())}
    return launch(interpreter.paceline(*words), ranks, program=program, environment=environment)


def end_with_reader() -> None:
    """Have a rank of `launch_self` end the whole job when nobody reads its output any more (`paceline explain | head`).

    Otherwise the other ranks would complain that it has left.
    """
    launcher = os.getppid()
    if os.environ.get(_LAUNCHER) != str(launcher):
        return

    def end_job(*_: object) -> None:
        os.kill(launcher, signal.SIGPIPE)
        time.sleep(10)  # it ends this process, too

    signal.signal(signal.SIGPIPE, end_job)
