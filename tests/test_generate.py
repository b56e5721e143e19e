"""Making sets: whatever fails, the set is right, complete and made once."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from standins import FAULTS, SEED, plan

from renco import chunks, labeller, workers
from renco.data import Trajectories
from renco.experts import MissingExpert
from renco.generate import Unlabelled, generate
from renco.problems import OP
from renco.progress import Progress, ProgressBar, describe, duration
from renco.storage import DamagedData
from renco.workers import WorkerFailed

N = 6


def make(out: Path, expert: str = "none", count: int = 10, **options: Any) -> Any:
    """Makes a small set with one worker unless told otherwise."""
    values = {"n": N, "seed": SEED, "seconds": 0.01, "workers": 1, "chunk": 4}
    return generate("tsp", out, expert=expert, count=count, **values | options)


def files(folder: Path) -> dict[str, bytes]:
    """Returns the content of all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled set made by one worker in one go."""
    folder = tmp_path_factory.mktemp("sets") / "undisturbed"
    make(folder, "standins:slow", count=16)
    return folder


def test_faults_are_logged_and_tried_again(tmp_path: Path) -> None:
    """Crash, hang, wrong answers and chatter cost a try each, not the set."""
    (made,) = make(tmp_path, "standins:faulty", count=len(FAULTS) + 1, patience=4.0)
    made.verify()
    assert len(made) == len(FAULTS) + 1
    lines = (tmp_path / "failures.jsonl").read_text().splitlines()
    log = [json.loads(line) for line in lines]
    reasons = {FAULTS[entry["index"]]: entry["reason"] for entry in log}
    assert {entry["attempt"] for entry in log} == {0}
    assert reasons == {
        "exit": "the process ended: exit code 3",
        "hang": "no answer within 4 s, killed",
        "twice": reasons["twice"],
        "short": "Infeasible: 1 nodes are not visited: " + reasons["short"][-1],
        "raise": "RuntimeError: no luck",
        "nothing": "Infeasible: a tour is one route, got 0",
    }
    assert reasons["twice"].endswith("is visited twice")


def test_an_instance_that_cannot_be_solved_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are kept, and another run tries that one only."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("STANDIN_CALLS", str(calls))
    out = tmp_path / "set"
    with pytest.raises(Unlabelled, match="1 of 6 instances have no label: 2 ") as error:
        make(out, "standins:stubborn", count=6)
    assert error.value.indices == [2]
    assert len(calls.read_text().split()) == 5 + 3
    with pytest.raises(DamagedData, match="unfinished"):
        Trajectories(out)
    some = Trajectories(out, partial=True)
    assert some.records(slice(None))["index"].tolist() == [0, 1, 3, 4, 5]
    some.verify()

    calls.unlink()
    monkeypatch.setenv("STANDIN_CURED", "1")
    (made,) = make(out, "standins:stubborn", count=6)
    assert len(calls.read_text().split()) == 1
    assert made.records(slice(None))["index"].tolist() == list(range(6))
    made.verify()


def test_an_interrupted_set_is_finished_by_other_workers(
    tmp_path: Path, undisturbed: Path
) -> None:
    """What was done is kept to the last label, and who does the rest is the same."""

    def interrupt(progress: Progress) -> None:
        if progress.done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, "standins:slow", count=16, progress=interrupt)
    assert len(Trajectories(tmp_path, partial=True)) == 6
    make(tmp_path, "standins:slow", count=16, workers=2)
    assert files(tmp_path) == files(undisturbed)


def test_jobs_of_an_array_share_a_folder(tmp_path: Path) -> None:
    """The set is complete when the last of them is, in any order."""
    alone = tmp_path / "alone"
    make(alone)
    shared = tmp_path / "shared"
    assert make(shared, shard=(2, 3)) == []
    assert make(shared, shard=(1, 3)) == []
    (made,) = make(shared, shard=(3, 3))
    assert len(made) == 10
    assert files(shared) == files(alone)


def test_a_killed_run_is_continued(tmp_path: Path, undisturbed: Path) -> None:
    """After `kill -9` at any time the next run makes what is missing, once."""
    program = (
        "from renco.generate import generate\n"
        f"generate('tsp', {str(tmp_path)!r}, expert='standins:slow', count=16,"
        f" n={N}, seed={SEED}, seconds=0.2, workers=1, chunk=4)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}
    )
    parts = tmp_path / "parts"
    try:
        deadline = time.monotonic() + 120
        while not list(parts.glob("*.npy")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npy")}
    assert 1 <= len(kept) < 4
    early = Trajectories(tmp_path, partial=True)
    assert len(early) == 4 * len(kept)

    (made,) = make(tmp_path, "standins:slow", count=16, seconds=0.2)
    assert np.array_equal(
        made.records(slice(None)), Trajectories(undisturbed).records(slice(None))
    )


def test_finished_chunks_are_not_made_again(tmp_path: Path) -> None:
    """Resuming writes only what is missing, and a truncated file counts as that."""
    make(tmp_path, shard=(1, 2))
    parts = sorted((tmp_path / "parts").glob("*.npy"))
    assert [path.stem for path in parts] == ["000000000", "000000008"]
    before = parts[1].stat().st_mtime_ns
    parts[0].write_bytes(parts[0].read_bytes()[:-20])
    make(tmp_path, shard=(1, 2))
    assert parts[1].stat().st_mtime_ns == before
    (made,) = make(tmp_path)
    made.verify()


def test_a_finished_set_is_left_alone(tmp_path: Path) -> None:
    """Running the same again returns the set without touching it."""
    (first,) = make(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (again,) = make(tmp_path)
    assert first.sha256 == again.sha256
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_two_runs_of_the_same_set_make_it_once(tmp_path: Path) -> None:
    """Runs that do not know of each other end with one complete set."""
    results: list[Any] = []
    options = {"count": 60, "chunk": 1}
    runs = [
        threading.Thread(target=lambda: results.extend(make(tmp_path, **options)))
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(results) == 2
    made = Trajectories(tmp_path)
    assert made.records(slice(None))["index"].tolist() == list(range(60))
    made.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 9}, "seed 5, not 9"),
        ({"count": 11}, "count 10, not 11"),
        ({"n": 7}, "n 6, not 7"),
    ],
)
def test_a_folder_with_another_set_is_refused(
    tmp_path: Path, change: dict[str, int], message: str
) -> None:
    """What differs is named, and nothing is overwritten."""
    make(tmp_path)
    with pytest.raises(ValueError, match=f"holds a set with {message}"):
        make(tmp_path, **change)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A set is not mixed with what is no set."""
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(ValueError, match=r"not empty: it holds thesis\.txt"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": (0, 2)}, "got 0/2"),
        ({"shard": (3, 2)}, "got 3/2"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"seconds": -1.0}, "seconds must be positive, got -1"),
        ({"capacity": 50}, "capacity and demand belong to cvrp, not to tsp"),
        ({"limit": 3.0}, "a limit belongs to op, not to tsp"),
        ({"expert": "concorde9"}, "unknown expert 'concorde9'"),
        ({"expert": "hygese"}, "cannot solve tsp"),
        ({"expert": "standins:genius"}, "no expert 'genius'"),
        ({"count": 0}, "count 0"),
        ({"n": 0}, "n must be at least 1, got 0"),
    ],
)
def test_impossible_requests_are_refused_before_any_work(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """The message names the value; no folder is made."""
    out = tmp_path / "set"
    with pytest.raises(ValueError, match=message):
        make(out, **options)
    assert not out.exists()


def test_a_missing_expert_is_reported_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "fast_tsp", None)
    with pytest.raises(MissingExpert, match=r"pip install renco\[experts\]"):
        make(tmp_path / "set", "fast-tsp")


