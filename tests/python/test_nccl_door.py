"""libnccl.so.2 under whole programs: `paceline env`, `paceline run --nccl`, `paceline doctor --nccl`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from paceline.command import doctor_nccl
from paceline.door import describe_nccl, nccl_environment, nccl_library

ROOT = Path(__file__).resolve().parents[2]
OURS = str(nccl_library())
NO_NCCL = {"PACELINE_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def paceline(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", *words],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_variables_for_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "variables.json"
    done = paceline("env", "nccl", "--json", str(out), environment={"LD_PRELOAD": ""})
    assert done.stdout == f"export LD_PRELOAD={OURS}\n"
    assert json.loads(out.read_text()) == {"LD_PRELOAD": OURS}


def test_what_is_preloaded_already_stays_behind_ours() -> None:
    assert nccl_environment({"LD_PRELOAD": "/lib/a.so /lib/b.so"}) == {"LD_PRELOAD": f"{OURS}:/lib/a.so:/lib/b.so"}
    assert nccl_environment({"LD_PRELOAD": f"/lib/a.so:{OURS}"}) == {"LD_PRELOAD": f"{OURS}:/lib/a.so"}


@pytest.mark.parametrize("name", ["my folder", "my:folder"])
def test_a_path_that_the_loader_would_split_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "nccl").symlink_to(nccl_library().parent)
    monkeypatch.setenv("PACELINE_LIBRARY", str(tmp_path / name / "libpaceline.so"))
    sentence = f"LD_PRELOAD cannot name {nccl_library()}, since the loader splits it at spaces and colons"
    with pytest.raises(OSError, match=re.escape(sentence)):
        nccl_environment({})
    assert paceline("env", "nccl").stderr.startswith(f"paceline env: {sentence}: install the paceline wheel in")
    assert paceline("run", "-n", "1", "--nccl", "--", "true").returncode == 1
    done = paceline("doctor", "--nccl")
    assert sentence in done.stdout
    assert "paceline env nccl" not in done.stdout


def test_a_door_that_there_is_not() -> None:
    assert paceline("env", "mpi-io").returncode == 2


PROGRAM = """
import ctypes
program = ctypes.CDLL(None)  # as a program that is linked with -lnccl finds it
version = ctypes.c_int()
assert program.ncclGetVersion(ctypes.byref(version)) == 0
program.ncclGetLastError.restype = ctypes.c_char_p
identity = ctypes.create_string_buffer(128)
code = program.ncclGetUniqueId(identity)
print(version.value, code, program.ncclGetLastError(None).decode())
"""


def test_a_program_under_run_gets_our_library_and_its_sentence() -> None:
    environment = {**NO_NCCL, **NO_GPU}  # with a GPU the unique id is Paceline's
    done = paceline("run", "-n", "1", "--nccl", "--", sys.executable, "-c", PROGRAM, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("23007 5 ncclGetUniqueId needs NCCL itself (")
    assert "PACELINE_NCCL_LIBRARY=/nowhere/libnccl.so.2: No such file or directory" in done.stdout


def test_without_the_flag_it_does_not() -> None:
    done = paceline("run", "-n", "1", "--", sys.executable, "-c", PROGRAM, environment={"LD_PRELOAD": ""})
    assert done.returncode != 0
    assert "ncclGetVersion" in done.stderr


def shared_library(target: Path, *compiler: str | Path) -> str:
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", target]
    subprocess.run(command, check=True, timeout=120)
    return str(target)


def test_nccl_runs_under_another_allocator_and_its_own_calls_come_back_to_it(tmp_path: Path) -> None:
    source = ROOT / "tests/python/preloaded_allocator.c"
    allocator = shared_library(tmp_path / "liballocator.so", os.environ.get("CC", "cc"), "-fno-builtin", source)
    compiler = [os.environ.get("CXX", "g++-12"), "-std=c++20", "-fvisibility=hidden", "-I", ROOT / "plugins"]
    fake = shared_library(tmp_path / "libnccl.so.2", *compiler, ROOT / "tests/nccl/fake_nccl.cc")
    program = f"""
