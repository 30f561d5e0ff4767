"""What the ranks of ForkedRanks do in the tests of failures."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_int
from pathlib import Path
from typing import Any

import numpy
import paceline
from forked_ranks import Line
from paceline import _native
from storm import Storm


def outcome_of(call: Callable[[], Any]) -> dict[str, Any]:
    """How a call ended: the error's kind ("" for none), its message, when, and how long it took."""
    begin = time.monotonic()
    kind, message, rank = "", "", None
    try:
        call()
    except paceline.Error as error:
        kind, message, rank = type(error).__name__, str(error), error.rank
    at = time.monotonic()
    return {"kind": kind, "message": message, "rank": rank, "at": at, "seconds": at - begin}


def until_ended(comm: paceline.Communicator) -> dict[str, Any]:
    """Wait, outside of any call, for the communicator's end."""
    while (error := comm.get_async_error()) is None:
        time.sleep(0.005)
    return {"kind": type(error).__name__, "message": str(error), "at": time.monotonic()}


# ---- Deaths, stops, departures ----


def storm(line: Line, seed: int, last: str) -> dict[str, Any]:
    """Random calls, and then calls of the last kind until one fails; the next must fail for the same reason."""
    comm = paceline.init()
    line.tell("joined")
    calls = Storm(comm, seed, last)
    for _ in range(calls.mixed):
        calls.go_on()
    line.tell(f"only {last} from now on")
    while not (found := outcome_of(calls.go_on))["kind"]:
        pass
    again = outcome_of(comm.barrier)
    assert (again["kind"], again["message"]) == (found["kind"], found["message"]), (again, found)
    comm.close()
    return found | {"call": calls.name}


def join_and_meet(line: Line) -> dict[str, Any]:
    """Join, and then one barrier after another until an error."""
    line.tell("starts")
    made: list[paceline.Communicator] = []
    found = outcome_of(lambda: made.append(paceline.init()))
    for comm in made:
        while not (found := outcome_of(comm.barrier))["kind"]:
            pass
        comm.close()
    return found


def abort_from_a_thread(line: Line, aborts: int) -> dict[str, Any]:
    """Rank 0 enters no call; the others wait for it, until another thread of rank `aborts` aborts, which stays."""
    comm = paceline.init()
    comm.barrier()
    if comm.rank == 0:
        return until_ended(comm)
    if comm.rank == aborts:
        threading.Timer(0.2, lambda: (line.tell(time.monotonic()), comm.abort())).start()
    found = outcome_of(lambda: comm.all_reduce(numpy.ones(1000)))
    if comm.rank == aborts:
        line.tell(found)
        line.hear()  # its end would be a reason, too
    return found


def leave_early(line: Line, leaves: int, function: str) -> dict[str, Any]:
    """One rank closes; the others still need it."""
    comm = paceline.init()
    comm.barrier()
    if comm.rank == leaves:
        with suppress(paceline.Mismatch):  # perhaps with word of what the others call without it
            comm.close()
        return {"at": time.monotonic()}
    if function == "recv":
        return outcome_of(lambda: comm.recv(numpy.ones(1000), leaves))
    if function == "broadcast":  # read where it lies: rank 0 waits until the others have taken it
        shared = paceline.empty(1 << 17, "uint8")
        return outcome_of(lambda: (comm.broadcast(shared), comm.barrier()))
    return outcome_of(comm.barrier if function == "barrier" else lambda: comm.all_reduce(numpy.ones(1000)))


def never_enter(line: Line, absent: int) -> dict[str, Any]:
    comm = paceline.init()
    comm.barrier()
    if comm.rank == absent:
        return until_ended(comm)
    return outcome_of(lambda: comm.all_reduce(numpy.ones(1000)))


