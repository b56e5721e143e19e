"""Labels from a Ray cluster of which a part dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from standins import SEED

from renco import cluster
from renco.data import Trajectories
from renco.generate import generate

# Ray gives its workers a niceness of 15: on a busy machine they would starve.
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
PROGRAM = """
import sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
from renco.generate import generate

out = Path(sys.argv[1])
machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
doomed = machines.add_node(num_cpus=1)


def kill():
    while not list(out.glob("parts/*.npy")):
        time.sleep(0.05)
    machines.remove_node(doomed, allow_graceful=False)
    print("killed at", len(list(out.glob("parts/*.npy"))), flush=True)


thread = threading.Thread(target=kill)
thread.start()
generate("tsp", out, n=6, count=24, seed=5, expert="standins:slow", seconds=0.5,
         chunk=2, ray=machines.address)
thread.join()
machines.shutdown()
"""


@pytest.mark.slow
def test_a_machine_that_dies_costs_nothing(tmp_path: Path) -> None:
    """Of two machines one is killed in the middle: nothing lost, nothing twice."""
    pytest.importorskip("ray", reason="needs the extra ray")
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    out = tmp_path / "ray"
    # Ray's own warnings are no business of this suite, hence a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out)],
        env=os.environ | RAY | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    killed = int(done.stdout.split("killed at")[1].split()[0])
    assert killed < 12
    made = Trajectories(out)
    assert made.records(slice(None))["index"].tolist() == list(range(24))
    made.verify()
    (alone,) = generate(
        "tsp",
        tmp_path / "alone",
        n=6,
        count=24,
        seed=SEED,
        expert="standins:slow",
        seconds=0.5,
        workers=1,
        chunk=2,
    )
    assert made.manifest.shards == alone.manifest.shards


def test_without_ray_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install renco\[ray\]"):
        generate("tsp", tmp_path, n=6, count=2, expert="standins:nearest", ray="auto")


def test_a_task_keeps_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of one set share a process; another set gets its own."""

    class Recorder:
        made: list[object] = []  # noqa: RUF012

        def __init__(self, job: object, patience: object) -> None:
            self.job = job
            self.made.append(job)

        def label(self, index: int) -> cluster.Answer:
            return cluster.Answer(index=index, decisions=[1], cost=1.0)

        def close(self) -> None:
            """Has nothing to close."""

    monkeypatch.setattr(cluster, "Worker", Recorder)
    monkeypatch.setattr(cluster, "_worker", None)
    first, second = {"problem": "tsp"}, {"problem": "op"}
    answers = cluster.label_task(first, [3, 4], None)
    assert [answer["index"] for answer in answers] == [3, 4]
    cluster.label_task(first, [5], None)
    assert len(Recorder.made) == 1
    cluster.label_task(second, [5], None)
    assert len(Recorder.made) == 2
