"""Sets of trajectories: exact storage, quick batches, damage that is noticed."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from standins import labelled, plan

from renco import data
from renco.data import Trajectories, write_set
from renco.files import write_atomic
from renco.manifest import MANIFEST, Manifest, read_manifest
from renco.problems import CVRP, OP, PROBLEMS
from renco.storage import DamagedData, array_bytes, file_hash


def make(folder: Path, manifest: Manifest) -> Trajectories:
    """Writes a set labelled by the stand-in and opens it."""
    folder.mkdir(exist_ok=True)
    write_set(folder, manifest, [labelled(manifest)])
    return Trajectories(folder)


@pytest.fixture(params=list(PROBLEMS))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Trajectories:
    """A small set of each problem."""
    return make(tmp_path / "set", plan(request.param))


def alter(folder: Path, **values: Any) -> None:
    """Changes values in a manifest."""
    there = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(there | values))


def test_stored_instances_are_those_that_were_drawn(stored: Trajectories) -> None:
    """Storage in float32 and small integers loses nothing."""
    drawn = stored.manifest.draw(0, len(stored))
    again = stored.instances(slice(None))
    assert type(again) is type(drawn)
    for name in drawn.arrays:
        assert getattr(again, name).dtype == np.float64
        assert np.array_equal(getattr(again, name), getattr(drawn, name))


def test_a_batch_comes_in_the_order_asked_for(stored: Trajectories) -> None:
    """Rows follow the indices, repetitions included, and belong together."""
    index = [7, 2, 7]
    problem, decisions = stored.batch(index)
    whole = stored.manifest.draw(0, len(stored))
    assert np.array_equal(problem.coords, whole.coords[index])
    assert decisions.dtype == np.int64
    routes = problem.routes(torch.from_numpy(decisions))
    assert problem.cost(routes) == pytest.approx(stored.costs[index], rel=1e-12)


def test_batches_read_across_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several shards behave as one set."""
    one = make(tmp_path / "one", plan("cvrp", count=11))
    monkeypatch.setattr(data, "SHARD_BYTES", 3 * one.manifest.layout.itemsize)
    many = make(tmp_path / "many", plan("cvrp", count=11))
    assert len(many.manifest.shards) == 4
    index = np.array([10, 0, 3, 2, 9, 3])
    assert np.array_equal(one.records(index), many.records(index))
    assert np.array_equal(one.costs, many.costs)
    assert one.sha256 == many.sha256
    many.verify()


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_outside_the_set_is_refused(stored: Trajectories, index: int) -> None:
    """The message names the index; negative ones do not wrap around."""
    with pytest.raises(IndexError, match=f"instance {index} of a set of 10"):
        stored.records([0, index])


def test_orienteering_tours_are_padded_and_their_lengths_known(tmp_path: Path) -> None:
    """Batches of tours of equal length need no padding."""
    stored = make(tmp_path / "set", plan("op", count=30))
    lengths = stored.lengths
    assert len(set(lengths.tolist())) > 1
    _, all_of_them = stored.batch(slice(None))
    assert all_of_them.shape == (30, lengths.max())
    assert np.array_equal((all_of_them != 0).sum(1), lengths)
    some = np.flatnonzero(lengths == lengths[0])
    _, equal = stored.batch(some)
    assert equal.shape[1] == lengths[0] and (equal != 0).all()


@pytest.mark.parametrize(
    ("problem", "most"), [("tsp", 920), ("cvrp", 1040), ("op", 1040)]
)
def test_a_million_instances_of_100_nodes_take_a_gigabyte(
    problem: str, most: int
) -> None:
    """A record is little more than its coordinates in float32."""
    assert plan(problem, n=100).layout.itemsize <= most


@pytest.mark.parametrize("n", [100, 127, 128, 256, 257, 1000])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_decisions_of_any_size_fit_their_type(problem: str, n: int) -> None:
    """The largest decision is stored as it is."""
    largest = {"tsp": n - 1, "cvrp": 2 * n + 1, "op": n}[problem]
    column = plan(problem, n=n).layout["decisions"].base
    assert np.array(largest).astype(column) == largest


def test_verify_accepts_what_was_written(stored: Trajectories) -> None:
    """A set as it was written has nothing to complain about."""
    stored.verify()


def test_a_flipped_bit_is_noticed(stored: Trajectories) -> None:
    """The hash of the file does not fit any more."""
    assert stored.folder is not None
    path = stored.folder / "shard-00000.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=r"shard-00000\.npy: SHA-256 is not"):
        Trajectories(stored.folder).verify()


@pytest.mark.parametrize("field", ["coords", "decisions", "cost"])
def test_wrong_records_with_the_right_hash_are_noticed(
    stored: Trajectories, field: str
) -> None:
    """Instances are drawn and solutions costed again, whatever the hash says."""
    assert stored.folder is not None
    rows = stored.records(slice(None))
    if field == "decisions":
        rows["decisions"][4, 0] = rows["decisions"][4, 1]
    elif field == "cost":
        rows["cost"][4] *= 1 + 1e-6
    else:
        rows["coords"][4, 1, 0] += 1e-6
    path = stored.folder / "shard-00000.npy"
    path.write_bytes(array_bytes(rows))
    alter(stored.folder, shards={path.name: file_hash(path)})
    with pytest.raises(DamagedData, match=r"instance 4|not those of the seed"):
        Trajectories(stored.folder).verify()