def take_nothing(line: Line) -> dict[str, Any]:
    """The last rank does not come to a broadcast whose root waits until it is taken; job rank 0 has no part in it."""
    comm = paceline.init()
    part = comm.split(min(comm.rank, 1))
    assert part is not None
    part.barrier()
    if comm.rank == 0 or part.rank == part.size - 1:
        found = {"kind": ""} if comm.rank == 0 else until_ended(part)
        return found | {"last": line.hear()}
    return outcome_of(lambda: part.broadcast(paceline.empty(1 << 17, "uint8")))


def die_without_rank_0(line: Line) -> dict[str, Any]:
    """Job rank 0 has left; rank 1 waits for rank 2, in a communicator of the two."""
    comm = paceline.init()
    part = comm.split(min(comm.rank, 1))
    assert part is not None
    comm.close()
    if comm.rank == 0:
        part.close()
        return {"kind": ""}
    part.barrier()
    line.tell("there")
    if part.rank == 1:
        line.hear()
    return outcome_of(part.barrier)


def die_beside_a_group(line: Line, order: list[int]) -> list[int | None]:
    """The last rank dies while the others are in a group on two communicators, which number the ranks in opposite ways.

    Returns whom the group's error is about, and whom the last error of each communicator is.
    """
    comm = paceline.init()
    turned = comm.split(0, -comm.rank)
    assert turned is not None
    comms = comm, turned
    line.tell("there")
    if comm.rank == 2:
        line.hear()
    found: list[int | None] = []
    try:
        with paceline.group():
            for each in order:
                comms[each].barrier()
    except paceline.RemoteError as error:
        found.append(error.rank)
    for each in order:
        rank = c_int()
        _native.library().paceGetLastErrorRank(comms[each]._handle, rank)
        found.append(rank.value)
    return found


def fail_and_write(line: Line) -> dict[str, Any]:
    """Rank 0's broadcast fails while rank 1 is stopped; then it writes to its buffer."""
    comm = paceline.init()
    shared = paceline.empty(1 << 17, "uint8")
    comm.barrier()
    if comm.rank == 0:
        line.hear()
        shared[:] = 1
        found = outcome_of(lambda: comm.broadcast(shared))
        shared[:] = 99
        line.tell(found)
        return {"heard": line.hear()}
    line.tell("waits")
    found = outcome_of(lambda: comm.broadcast(shared))
    return found | {"got": sorted({int(value) for value in shared})}


# ---- Mismatches ----

Calls = dict[str, Callable[[paceline.Communicator], Any]]
FLOATS = numpy.float32


def ones(count: int, dtype: Any = FLOATS) -> Any:
    return numpy.ones(count, dtype)


def scatter(comm: paceline.Communicator, root: int) -> Any:
    return comm.scatter(ones(4 * comm.size) if comm.rank == root else None, root=root, out=ones(4))


def receive_in_group(comm: paceline.Communicator, peers: list[int]) -> None:
    with comm.group():
        for peer in peers:
            comm.recv(ones(4), peer)


