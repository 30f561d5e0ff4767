"""`paceline tune` makes a profile; communicators use it, all ranks alike, and say why they do not use a bad one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paceline
import pytest
from paceline import tuning
from paceline.cli import main
from paceline.command import host_tune, tune
from paceline.command.bench import algorithm_table
from paceline.command.explain import _way
from paceline.command.host_tune import HostTuning, disturbed
from paceline.command.pass_times import PassTimes
from paceline.command.progress import Progress
from paceline.command.tune import _counts, _show
from paceline.insight import Plan

QUICK = ("--seconds", "1", "--largest", "64K")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", *words],
        env={**os.environ, "PACELINE_TUNING": "off", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "profile.json"
    shown = path.with_name("shown.json")
    done = run("tune", "-n", "2", "--transport", "shm", *QUICK, "--output", str(path), "--json", str(shown))
    assert done.returncode == 0, done.stderr
    assert "# 2 ranks over shm: start" in done.stdout
    return path


def changed(profile: Path, tmp_path: Path, **fields: object) -> str:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**json.loads(profile.read_text()), **fields}))
    return str(path)


def test_times_out_of_place_are_found() -> None:
    assert disturbed({8: 1.0, 1024: 1.1, 2048: 1.2, 1 << 20: 100.0}) == []
    assert disturbed({1024: 5.0, 2048: 30.0, 4096: 8.0}) == [2048]  # longer messages took less
    assert disturbed({1024: 5.0, 2048: 6.0, 4096: 30.0, 8192: 31.0}) == [4096]  # no growth of times is as steep
    assert disturbed({0: 1.0}) == disturbed({}) == []


def test_the_geometric_mean_of_the_passes_counts() -> None:
    run, rows = ("broadcast", "direct"), []
    for before_us, us, was_disturbed in ((9.0, 4.0, True), (8.0, 12.5, False), (3.0, 5.0, True), (4.0, 9.0, False)):
        one = PassTimes(rows)
        one.add(run, 1024, before_us)
        one.add(run, 1024, us, was_disturbed)  # measured again in this pass
        rows = json.loads(json.dumps(one.rows()))  # as a file takes it from pass to pass
    assert rows == [[*run, 1024, [4.0, 10.0, 3.0, 6.0]]]
    assert one.typical == {run: {1024: pytest.approx(720 ** (1 / 4))}}
    assert PassTimes(rows).typical == one.typical
    one = PassTimes(rows)
    one.add(run, 1024, 1000.0)  # a pass that was held up
    assert one.typical == {run: {1024: pytest.approx(720 ** (1 / 4))}}


def test_a_way_to_run_counts_by_what_it_took_of_the_algorithm_in_the_same_passes() -> None:
    own, way = ("broadcast", "direct"), ("broadcast", "direct chunk=4096")
    passes, rows = ((8.0, None), (16.0, 12.8), (16.0, 16.0), (32.0, 25.6)), []
    for us, way_us in passes:
        one = PassTimes(rows)
        one.add(own, 1 << 20, us)
        if way_us is not None:
            one.add(way, 1 << 20, way_us)
        rows = json.loads(json.dumps(one.rows()))
    assert one.typical[own] == {1 << 20: pytest.approx(16.0)}
    assert one.typical[way] == {1 << 20: pytest.approx(0.8 * 16.0)}
    for us, beside_us, way_us in ((16.0, 4.0, 4.0), (4.0, 16.0, 16.0)):  # of two of its own the shorter
        one = PassTimes(json.loads(json.dumps(one.rows())))
        one.add(own, 1 << 20, us)
        one.add(own, 1 << 20, beside_us)
        one.add(way, 1 << 20, way_us)
    assert one.typical[own] == {1 << 20: pytest.approx((16.0**4 * 8 * 8) ** (1 / 6))}
    assert one.typical[way] == {1 << 20: pytest.approx(one.typical[own][1 << 20])}  # shares .8, 1, .8, 1, 4
    assert PassTimes(one.rows()).typical == one.typical


def test_passes_far_apart_are_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    model = dict.fromkeys(("start_us", "call_us", "step_us", "bandwidth_gbs", "reduce_gbs", "copy_gbs", "duplex"), 1.0)
    found = {"transport": "shm", "ranks": 4, "model": model, "model_error": 0.1, "table": [], "passes": 2, "kept": []}
    run = ["broadcast", "direct"]
    for times, said, doubted in (
        ([[5.0], [6.0]], "; 1 pass)", False),
        ([[5.0, 5.1], [60.0, 6.0], [7.0, 7.2]], "; 2 passes, 3% apart)", False),
        ([[5.0, 9.0], [6.0, 10.0], [7.0, 7.2]], "; 2 passes, 40% apart)", True),
    ):
        _show({**found, "pass_times": [[*run, 8 << i, each] for i, each in enumerate(times)]})
        out, err = capsys.readouterr()
        assert said in out
        assert ("4 ranks over shm: the passes are 40% apart" in err) == doubted


def test_constants_of_which_the_times_say_little_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    model = dict.fromkeys(("start_us", "call_us", "step_us", "bandwidth_gbs", "reduce_gbs", "copy_gbs", "duplex"), 1.0)
    found = {"transport": "shm", "ranks": 4, "model": model, "model_error": 0.1, "table": [], "passes": 1}
    _show({**found, "kept": ["step_us", "sharing"], "pass_times": []})
    assert "call 1.00 us, step 1.000 us (kept), 1.00 GB/s between ranks, " in capsys.readouterr().out


def test_the_profile_has_a_model_times_and_a_table(profile: Path) -> None:
    (setting,) = json.loads(profile.read_text())["settings"]
    assert (setting["transport"], setting["ranks"]) == ("shm", 2)
    assert "pass_times" not in setting and "kept" not in setting
    assert setting["model"]["bandwidth_gbs"] > 0.1
    collectives = {row["collective"] for row in setting["table"]}
    assert collectives >= {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "scatter", "gather"}
    ring = next(row for row in setting["measured"] if (row["collective"], row["algorithm"]) == ("all_reduce", "ring"))
    assert len(ring["points"]) >= 6


def test_json_has_what_was_found(profile: Path) -> None:
    shown = json.loads(profile.with_name("shown.json").read_text())
    assert {key: shown[key] for key in ("version", "device", "output", "gpus")} == {
        "version": paceline.__version__,
        "device": "cpu",
        "output": str(profile),
        "gpus": [],
    }
    (setting,) = shown["settings"]
    (saved,) = json.loads(profile.read_text())["settings"]
    assert setting.pop("passes_apart") is None or saved["passes"] > 1
    assert isinstance(setting.pop("kept"), list)
    assert (setting["ranks"], setting["table"]) == (2, saved["table"])


def test_ways_to_run_are_measured(tmp_path: Path) -> None:
    """Chunks and protocols of long messages; the table's rows are of what was measured, and the choice follows them."""
    path = tmp_path / "profile.json"
    words = ("--collectives", "all_gather", "--seconds", "20", "--largest", "256K", "--output", str(path))
    done = run("tune", "-n", "2", "--transport", "shm", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    (setting,) = document["settings"]
    ways = {(row.get("chunk"), row.get("protocol")) for row in setting["measured"]}
    assert {(None, None), (None, "single_copy")} <= ways
    assert (None, "staged") not in ways  # what they do by themselves
    assert any(chunk is not None for chunk, _ in ways)
    measured = {(row["algorithm"], row.get("chunk"), row.get("protocol")) for row in setting["measured"]}
    assert {(row["algorithm"], row.get("chunk"), row.get("protocol")) for row in setting["table"]} <= measured

    setting["table"] = [{"collective": "all_gather", "from": 0, "algorithm": "ring", "chunk": 8192}]
    path.write_text(json.dumps(document))
    result = tmp_path / "explain.json"
    words = ("explain", "all_gather", "-n", "2", "--size", "256K", "--json", str(result))
    assert run(*words, PACELINE_TUNING=str(path)).returncode == 0
    (row,) = json.loads(result.read_text())["rows"]
    assert (row["algorithm"], row["chunk_bytes"]) == ("ring", 8192)


def test_an_algorithm_is_forced_with_its_chunk(tmp_path: Path) -> None:
    result = tmp_path / "explain.json"
    words = ("explain", "all_gather", "-n", "2", "--size", "256K", "--json", str(result))
    assert run(*words, PACELINE_ALGORITHM="ring chunk=8192").returncode == 0
    (row,) = json.loads(result.read_text())["rows"]
    assert (row["algorithm"], row["chunk_bytes"]) == ("ring", 8192)
    done = run(*words, PACELINE_ALGORITHM="ring chunk=0")
    assert done.returncode != 0
    assert "'chunk=0' after the algorithm ring" in done.stderr


def test_explain_shows_the_measured_choice_and_what_comes_next(profile: Path, tmp_path: Path) -> None:
    result = tmp_path / "explain.json"
    words = ("explain", "all_reduce", "-n", "2", "--size", "1K,20K", "--json", str(result))
    done = run(*words, PACELINE_TUNING=str(profile))
    assert done.returncode == 0, done.stderr
    assert f"# the fastest measured, by the table in {profile}" in done.stdout
    for row in json.loads(result.read_text())["rows"]:
        assert row["measured_us"] > 0
        # The prediction is the model, corrected by these very measurements.
        assert 0.5 < row["predicted_us"] / row["measured_us"] < 2
        assert len(row["next"]) == 3
    assert "not calibrated here" in run(*words).stdout


def test_the_measured_time_is_of_the_way_that_runs() -> None:
    curves = [
        {"collective": "all_gather", "algorithm": "ring", "points": [[1024, 8.0], [4096, 16.0]]},
        {"collective": "all_gather", "algorithm": "ring", "chunk": 512, "points": [[4096, 12.0]]},
    ]
    document = {"settings": [{"transport": "shm", "ranks": 2, "model": {}, "measured": curves}]}
    where = (document, ("shm", 2, 1), "all_gather")
    assert tuning.measured_us(*where, "ring", 4096) == 16.0
    assert tuning.measured_us(*where, "ring", 2048) == pytest.approx(8 * 2**0.5)
    assert tuning.measured_us(*where, "ring chunk=512", 4096) == 12.0
    assert tuning.measured_us(*where, "ring chunk=512", 2048) is None
    assert tuning.measured_us(*where, "ring protocol=staged", 4096) is None


def test_what_runs_has_the_chunk_and_the_protocol_that_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_CHUNK", raising=False)
    plan = Plan("ring", "shm", 4096, 1, 0, 1.0, "staged")
    in_table = {"collective": "all_gather", "from": 0, "algorithm": "ring", "protocol": "single_copy"}
    assert _way(plan, None, None) == "ring"
    assert _way(plan, None, in_table) == "ring protocol=single_copy"
    assert _way(plan, "ring chunk=8192", in_table) == "ring chunk=8192"
    assert _way(plan, "pairwise chunk=8192", in_table) == "ring protocol=single_copy"  # it does not serve all-gather
    assert _way(plan, None, {**in_table, "algorithm": "bruck"}) == "ring"
    monkeypatch.setenv("PACELINE_CHUNK", "4096")
    assert _way(plan, None, None) == "ring chunk=4096"


BY_TABLE = "the fastest measured, by the table in {}"
BY_BOTH = f"{BY_TABLE}; at 1G, for which it has nothing, the cheapest by the cost model"
BY_MODEL = "the cheapest by the cost model, calibrated at 2 ranks in {}, whose table has nothing for this"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("all_reduce", "--size", "1K,1G"), BY_BOTH),
        (("all_reduce", "--size", "1G"), BY_MODEL),
        (("barrier",), BY_MODEL),
    ],
)
def test_explain_says_what_is_not_by_the_table(profile: Path, words: tuple[str, ...], reason: str) -> None:
    done = run("explain", *words, "-n", "2", PACELINE_TUNING=str(profile))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"# {reason.format(profile)}"


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("ring", True),
        ("ring ", True),
        ("ring chunk=64", True),
        ("ring chunk=0064 protocol=staged", True),
        ("ring protocol=single_copy chunk=1 chunk=2", True),
        ("ring  chunk=64", False),
        ("ring chunk=64  ", False),
        ("ring chunk=0", False),
        ("ring chunk=-1", False),
        ("ring chunk=+1", False),
        ("ring chunk=64K", False),
        ("ring chunk=\u0664", False),
        ("ring chunk=100000000000000000000", False),
        ("ring chunk", False),
        ("ring protocol=automatic", False),
        ("ring size=1", False),
    ],
)
def test_an_algorithm_is_read_as_the_library_reads_it(comm: paceline.Communicator, words: str, taken: bool) -> None:
    def takes(read: Callable[[str], Any]) -> bool:
        try:
            read(words)
        except paceline.InvalidArgument:
            return False
        return True

    assert (takes(comm.set_algorithm), takes(tuning.fields)) == (taken, taken)
    comm.set_algorithm(None)


