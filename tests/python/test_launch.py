"""`paceline run`: ranks are started, watched and ended."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import alive, command, printed_by, run
from paceline.launch import launch, launched_size


def test_ranks_are_bound_to_cpus() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    words = "[os.environ['PACELINE_RANK'], *os.sched_getaffinity(0)]"
    show = f"import os; os.write(1, (' '.join(map(str, {words})) + chr(10)).encode())"  # a line at once
    ranks = min(2, len(cpus))
    done = run("-n", str(ranks), "--bind", "--", sys.executable, "-c", show)
    assert sorted(done.stdout.split("\n")[:-1]) == [f"{rank} {cpus[rank]}" for rank in range(ranks)]
    done = run("-n", str(2 * len(cpus)), "--bind", "--", sys.executable, "-c", show)
    assert sorted(done.stdout.split("\n")[:-1]) == sorted(f"{rank} {cpus[rank // 2]}" for rank in range(2 * len(cpus)))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_only_ranks_that_share_cpus_take_themselves_for_too_many() -> None:
    init = "import paceline; paceline.init().close()"
    first = min(os.sched_getaffinity(0))
    on_one = ["taskset", "-c", str(first)]
    for options, before, crowded in ((["--bind"], [], False), ([], [], False), ([], on_one, True)):
        words = ["-n", "2", *options, "--", *before, sys.executable, "-c", init]
        done = run(*words, env={**os.environ, "PACELINE_LOG": "info"})
        assert done.returncode == 0, done.stderr
        assert ("more ranks than CPUs" in done.stderr) == crowded, done.stderr


def test_a_long_wait_is_logged_for_who_asks_for_it() -> None:
    late = "import paceline, time; c = paceline.init(); c.rank != 1 or time.sleep(8); c.barrier(); c.close()"
    done = run("-n", "2", "--", sys.executable, "-c", late, env={**os.environ, "PACELINE_LOG": "info"})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "has waited" in line]
    assert len(lines) == 1 and "rank 0" in lines[0], done.stderr
    assert re.search(r"has waited \d+ s for rank 1 in barrier #1; gives up after 300 s", lines[0])


def test_a_misspelt_variable_is_told_once() -> None:
    init = "import paceline; paceline.init().close(); paceline.init().close()"
    done = run("-n", "2", "--", sys.executable, "-c", init, env={**os.environ, "PACELINE_TIMOUT": "5"})
    assert done.stderr.count("PACELINE_TIMOUT is no variable of Paceline's: PACELINE_TIMEOUT is") == 1, done.stderr


def test_ranks_learn_who_they_are() -> None:
    done = run("-n", "3", "--timeout", "7", "--", "sh", "-c", "echo $PACELINE_RANK $PACELINE_SIZE $PACELINE_TIMEOUT "
               "$PACELINE_ADDRESS $PACELINE_SECRET")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:3] for line in lines] == [["0", "3", "7"], ["1", "3", "7"], ["2", "3", "7"]]
    assert len({(address, secret) for *_, address, secret in lines}) == 1
    address, secret = lines[0][3:]
    assert address.startswith("127.0.0.1:") and len(secret) == 64


def test_threads_of_all_ranks_are_as_many_as_the_cpus() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert run("-n", "1", "--", "printenv", "OMP_NUM_THREADS", env=environment).stdout == (
        f"{len(os.sched_getaffinity(0))}\n"
    )
    assert (
        run("-n", "2", "--", "printenv", "OMP_NUM_THREADS", env=environment | {"OMP_NUM_THREADS": "7"}).stdout
        == "7\n7\n"
    )


def test_every_job_has_its_own_secret() -> None:
    assert run("-n", "1", "--", "printenv", "PACELINE_SECRET").stdout != run(
        "-n", "1", "--", "printenv", "PACELINE_SECRET"
    ).stdout  # fmt: skip


def test_the_secret_is_in_no_command_line() -> None:
    program = """for file in /proc/$$/cmdline /proc/$PPID/cmdline; do
      case "$(tr '\\0' ' ' <$file)" in *$PACELINE_SECRET*) exit 1;; *paceline*|*PPID*) ;; *) exit 2;; esac
    done"""
    assert run("-n", "2", "--", "sh", "-c", program).returncode == 0


def test_the_first_failure_is_named_and_is_the_exit_code(tmp_path: Path) -> None:
    pid = tmp_path / "pid"  # gone when the launcher has noted the end of rank 1: then the others end
    program = (
        f"test $PACELINE_RANK != 1 || {{ echo $$ >{pid}; exit 7; }}; "
        f"until test -s {pid}; do sleep 0.01; done; while test -e /proc/$(cat {pid}); do sleep 0.01; done; exit 5"
    )
    done = run("-n", "3", "--", "sh", "-c", program)
    assert done.returncode == 7
    first, *others = done.stderr.splitlines()
    assert first.startswith("paceline run: rank 1 (pid ") and first.endswith("exited with code 7")
    assert len(others) == 2


def test_a_failure_is_noted_also_where_ends_of_children_were_ignored() -> None:
    program = (
        "import signal; from paceline.launch import launch\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "print(launch(['sh', '-c', 'exit 3'], 2), signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)"
    )
    assert printed_by(program) == "3 True\n"


def test_a_signal_is_named() -> None:
    done = run("-n", "2", "--", "sh", "-c", "test $PACELINE_RANK != 0 || kill -KILL $$")
    assert done.returncode == 128 + 9
    assert "rank 0" in done.stderr and "was killed by SIGKILL (signal 9)" in done.stderr


def test_the_others_may_go_on_after_a_failure() -> None:
    program = "case $PACELINE_RANK in 1) kill -KILL $$;; 2) exit 5;; esac; sleep 1.5; exit $0"
    done = run("-n", "4", "--grace", "0", "--keep-going", "--", "sh", "-c", program, "0")
    assert done.returncode == 0
    *failures, summary = done.stderr.splitlines()
    assert sorted(line.partition(") ")[2] for line in failures) == [
        "exited with code 5; the others go on",
        "was killed by SIGKILL (signal 9); the others go on",
    ]
    assert summary == "paceline run: 2 of 4 ranks ended well"
    done = run("-n", "4", "--grace", "0", "--keep-going", "--", "sh", "-c", program, "6")
    assert done.returncode in (5, 137)  # that of the first
    assert done.stderr.count("exited with code 6") == 2
    assert done.stderr.endswith("paceline run: 0 of 4 ranks ended well\n")


def test_the_others_go_on_also_when_nobody_reads_of_the_failure() -> None:
    program = "test $PACELINE_RANK = 0 || exit 3; sleep 1.5; echo well"
    words = command("run", "-n", "2", "--keep-going", "--", "sh", "-c", program)
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    job.stderr.close()
    assert job.communicate(timeout=60)[0] == "well\n"
    assert job.returncode == 0


@pytest.mark.parametrize(("failure", "code"), [(7, 0), (0, 0)])
def test_what_ranks_of_a_job_that_ends_well_leave_behind_goes_on(failure: int, code: int) -> None:
    program = f"test $PACELINE_RANK = 0 || exit {failure}; sleep 60 >&- 2>&- & echo $!; sleep 0.5"
    done = run("-n", "2", "--keep-going", "--", "sh", "-c", program)
    assert done.returncode == code, done.stderr
    left = int(done.stdout)
    assert alive(left)
    os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("chatty", [False, True])
def test_what_ranks_leave_behind_is_buried_while_the_job_runs(chatty: bool) -> None:
    """Also where a launcher that tags their output never waits for it."""
    program = """
