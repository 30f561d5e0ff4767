"""`paceline doctor`."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline import interpreter, tuning
from paceline.command import doctor


def test_quota_is_the_smallest_of_the_cgroups_above(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text("0::/outer/inner\n")
    assert doctor.cgroup_cpus(tmp_path, membership) == math.inf
    (inner / "cpu.max").write_text("max 100000\n")
    assert doctor.cgroup_cpus(tmp_path, membership) == math.inf
    (inner / "cpu.max").write_text("400000 100000\n")
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    assert doctor.cgroup_cpus(tmp_path, membership) == 1.5


def test_quota_of_cgroup_1(tmp_path: Path) -> None:
    folder = tmp_path / "cpu,cpuacct" / "job"
    folder.mkdir(parents=True)
    membership = tmp_path / "membership"
    membership.write_text("5:memory:/job\n4:cpu,cpuacct:/job\n")
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert doctor.cgroup_cpus(tmp_path, membership) == math.inf
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    assert doctor.cgroup_cpus(tmp_path, membership) == 2


def test_shared_memory_of_killed_ranks_is_found(tmp_path: Path) -> None:
    namespace = f"{Path('/proc/self/ns/pid').stat().st_ino:x}"
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"paceline-{ended.pid}-{namespace}-0123456789abcdef"
    for path in (
        left,
        tmp_path / f"paceline-{os.getpid()}-{namespace}-0123456789abcdef",  # of a rank that lives
        tmp_path / f"paceline-{ended.pid}-1-0123456789abcdef",  # of another container
        tmp_path / "paceline-notes",
    ):
        path.touch()
    # Gone since it was listed.
    (tmp_path / f"paceline-{ended.pid}-{namespace}-fedcba9876543210").symlink_to(tmp_path / "nothing")
    assert doctor.left_behind(tmp_path) == [left]


def test_without_proc_nothing_is_known_of_killed_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: Path) -> None:
        raise FileNotFoundError

    (tmp_path / "paceline-1-1-0123456789abcdef").touch()
    monkeypatch.setattr(Path, "stat", absent)
    assert doctor.left_behind(tmp_path) == []


def test_single_copy_tells_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_read_between_siblings", lambda: errno.EPERM)
    found = doctor.single_copy()
    assert found.state == "warn"
    assert "Operation not permitted" in found.finding
    assert "paceline.empty" in found.remedy


def test_single_copy_probe_ends() -> None:
    assert doctor.single_copy().state in ("ok", "warn")


def test_it_says_which_profile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tuning.tuning_file()

    def looks_for(path: str) -> doctor.Check:
        monkeypatch.setattr(tuning, "tuning_file", lambda: here | {"path": path})
        return doctor.tuned()

    monkeypatch.setenv("PACELINE_TUNING", "off")
    assert (found := looks_for("")).state == "ok" and "switched off" in found.finding
    monkeypatch.delenv("PACELINE_TUNING")
    assert (found := looks_for("")).state == "warn" and "neither XDG_CACHE_HOME nor HOME" in found.finding
    path = tmp_path / "tuning-here.json"
    assert (found := looks_for(str(path))).state == "ok" and f"there is no {path}" in found.finding
    (tmp_path / "tuning-there.json").write_text("{}")
    assert (found := looks_for(str(path))).state == "warn" and "but tuning-there.json" in found.finding
    path.write_text("[]")
    assert (found := looks_for(str(path))).state == "warn" and "no file with a JSON object" in found.finding
    path.write_text(json.dumps(tuning.profile([]) | {"fingerprint": "elsewhere"}))
    assert (found := looks_for(str(path))).state == "warn" and "another machine" in found.finding and found.remedy
    path.write_text(json.dumps(tuning.profile([])))
    assert looks_for(str(path)) == doctor.Check("tuning", "ok", f"algorithms are chosen by {path}")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that nobody may enter."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    return folder


def test_files_that_this_user_may_not_look_at(closed: Path, monkeypatch: pytest.MonkeyPatch, nobody: None) -> None:
    """As under `su`, which keeps HOME."""
    path = closed / "file.json"
    here = tuning.tuning_file()
    monkeypatch.setattr(tuning, "tuning_file", lambda: here | {"path": str(path)})
    monkeypatch.setenv("PACELINE_TOPOLOGY", str(path))
    assert (found := doctor.tuned()).state == "warn" and "it cannot be read" in found.finding
    assert (found := doctor.topology_file()).state == "fail" and "Permission denied" in found.finding


def test_it_says_which_topology_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_TOPOLOGY", raising=False)
    assert doctor.topology_file().finding.startswith("none is given")
    path = tmp_path / "two.json"
    monkeypatch.setenv("PACELINE_TOPOLOGY", str(path))
    assert (found := doctor.topology_file()).state == "fail" and "there is no such file" in found.finding
    os.mkfifo(path)
    assert (found := doctor.topology_file()).state == "fail" and "it is not a file" in found.finding
    path.unlink()
    path.write_text("{")
    assert (found := doctor.topology_file()).state == "fail" and found.remedy
    path.write_text(json.dumps({"node": {"preset": "dgx1-v100"}}))
    assert (found := doctor.topology_file()).state == "ok" and "has 8 GPUs" in found.finding
    path.write_bytes(b"\xff\xfe")
    assert doctor.topology_file().state == "fail"


def test_a_library_that_does_not_load() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from paceline.command import doctor; print(doctor.library())"],
        env={"PACELINE_LIBRARY": "/no/such/libpaceline.so", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "state='fail'" in done.stdout and "/no/such/libpaceline.so does not exist" in done.stdout


def test_what_a_rank_says_may_be_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "python", lambda _: ["printf", r"\377"])
    assert (found := doctor.job_on_this_machine()).state == "fail" and found.finding


def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "doctor", "--json", str(out)], capture_output=True, text=True, check=False
    )
    document = json.loads(out.read_text())
    assert set(document) == {"version", "host", "checks"}
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert done.returncode == (1 if "fail" in states.values() else 0)
    assert states["library"] == states["job"] == states["loopback"] == "ok"
    assert len(done.stdout.splitlines()) >= len(states)