def test_explain_does_not_say_that_links_were_measured_on_one_machine() -> None:
    done = run("explain", "all_reduce", "-n", "2", "--size", "1K", PACELINE_TRANSPORT="tcp")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("# the cheapest by the cost model, not calibrated here")


@pytest.mark.parametrize(("gpus", "said"), [(0, ""), (1, ""), (2, "# not its 2 GPUs: paceline tune --device cuda\n")])
def test_a_machine_with_gpus_is_told_how_to_tune_them(monkeypatch: pytest.MonkeyPatch, gpus: int, said: str) -> None:
    monkeypatch.setattr(tune, "device_count", lambda: gpus)
    assert tune._what_of_gpus() == said


def test_numbers_of_ranks_are_tuned_once() -> None:
    assert _counts("4,2,4") == [4, 2]


def test_the_time_is_for_what_a_pass_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call takes is a share of the time for each row of a pass."""
    monkeypatch.setattr(host_tune, "HostTrial", lambda *_: None)
    chosen = SimpleNamespace(largest=64 << 10, collectives=["broadcast"], seconds=1.0)
    algorithms = sum("broadcast" in row["collectives"] and not row["topology"] for row in algorithm_table())
    one = HostTuning(SimpleNamespace(size=2, rank=0), chosen, 1)
    variants = 6  # at 64 KB: the algorithm by itself once more, four chunks and a protocol
    assert one._effort.seconds == pytest.approx(0.35 / (algorithms * (3 + 12) + variants))


def test_no_way_to_run_stays_forced() -> None:
    forced: list[str | None] = []
    plan = SimpleNamespace(chunk_bytes=65536, predicted_us=1.0, transport="tcp", protocol="staged")
    trial = SimpleNamespace(dtype=SimpleNamespace(size=4), plan=lambda _, algorithm: forced.append(algorithm) or plan)
    one = HostTuning.__new__(HostTuning)
    one._comm = SimpleNamespace(size=2, set_algorithm=forced.append)
    one._trials, one._algorithms, one._longest = {"reduce": trial}, {"reduce": ["direct"]}, 1 << 20
    one._passes = PassTimes([["reduce", "direct", 1 << 18, [5.0]]])
    one._count = lambda _, size: size // 4
    one._variants("reduce", 1 << 18, Progress(1, False))
    assert "direct chunk=131072" in forced
    assert forced[-1] is None


def test_all_ranks_choose_by_what_rank_0_has(profile: Path, tmp_path: Path) -> None:
    document = json.loads(profile.read_text())
    for row in document["settings"][0]["table"]:
        if row["collective"] == "all_reduce":
            row["algorithm"] = "double_tree"
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "if os.environ['PACELINE_RANK'] == '1': os.environ['PACELINE_TUNING'] = 'off'\n"
        "import numpy, paceline\n"
        "with paceline.init() as comm:\n"
        "    half = comm.split(0)\n"
        "    for each in (comm, half):\n"
        "        assert each.explain('all_reduce', 1000, 'float32', 'sum', 0).algorithm == 'double_tree'\n"
        "        x = numpy.ones(1000, dtype='float32')\n"
        "        each.all_reduce(x)\n"
        "        assert x[0] == 2\n"
    )
    file = changed(profile, tmp_path, settings=document["settings"])
    done = run("run", "-n", "2", "--", sys.executable, str(program), PACELINE_TUNING=file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"fingerprint": "0123456789abcdef"}, "it was made on another machine"),
        ({"version": "0.0.1"}, "it was made by version 0.0.1"),
        ({"format": 99}, "the profile is not of format 2"),
        ({"settings": [{"ranks": 2}]}, "the profile has a setting without transport"),
    ],
)
def test_a_profile_that_cannot_be_used_is_a_warning(
    profile: Path, tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    done = run("explain", "all_reduce", "-n", "2", PACELINE_TUNING=changed(profile, tmp_path, **fields))
    assert done.returncode == 0
    assert re.search(rf"rank 0 \S+ +warn .*changed.json is not used: {reason}", done.stderr)
    assert done.stderr.count("warn") == 1
    assert "not calibrated here" in done.stdout


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\x00\xff", '{"format": 2}'])
def test_files_that_are_no_profile(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    done = run("explain", "barrier", "-n", "2", "--size", "0", PACELINE_TUNING=str(path))
    assert done.returncode == 0
    assert "bad.json is not used" in done.stderr


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    done = run("explain", "barrier", "-n", "2", "--size", "0", PACELINE_TUNING=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path} is not used: it cannot be read" in done.stderr


def test_a_second_run_keeps_other_settings(profile: Path, tmp_path: Path) -> None:
    path = changed(profile, tmp_path)
    words = ("tune", "-n", "2", "--transport", "loopback", *QUICK, "--output", path)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    settings = json.loads(Path(path).read_text())["settings"]
    assert [(row["transport"], row["ranks"]) for row in settings] == [("shm", 2), ("loopback", 2)]


def test_the_default_file_is_in_the_cache(tmp_path: Path) -> None:
    cache = {"PACELINE_TUNING": "", "XDG_CACHE_HOME": str(tmp_path)}
    done = run("tune", "-n", "2", "--transport", "shm", *QUICK, **cache)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "paceline").iterdir()
    assert re.fullmatch(r"tuning-[0-9a-f]{16}\.json", file.name)
    done = run("explain", "reduce", "-n", "2", "--size", "1K", **cache)
    assert f"by the table in {file}" in done.stdout


def test_one_rank_is_nothing_to_tune() -> None:
    done = run("tune", "-n", "1")
    assert done.returncode == 2
    assert "there is nothing to tune" in done.stderr
    done = run("run", "-n", "1", "--", sys.executable, "-m", "paceline", "tune", *QUICK)
    assert done.returncode == 2
    assert "there is nothing to tune" in done.stderr


def test_no_bytes_are_nothing_to_tune(tmp_path: Path) -> None:
    done = run("tune", "-n", "2", "--seconds", "1", "--largest", "0", "--output", str(tmp_path / "profile.json"))
    assert done.returncode == 2
    assert "give --largest at least 1" in done.stderr


def test_no_name_is_no_file_to_write(tmp_path: Path) -> None:
    done = run("tune", "-n", "2", *QUICK, "--output", "", PACELINE_TUNING=str(tmp_path / "profile.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "'' names no file" in done.stderr


def test_the_exit_code_is_that_of_the_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paceline.command.tune.launch", lambda *_, **__: 130)
    with pytest.raises(SystemExit) as ended:
        main(["tune", "-n", "2", "--output", str(tmp_path / "profile.json")])
    assert ended.value.code == 130


def test_no_folder_for_profiles_is_not_what_switches_them_off() -> None:
    words = [sys.executable, "-m", "paceline", "tune", "-n", "2", "--seconds", "1", "--largest", "8"]
    homeless = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    for tuning_file, told in (("off", "PACELINE_TUNING=off: give"), ("", "neither XDG_CACHE_HOME nor HOME names a")):
        environment = {**homeless, "PACELINE_TUNING": tuning_file}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and told in done.stderr