import ctypes
program = ctypes.CDLL(None)
comm = ctypes.c_void_p()
assert program.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
assert program.ncclBcast(None, ctypes.c_size_t(5), 0, 0, comm, None) == 0
fake = ctypes.CDLL({fake!r})
fake.fakeNcclCalls.restype = ctypes.c_char_p
print(*[line.split("(")[0] for line in fake.fakeNcclCalls().decode().splitlines()])
"""
    preload = nccl_environment({"LD_PRELOAD": allocator})
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **preload, "PACELINE_NCCL_LIBRARY": fake, "PACELINE_NCCL_FORWARD": "all"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ncclGetVersion ncclCommInitAll ncclGetUniqueId ncclBcast ncclBroadcast\n"


def real_library() -> str:
    found = describe_nccl()["real"]
    if not found:
        pytest.skip("needs nvidia-nccl-cu13")
    return str(found["path"])


def test_the_real_library_beside_python_stands_behind_ours() -> None:
    path = real_library()
    assert path.endswith("nvidia/nccl/lib/libnccl.so.2")
    done = paceline("run", "-n", "1", "--nccl", "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    version = describe_nccl()["real"]["version"]
    major, minor, patch = (int(number) for number in version.split("."))
    assert done.stdout.split()[0] == str(10000 * major + 100 * minor + patch)


def test_by_its_name_a_program_gets_ours_though_it_has_loaded_nccl_by_path() -> None:
    """As JAX and CuPy do: NCCL's file first, then "libnccl.so.2"."""
    path = real_library()
    program = (
        f"import ctypes; ctypes.CDLL({path!r}); named = ctypes.CDLL('libnccl.so.2')\n"
        "named.paceNcclDescribe.restype = ctypes.c_char_p\n"
        "print(named.paceNcclDescribe().decode())\n"
    )
    done = paceline("run", "-n", "1", "--nccl", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["real"]["path"] == path


def test_one_line_says_who_serves_what() -> None:
    real_library()
    program = PROGRAM + (
        "class Id(ctypes.Structure):\n    _fields_ = [('internal', ctypes.c_char * 128)]\n"
        "comm = ctypes.c_void_p()\n"
        "program.ncclCommInitRank(ctypes.byref(comm), 1, Id.from_buffer(identity), 0)\n"
        "program.ncclCommInitRank(ctypes.byref(comm), 1, Id.from_buffer(identity), 0)\n"
    )
    done = paceline(
        "run", "-n", "1", "--nccl", "--", sys.executable, "-c", program,
        environment={"NCCL_DEBUG": "version", "PACELINE_NCCL_FORWARD": "all"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "[paceline] NCCL INFO Paceline" in line]
    assert len(lines) == 1
    assert lines[0].endswith("NCCL serves all calls: PACELINE_NCCL_FORWARD says so")


def test_doctor_says_who_serves_each_call(tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    environment = {**NO_NCCL, "LD_PRELOAD": OURS}
    done = paceline("doctor", "--nccl", "--json", str(out), environment=environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert states == {"nccl door": "ok", "nccl calls": "ok", "nccl itself": "warn"}
    rows = {row["name"]: row for row in document["nccl"]["functions"]}
    assert rows["ncclGetVersion"]["served_by"] == "paceline"
    assert rows["ncclMemAlloc"]["served_by"] == "nobody"
    assert rows["ncclMemAlloc"]["why"].startswith("Paceline does not serve it, and PACELINE_NCCL_LIBRARY=/nowhere")
    assert "  ncclGetVersion ncclGetErrorString ncclGetLastError ncclResetDebugInit" in done.stdout.splitlines()


def test_doctor_names_a_setting_that_cannot_be_read() -> None:
    done = paceline("doctor", "--nccl", environment={"PACELINE_NCCL_FORWARD": "allreduce"})
    assert done.returncode == 1
    assert "PACELINE_NCCL_FORWARD=allreduce: 'allreduce' is not among all, all_reduce," in done.stdout


def test_doctor_without_the_preload_tells_the_remedy() -> None:
    found = doctor_nccl.door({"LD_PRELOAD": "/lib/a.so"})
    assert (found.state, found.remedy) == ("warn", 'eval "$(paceline env nccl)"')


def test_doctor_knows_our_library_by_every_path_that_leads_to_it(tmp_path: Path) -> None:
    link = tmp_path / "lib64"
    link.symlink_to(nccl_library().parent)
    assert doctor_nccl.door({"LD_PRELOAD": f"/lib/a.so {link}/libnccl.so.2"}).state == "ok"


def test_calls_are_grouped_by_who_serves_them_and_why() -> None:
    functions = [
        {"name": "ncclAllReduce", "served_by": "paceline", "why": "on GPUs"},
        {"name": "ncclMemAlloc", "served_by": "nccl", "why": "Paceline does not serve it"},
        {"name": "ncclSend", "served_by": "paceline", "why": "on GPUs"},
    ]
    assert doctor_nccl.calls({"functions": functions}) == (
        "paceline: on GPUs\n  ncclAllReduce ncclSend\nnccl: Paceline does not serve it\n  ncclMemAlloc"
    )


def test_torch_sees_the_version_behind_ours() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None:
        pytest.skip("this torch has no CUDA")
    program = "import torch; print(*torch.cuda.nccl.version(), sep='.')"
    done = paceline("run", "-n", "1", "--nccl", "--", sys.executable, "-c", program)
    assert done.stdout == f"{describe_nccl()['real']['version']}\n"