def test_a_truncated_shard_is_refused_at_once(stored: Trajectories) -> None:
    """It does not take a `verify` to find that rows are missing."""
    assert stored.folder is not None
    path = stored.folder / "shard-00000.npy"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DamagedData, match=r"shard-00000\.npy"):
        Trajectories(stored.folder)


def test_a_shard_of_another_set_is_refused(stored: Trajectories) -> None:
    """Records of another layout or number cannot slip in."""
    assert stored.folder is not None
    path = stored.folder / "shard-00000.npy"
    path.write_bytes(array_bytes(np.zeros(10)))
    with pytest.raises(DamagedData, match="records of this set"):
        Trajectories(stored.folder)
    path.write_bytes(array_bytes(np.zeros(9, stored.manifest.layout)))
    with pytest.raises(DamagedData, match="9 of 10"):
        Trajectories(stored.folder)


def test_a_shard_that_would_run_code_is_refused(stored: Trajectories) -> None:
    """Arrays of objects are pickles; they are never loaded."""
    assert stored.folder is not None
    np.save(stored.folder / "shard-00000.npy", np.array([{}], dtype=object))
    with pytest.raises(DamagedData, match="shard-00000"):
        Trajectories(stored.folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schema": 2}, "schema 2 is not supported"),
        ({"colour": "red"}, "unknown keys colour"),
        ({"problem": "vrptw"}, "unknown problem 'vrptw'"),
        ({"count": 0}, "count 0"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(
    stored: Trajectories, values: dict[str, Any], message: str
) -> None:
    """The message names file and value."""
    assert stored.folder is not None
    alter(stored.folder, **values)
    with pytest.raises(DamagedData, match=rf"manifest\.json: .*{message}"):
        Trajectories(stored.folder)


def test_a_folder_without_a_set_is_refused(tmp_path: Path) -> None:
    """The message says what is missing."""
    with pytest.raises(FileNotFoundError, match=r"manifest\.json is missing"):
        Trajectories(tmp_path)


def test_a_set_without_labels_has_instances_only(tmp_path: Path) -> None:
    """Asking for decisions names the set."""
    manifest = plan("tsp", expert=None)
    rows = manifest.rows(np.arange(10), manifest.draw(0, 10))
    write_set(tmp_path, manifest, [rows])
    stored = Trajectories(tmp_path)
    stored.verify()
    assert stored.manifest.mean_cost is None
    assert len(stored.instances([1, 2])) == 2
    with pytest.raises(ValueError, match="has no expert decisions"):
        stored.batch([0])


def test_the_manifest_states_the_mean_cost(stored: Trajectories) -> None:
    """It is the mean of what `Problem.cost` gave."""
    assert stored.manifest.mean_cost == pytest.approx(stored.costs.mean(), rel=1e-12)


def test_a_missing_or_repeated_instance_is_not_written(tmp_path: Path) -> None:
    """A set counts only with each of its instances once."""
    manifest = plan("tsp")
    rows = labelled(manifest)
    for wrong in (rows[:-1], rows[[0, 1, 1, *range(3, 10)]]):
        with pytest.raises(DamagedData):
            write_set(tmp_path, manifest, [wrong])
    assert not (tmp_path / MANIFEST).exists()


def test_own_instances_are_stored_exactly() -> None:
    """Coordinates and demands from files keep their 64 bits."""
    rng = np.random.default_rng(0)
    coords = rng.random((1, 4, 2)) * 1e6
    for problem in (
        CVRP(coords, [[0, 0.1, 2.5, 70000]], 1e5, metric="EUC_2D"),
        OP(coords, [[0, 0.1, 2.5, 70000]], 1e5, metric="CEIL_2D"),
    ):
        manifest = Manifest(
            problem=problem.name,
            n=3,
            count=1,
            seed=None,
            files=["a.vrp"],
            metric=problem.metric,
            expert=None,
        )
        rows = manifest.rows(np.arange(1), problem)
        again = Trajectories.in_memory(manifest, rows).instances([0])
        assert again.metric == problem.metric
        for name in problem.arrays:
            assert np.array_equal(getattr(again, name), getattr(problem, name))


def test_values_that_would_be_rounded_are_refused() -> None:
    """What a drawn set cannot hold is an error, not a loss."""
    manifest = plan("tsp", n=2, count=1)
    with pytest.raises(ValueError, match="coords cannot be stored as float32"):
        manifest.rows(np.arange(1), PROBLEMS["tsp"]([[0.1, 0.2], [0.3, 0.4]]))


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk raises, and neither destroys anything nor leaves rubbish."""
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_runs_with_equal_plans_may_be_joined(stored: Trajectories) -> None:
    """The plan of a finished set is that of the set before."""
    assert stored.folder is not None
    there = read_manifest(stored.folder)
    assert there.plan == replace(there, mean_cost=None, shards={})
    assert there.shards and there.mean_cost is not None