CALLS: Calls = {
    "nothing": lambda comm: None,
    "barrier": lambda comm: comm.barrier(),
    "all_reduce": lambda comm: comm.all_reduce(ones(4)),
    "all_reduce of 5": lambda comm: comm.all_reduce(ones(5)),
    "all_reduce of none": lambda comm: comm.all_reduce(ones(0)),
    "all_reduce of int32": lambda comm: comm.all_reduce(ones(4, numpy.int32)),
    "all_reduce max": lambda comm: comm.all_reduce(ones(4), op="max"),
    "all_reduce of 500000": lambda comm: comm.all_reduce(ones(500_000)),
    "all_reduce of 500001": lambda comm: comm.all_reduce(ones(500_001)),
    "broadcast": lambda comm: comm.broadcast(ones(4)),
    "broadcast of none": lambda comm: comm.broadcast(ones(0)),
    "broadcast from last": lambda comm: comm.broadcast(ones(4), root=comm.size - 1),
    "broadcast from next": lambda comm: comm.broadcast(ones(4), root=(comm.rank + 1) % comm.size),
    "broadcast from me": lambda comm: comm.broadcast(ones(4), root=comm.rank),
    "reduce": lambda comm: comm.reduce(ones(4)),
    "reduce to last": lambda comm: comm.reduce(ones(4), root=comm.size - 1),
    "gather": lambda comm: comm.gather(ones(4)),
    "gather to last": lambda comm: comm.gather(ones(4), root=comm.size - 1),
    "scatter": lambda comm: scatter(comm, 0),
    "scatter from last": lambda comm: scatter(comm, comm.size - 1),
    "all_gather": lambda comm: comm.all_gather(ones(4)),
    "all_to_all": lambda comm: comm.all_to_all(ones(4 * comm.size)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(ones(4 * comm.size), out=ones(4)),
    "send": lambda comm: comm.send(ones(4), (comm.rank + 1) % comm.size),
    "send of none": lambda comm: comm.send(ones(0), (comm.rank + 1) % comm.size),
    "recv": lambda comm: comm.recv(ones(4), (comm.rank - 1) % comm.size),
    "recv of 5": lambda comm: comm.recv(ones(5), (comm.rank - 1) % comm.size),
    "recv of none": lambda comm: comm.recv(ones(0), (comm.rank - 1) % comm.size),
    "recv of int32": lambda comm: comm.recv(ones(4, numpy.int32), (comm.rank - 1) % comm.size),
    "recv from next": lambda comm: comm.recv(ones(4), (comm.rank + 1) % comm.size),
    "recv from 0 and 2": lambda comm: receive_in_group(comm, [0, 2]),
}


def mismatches(line: Line, cases: list[list[list[str]]]) -> list[dict[str, Any]]:
    """For each case a communicator of its own, on which rank r makes the calls case[r], and then barriers until an
    error; how long it took since all were ready."""
    comm = paceline.init()
    found = []
    for case in cases:
        part = comm.split(0)
        assert part is not None
        comm.barrier()
        begin = time.monotonic()
        for name in [*case[comm.rank], *["barrier"] * 3]:
            outcome = outcome_of(lambda name=name, part=part: CALLS[name](part))  # type: ignore[misc]
            if outcome["kind"]:
                break
        found.append(outcome | {"after": time.monotonic() - begin})
        comm.barrier()  # a rank that closed before the others saw their error would be the reason
        part.close()
    comm.close()
    return found


def call_and_compute(line: Line, calls: list[str]) -> dict[str, Any]:
    """Rank r calls calls[r]. Where that returns, it makes no other call until the test says so."""
    comm = paceline.init()
    comm.barrier()
    found = outcome_of(lambda: CALLS[calls[comm.rank]](comm))
    if not found["kind"]:
        line.hear()
        found = outcome_of(comm.barrier)
    return found


# ---- Start-up ----


def join(line: Line, few_descriptors: int | None = None, on: int = 0) -> dict[str, Any]:
    """Join, meet once, and leave. Rank `on` may open only so many more descriptors."""
    _native.library()  # loading it needs descriptors too
    if few_descriptors is not None and os.environ["PACELINE_RANK"] == str(on):
        os.close(probe := os.open("/", os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + few_descriptors, probe + few_descriptors))

    def come_and_go() -> None:
        with paceline.init() as comm:
            comm.barrier()

    return outcome_of(come_and_go)


# ---- What a process holds ----


def split_without_descriptors(line: Line, on: int) -> list[dict[str, Any]]:
    """A split on whose rank `on` no descriptor is left, and then a barrier of the whole."""
    comm = paceline.init()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if comm.rank == on:
        # Enough to show the others what they need to know, too few for the connections to them.
        probe = os.open("/dev/null", os.O_RDONLY)
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 4, limit[1]))
    parting = outcome_of(lambda: comm.split(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    meeting = outcome_of(comm.barrier)
    comm.close()
    return [parting, meeting]


def living_threads() -> int:
    """A thread that was joined may still stand in /proc while the kernel ends it; it is marked as exiting by then."""
    exiting, flags = 0x4, 6  # PF_EXITING; fields of stat after the name, which may hold spaces (proc_pid_stat(5))
    living = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            words = (task / "stat").read_text().rpartition(")")[2].split()
            living += not int(words[flags]) & exiting
    return living


def holdings() -> dict[str, Any]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "descriptors": sorted(str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()),
        "threads": living_threads(),
        "mappings": sorted({words for line in maps if "paceline-" in (words := line.split()[-1])}),
    }


def come_and_go(line: Line, times: int, ending: str) -> list[dict[str, Any]]:
    """Join, call and leave, again and again; what this process held before, and after each time."""
    held = []
    for number in range(times + 1):
        line.tell("ready")
        line.hear()
        held.append(holdings())
        if number == times:
            break
        comm = paceline.init()
        x = numpy.ones(200_000)
        comm.all_reduce(x)
        comm.all_reduce(x, async_op=True).wait()
        part = comm.split(comm.rank % 2)
        if ending == "abort" and comm.rank == 1:
            comm.abort()
        if ending == "abort":
            found = until_ended(comm)
            assert found["kind"] == "Aborted", found
        if ending == "mismatch":
            found = outcome_of(lambda comm=comm: comm.all_reduce(numpy.ones(4 + comm.rank)))  # type: ignore[misc]
            assert found["kind"] == "Mismatch", found
        if ending == "shrink":
            with comm.shrink([1 - comm.rank]), comm.shrink([]) as same:
                same.barrier()
        if part is not None:
            part.close()
        comm.close()
    return held


def start_again(line: Line, victim: int) -> int:
    """After a death the survivors make a new communicator, with an id that the test passes on."""
    comm = paceline.init()
    line.tell("joined")
    if comm.rank == victim:
        line.hear()
    assert outcome_of(comm.barrier)["kind"] == "RemoteError"
    comm.close()
    rank = comm.rank - (comm.rank > victim)
    if rank == 0:
        line.tell(paceline.unique_id())
    with paceline.init(rank=rank, size=comm.size - 1, unique_id=line.hear()) as again:
        x = numpy.full(1000, again.rank + 1)
        again.all_reduce(x)
        return int(x[0])


def go_on(line: Line, victims: list[int]) -> list[Any]:
    """The victims die one after another; after each death the survivors go on in a shrunk communicator.

    Returns the ranks' numbers and sums; the last one is of ranks that no error has told of anything.
    """
    comm = paceline.init()
    number, found = comm.rank, []
    for victim in victims:
        line.tell("there")
        if number == victim:
            line.hear()
        error = None
        while error is None:
            try:
                comm.all_reduce(numpy.ones(1000))
            except paceline.RemoteError as failure:
                error = failure
        assert error.rank is not None
        survivors = comm.shrink([error.rank])
        comm.close()
        comm = survivors
        found.append([error.rank, comm.rank, comm.size, int(comm.all_reduce(numpy.full(1000, comm.rank))[0])])
    with comm, comm.shrink([]) as same, same.shrink(range(1)) if same.rank else same as last:
        found.append([last.rank, last.size])
    return found


# ---- Two threads ----


def two_threads(line: Line, second: str) -> dict[str, Any]:
    """On rank 0 a second thread calls while the first waits for the other ranks; then these come."""
    comm = paceline.init()
    if comm.rank:
        line.hear()
        return outcome_of(comm.barrier)
    first: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: first.append(outcome_of(comm.barrier)))
    waiting.start()
    time.sleep(1)  # until it is inside
    found = outcome_of(lambda: getattr(comm, second)(*([0] if second == "split" else [])))
    line.tell(found)
    waiting.join()
    comm.close()
    return first[0]


def many_threads(line: Line) -> int:
    """Threads without order: each call succeeds, or is refused by name."""
    comm = paceline.init()
    refused = []

    def hammer() -> None:
        for _ in range(2000):
            found = outcome_of(lambda: comm.all_reduce(numpy.ones(1000)))
            assert found["kind"] in ("", "InvalidUsage"), found
            refused.append(bool(found["kind"]))

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    comm.barrier()
    return len(refused)