def test_workers_that_cannot_start_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expert that only the calling process can import is an error, not a loop."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "tests" not in p])
    with pytest.raises(WorkerFailed, match="No module named 'standins'"):
        make(tmp_path, "standins:nearest")


def test_a_folder_that_cannot_be_written_raises() -> None:
    """Where nothing can be stored nothing is computed."""
    with pytest.raises(OSError):
        make(Path(os.devnull) / "set")


def test_a_full_disk_raises_and_keeps_what_is_there(tmp_path: Path) -> None:
    """The error of the system is passed on; the next run continues."""
    make(tmp_path, count=200, chunk=100, shard=(1, 2))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            make(tmp_path, count=200, chunk=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(Trajectories(tmp_path, partial=True)) == 100
    (made,) = make(tmp_path, count=200, chunk=100)
    made.verify()


def test_settings_of_the_problems_reach_the_instances(tmp_path: Path) -> None:
    """Capacities, demands and limits are those asked for, and in the manifest."""
    common: dict[str, Any] = {"n": 5, "count": 20, "expert": "none"}
    (made,) = generate(
        "cvrp", tmp_path / "cvrp", capacity=(20, 30), demand=(2, 4), **common
    )
    instances: Any = made.instances(slice(None))
    assert 20 <= instances.capacity.min() < instances.capacity.max() <= 30
    assert set(np.unique(instances.demands[:, 1:])) == {2, 3, 4}
    assert made.manifest.settings == {"capacity": [20, 30], "demand": [2, 4]}
    (made,) = generate("op", tmp_path / "op", limit=1.5, **common)
    instances = made.instances(slice(None))
    assert (instances.limit == 1.5).all()
    (made,) = generate("cvrp", tmp_path / "paper", **common)
    assert made.manifest.settings == {"capacity": 31, "demand": [1, 9]}


def test_a_range_of_a_seed_can_be_made_alone(tmp_path: Path) -> None:
    """Instances 6.. of a seed are the same in every set of that seed."""
    (whole,) = make(tmp_path / "whole")
    (rest,) = make(tmp_path / "rest", first=6, count=4)
    assert np.array_equal(
        whole.instances(slice(6, 10)).coords, rest.instances(slice(None)).coords
    )


def test_own_files_are_labelled_by_size_and_metric(tmp_path: Path) -> None:
    """Each size and metric becomes a set in the files' own units."""
    rng = np.random.default_rng(0)
    names = []
    for number, n in enumerate((4, 5, 4)):
        points = (rng.random((n, 2)) * 1000).tolist()
        path = tmp_path / f"{number}.json"
        text = {"problem": "tsp", "coords": points, "metric": "EUC_2D"}
        path.write_text(json.dumps(text))
        names.append(path)
    sets = generate(None, tmp_path / "all", from_files=names, expert="none")
    assert [s.folder and s.folder.name for s in sets] == ["tsp4-EUC_2D", "tsp5-EUC_2D"]
    assert list(sets[0].manifest.files) == [str(names[0]), str(names[2])]
    (made,) = generate(
        None,
        tmp_path / "labelled",
        from_files=names[::2],
        expert="standins:nearest",
        seconds=0.01,
        workers=1,
    )
    made.verify()
    assert (made.costs == np.rint(made.costs)).all()
    coords = json.loads(names[2].read_text())["coords"]
    assert made.instances([1]).coords[0].tolist() == coords
    with pytest.raises(ValueError, match="a tsp instance, not op"):
        generate(OP.name, tmp_path / "other", from_files=names)


def test_the_labeller_answers_line_by_line() -> None:
    """Each request gets one line: a label that was checked, or the reason."""
    manifest = plan("cvrp", expert="standins:nearest", seconds=1.0)
    job = json.loads(manifest.to_json()) | {"patience": 60.0}
    requests = [job, {"index": 3, "attempt": 0}, {"index": -1, "attempt": 0}]
    answers = io.StringIO()
    labeller._serve(io.StringIO("\n".join(map(json.dumps, requests))), answers)
    ready, label, error = map(json.loads, answers.getvalue().splitlines())
    assert ready == {}
    assert len(label["decisions"]) == manifest.n and label["cost"] > 0
    assert error["error"].startswith("ValueError: seed and first must not be negative")


def test_a_worker_that_dies_before_it_has_read_is_closed() -> None:
    """Its pipes too, though what was written to one of them cannot go out."""
    job = json.loads(plan("tsp", expert="fast-tsp", seconds=0.01).to_json())
    worker = workers.Worker(job)
    assert not worker.label(0).failed
    process = worker._process
    assert process is not None and process.stdin and process.stdout
    process.kill()
    process.wait()
    process.stdin.write("never read")
    worker.close()
    assert process.stdin.closed and process.stdout.closed


@pytest.mark.parametrize(
    ("code", "meaning"),
    [(3, "exit code 3"), (-11, "SIGSEGV"), (-9, "SIGKILL"), (-99, "signal 99")],
)
def test_the_end_of_a_process_is_explained(code: int, meaning: str) -> None:
    """Segmentation faults and kills for lack of memory are called by their names."""
    assert workers._meaning(code) == meaning


def test_expert_seeds_differ_by_instance_and_try() -> None:
    """No two solves share a seed by construction, and all fit 31 bits."""
    seeds = {
        labeller.expert_seed(seed, index, attempt)
        for seed in range(3)
        for index in range(50)
        for attempt in range(3)
    }
    assert len(seeds) == 450
    assert min(seeds) >= 0 and max(seeds) < 2**31


def test_progress_counts_all_instances(tmp_path: Path) -> None:
    """It ends with everything done, chunks of earlier runs included."""
    seen: list[Progress] = []
    make(tmp_path, shard=(1, 2))
    make(tmp_path, progress=seen.append)
    assert [p.done for p in seen] == [4, 8, 10]
    assert {p.total for p in seen} == {10}


def test_progress_tells_rate_and_time_left() -> None:
    """The rate is that of this run alone."""
    progress = Progress(done=60, total=100, made=20, failed=0, seconds=10.0)
    assert progress.rate == 2.0
    assert progress.remaining == 20.0
    assert describe(progress) == "60/100, 2/s, 20 s left"
    failed = Progress(done=0, total=100, made=0, failed=3, seconds=0.0)
    assert describe(failed) == "0/100, 3 failed, 0/s"
    assert [duration(s) for s in (45.0, 700.0, 11_100.0)] == [
        "45 s",
        "12 min",
        "3 h 05 min",
    ]


def test_progress_is_sparse_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A log gets the last state and no control characters; results stay clean."""
    with ProgressBar("labels") as bar:
        for done in range(1, 101):
            bar(Progress(done, 100, done, 0, float(done)))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "labels: 100/100, 1/s\n"


def test_an_incomplete_set_is_not_finished(tmp_path: Path) -> None:
    """Parts alone do not make a set."""
    make(tmp_path, shard=(1, 2))
    assert chunks.finish(tmp_path) is None
    assert (tmp_path / "parts").is_dir()