import os, subprocess, sys, threading, time
from pathlib import Path

def zombies():
    return [pid for path in Path(f"/proc/{os.getppid()}/task").glob("*/children") for pid in path.read_text().split()
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"]

def chat():
    while True:
        os.write(2, b"x\\n")
        time.sleep(0.01)

threading.Thread(target=chat, daemon=True).start()
subprocess.run(["sh", "-c", "for i in 1 2 3 4 5; do sleep 0.1 & done"])
time.sleep(0.3)
deadline = time.monotonic() + 20
while zombies() and time.monotonic() < deadline:
    time.sleep(0.1)
print(len(zombies()))
"""
    tag = ["--tag"] if chatty else []
    assert run("-n", "1", *tag, "--", sys.executable, "-c", program).stdout == ("[0] 0\n" if chatty else "0\n")


def test_a_stopped_rank_that_is_left_alone_is_named() -> None:
    stop = "import os, signal; os.environ['PACELINE_RANK'] != '1' or os.kill(os.getpid(), signal.SIGSTOP)"
    words = command("run", "-n", "2", "--", sys.executable, "-c", stop)
    job = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    try:
        said = job.stderr.readline()
        assert "rank 1 (pid " in said and "stopped, the others have ended" in said, said
        os.kill(int(said.partition("(pid ")[2].partition(")")[0]), signal.SIGCONT)
        assert job.wait(timeout=30) == 0
    finally:
        job.kill()  # its ranks die with it


def test_ranks_that_are_not_stopped_are_not_named() -> None:
    """Whenever the launcher looks: also when all have just ended."""
    assert run("-n", "2", "--", "sleep", "1.1").stderr == ""


def test_ranks_that_do_not_end_after_a_failure_are_ended(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"""if test $PACELINE_RANK = 0; then until test -e {ready}; do sleep 0.01; done; exit 3; fi
    trap '' TERM; touch {ready}; while :; do sleep 0.1; done"""
    done = run("-n", "2", "--grace", "0.3", "--", "sh", "-c", program)
    assert done.returncode == 3
    assert "rank 1 still there 0.3 s after the failure: SIGTERM" in done.stderr
    assert "rank 1 still there 0.6 s after the failure: SIGKILL" in done.stderr


def test_a_rank_that_outlives_its_kill_is_waited_for_without_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that is in the middle of a system call that nothing interrupts."""
    polls: list[float] = []
    descriptors: list[int] = []

    class Ends:
        """Tells the first rank's end at once, the second one's long after both were killed."""

        def register(self, descriptor: int, _: int) -> None:
            descriptors.append(descriptor)

        def unregister(self, descriptor: int) -> None:
            descriptors.remove(descriptor)

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            polls.append(milliseconds)
            return [(descriptors[0], select.POLLIN)] if len(polls) in (1, 10) else []

    monkeypatch.setattr(select, "poll", Ends)
    assert launch(["false"], 2, grace=0) == 1
    assert [wait > 0 for wait in polls] == [True, False, False] + [True] * 7, polls


def test_a_launcher_may_have_more_than_1024_files_open() -> None:
    """As that of more than 1000 ranks has."""
    program = (
        "import os, resource; from paceline.launch import launch\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "for _ in range(1100): os.dup(0)\n"
        "print(launch(['true'], 2))"
    )
    assert printed_by(program) == "0\n"


def limited(limit: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`paceline run` under `ulimit LIMIT`."""
    shell = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command("run", *words)]
    return subprocess.run(shell, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "ranks", "many"),
    [((), 40, "as many"), (("--tag",), 40, "three times as many"), (("--tag",), 10, "three times as many")],
)
def test_more_ranks_than_files_that_may_be_open(words: tuple[str, ...], ranks: int, many: str) -> None:
    done = limited("-n 32", "-n", str(ranks), *words, "--", "sleep", "60")
    assert (done.returncode, done.stderr) == (
        1,
        f"paceline run: {ranks} ranks need {many} open files here, and a few more: raise `ulimit -n`, which is 32\n",
    )


def test_more_ranks_than_any_machine_has_files_are_refused_at_once() -> None:
    done = run("-n", "1000000000", "--bind", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("paceline run: 1000000000 ranks need as many open files here"), done.stderr


def test_a_signal_while_ranks_are_started_is_obeyed() -> None:
    ranks = 1000
    end_launcher = "echo here; test $PACELINE_RANK = 0 && kill -TERM $PPID; sleep 60"
    done = run("-n", str(ranks), "--", "sh", "-c", end_launcher)
    assert done.returncode == 128 + signal.SIGTERM
    assert 1 <= done.stdout.count("here") < ranks


def test_the_soft_limit_of_open_files_is_raised() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    done = limited("-S -n 32", "-n", "40", "--", "sh", "-c", "ulimit -n")
    assert (done.returncode, done.stdout) == (0, f"{most}\n" * 40), done.stderr
    program = (
        "import resource; from paceline.launch import launch\n"
        "before = 32, resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, before)\n"
        "print(launch(['true'], 1), resource.getrlimit(resource.RLIMIT_NOFILE) == before)"
    )
    assert printed_by(program) == "0 True\n"


def test_a_grace_period_may_be_longer_than_a_wait() -> None:
    done = run("-n", "2", "--grace", "1e9", "--", "sh", "-c", "sleep 0.$PACELINE_RANK; exit 3")
    assert done.returncode == 3, done.stderr


def test_a_program_that_does_not_exist() -> None:
    done = run("-n", "2", "--", "/no/such/program")
    assert (done.returncode, done.stderr) == (127, "paceline run: /no/such/program: No such file or directory\n")


@pytest.mark.parametrize("words", [("-n", "2"), ("-n", "0", "--", "true"), ("--", "true"), ("-n", "2", "--")])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(*words).returncode == 2


@pytest.mark.parametrize("option", ["--timeout", "--grace"])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_seconds_that_no_wait_can_last(option: str, seconds: str) -> None:
    done = run("-n", "1", option, seconds, "--", "true")
    assert done.returncode == 2
    assert f"{option}: '{seconds}' is not a number of seconds from 0 to 1e9" in done.stderr


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1", "no interface of this machine has it"),
        ("fe80::77:77%lo", "no interface of this machine has it"),
        ("foo.invalid", "no such host"),
    ],
)
def test_an_address_of_another_machine(address: str, why: str) -> None:
    done = run("-n", "1", "--address", address, "--", "true")
    assert done.returncode == 2
    assert done.stderr.endswith(f"paceline run: error: --address {address}: {why}\n")


def test_an_ipv6_address_has_brackets() -> None:
    for address in ("::1", "[::1]"):
        done = run("-n", "1", "--address", address, "--", "printenv", "PACELINE_ADDRESS")
        assert done.returncode == 0 and done.stdout.startswith("[::1]:"), done


def test_a_slurm_batch_script_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACELINE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert launched_size() is None
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node1")
    assert launched_size() == 4
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert launched_size() == 2


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PACELINE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert launched_size() is None


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6")
def test_ranks_meet_on_the_interface_that_is_set() -> None:
    program = "import paceline; print(paceline.init().size)"
    environment = {**os.environ, "PACELINE_INTERFACE": "::1", "PACELINE_JOIN_TIMEOUT": "10"}
    done = run("-n", "2", "--", sys.executable, "-c", program, env=environment)
    assert (done.returncode, done.stdout.replace("\n", "")) == (0, "22"), done.stderr  # lines of two ranks may mix


def test_standard_output_may_be_closed() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command("env", "nccl")],
        stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr


def test_rank_0_keeps_standard_input() -> None:
    done = run("-n", "2", "--", "sh", "-c", "read -r line; echo $PACELINE_RANK $line", input="hello\n")
    assert sorted(done.stdout.splitlines()) == ["0 hello", "1"]
