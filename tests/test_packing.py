"""Packed sets: the exact set comes back, or an error."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from standins import labelled, plan

from renco import packing
from renco.data import Trajectories, write_set
from renco.packing import nodes_of, open_packed, pack, ranks_of, unpack
from renco.problems import PROBLEMS
from renco.storage import DamagedData


def in_memory(problem: str, **values: Any) -> Trajectories:
    """Returns a small labelled set."""
    manifest = plan(problem, **values)
    return Trajectories.in_memory(manifest, labelled(manifest))


def shuffled(problem: str, n: int, count: int) -> Trajectories:
    """Returns a set with arbitrary tours, where every rank occurs."""
    rng = np.random.default_rng(n)
    settings = {"cvrp": {"capacity": 9 * n, "demand": [1, 9]}, "op": {"limit": 1e6}}
    manifest = plan(problem, n=n, count=count, settings=settings.get(problem, {}))
    instances = manifest.draw(0, count)
    rows = manifest.rows(np.arange(count), instances)
    for row in range(count):
        order = 1 + rng.permutation(rows["decisions"].shape[1])
        if problem == "op":
            order[rng.integers(0, n + 1) :] = 0
        if problem == "cvrp":
            order = 2 * order + (np.arange(n) > 0) * rng.integers(0, 2, n)
        rows["decisions"][row] = order
    decisions = torch.from_numpy(rows["decisions"].astype(np.int64))
    rows["cost"] = instances.cost(instances.routes(decisions))
    return Trajectories.in_memory(manifest, rows)


@pytest.mark.parametrize("n", [2, 9, 100, 300])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_any_solution_comes_back_exactly(problem: str, n: int, tmp_path: Path) -> None:
    """Decisions and float64 costs are equal to the last bit, good tours or not."""
    data = shuffled(problem, n, 6)
    pack(data, tmp_path / "set.bin")
    again = open_packed(tmp_path / "set.bin")
    assert np.array_equal(again.records(slice(None)), data.records(slice(None)))
    again.verify()


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_a_folder_comes_back_byte_by_byte(problem: str, tmp_path: Path) -> None:
    """Shards and manifest are those that were packed."""
    manifest = plan(problem, first=3)
    (tmp_path / "before").mkdir()
    write_set(tmp_path / "before", manifest, [labelled(manifest)])
    pack(Trajectories(tmp_path / "before"), tmp_path / "set.bin")
    unpack(tmp_path / "set.bin", tmp_path / "after").verify()
    for path in (tmp_path / "before").iterdir():
        assert path.read_bytes() == (tmp_path / "after" / path.name).read_bytes()


def test_blocks_are_independent_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets larger than a block come back as well."""
    monkeypatch.setattr(packing, "BLOCK", 4)
    monkeypatch.setattr(packing, "ROWS", 3)
    for problem in PROBLEMS:
        data = in_memory(problem, count=10)
        pack(data, tmp_path / "set.bin")
        again = open_packed(tmp_path / "set.bin")
        assert np.array_equal(again.records(slice(None)), data.records(slice(None)))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_ranks_are_invertible_on_a_grid(data: st.DataObject) -> None:
    """Ties and coinciding points are broken by the number of the node."""
    nodes = data.draw(st.integers(1, 12))
    value = st.integers(0, 2)
    points = data.draw(
        st.lists(st.tuples(value, value), min_size=nodes, max_size=nodes)
    )
    tour = np.array([data.draw(st.permutations(range(1, nodes)))], dtype=np.int64)
    flags = st.lists(st.booleans(), min_size=nodes - 1, max_size=nodes - 1)
    via = np.array([data.draw(flags)], dtype=bool)
    coords = np.array([points], dtype=np.float64)
    length = np.array([nodes - 1])
    ranks = ranks_of(coords, tour, via, length)
    assert (ranks < np.arange(nodes - 1, 0, -1)).all()
    assert np.array_equal(nodes_of(coords, ranks, via, length), tour)


def test_the_nearest_neighbour_is_rank_zero() -> None:
    """A tour that always goes to the nearest node costs nothing to describe."""
    data = in_memory("tsp", n=30)
    problem, decisions = data.batch(slice(None))
    no_via = np.zeros(decisions.shape, dtype=bool)
    length = np.full(len(data), 29)
    assert not ranks_of(problem.coords, decisions, no_via, length).any()


def test_a_tour_takes_less_space_than_its_permutation(tmp_path: Path) -> None:
    """Tours with a few detours take less than a byte in five steps."""
    manifest = plan("tsp", n=50, count=60)
    rows = labelled(manifest)
    rng = np.random.default_rng(0)
    for tour in rows["decisions"]:
        # Some detours, as tours that are not greedy have them.
        a, b = np.sort(rng.integers(0, 49, 2))
        tour[a : b + 1] = tour[a : b + 1][::-1].copy()
    data = Trajectories.in_memory(manifest, rows)
    pack(data, tmp_path / "set.bin")
    _, _, tours = (tmp_path / "set.bin").read_bytes().partition(b"\n")
    assert len(tours) < 60 * 49 / 5


def test_an_unfinished_set_is_packed_up_to_its_first_gap(tmp_path: Path) -> None:
    """What is there without a gap is a set of its own."""
    manifest = plan("tsp")
    rows = labelled(manifest)
    pack(Trajectories.in_memory(manifest, rows[[0, 1, 2, 4, 5]]), tmp_path / "set.bin")
    again = open_packed(tmp_path / "set.bin")
    assert again.manifest.count == 3
    assert np.array_equal(again.records(slice(None)), rows[:3])


def test_sets_that_cannot_be_drawn_again_are_refused(tmp_path: Path) -> None:
    """Only seed and tours are kept, so there must be both."""
    manifest = plan("tsp", expert=None)
    rows = manifest.rows(np.arange(10), manifest.draw(0, 10))
    with pytest.raises(ValueError, match="drawn from a seed"):
        pack(Trajectories.in_memory(manifest, rows), tmp_path / "set.bin")


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """No alteration of the tours goes unnoticed."""
    file = tmp_path / "set.bin"
    pack(in_memory("cvrp"), file)
    content = file.read_bytes()
    start = content.index(b"\n") + 1
    for place in range(start, len(content), 7):
        altered = bytearray(content)
        altered[place] ^= 0x10
        file.write_bytes(altered)
        with pytest.raises(DamagedData, match=r"set\.bin"):
            open_packed(file)


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_file_is_noticed(length: int, tmp_path: Path) -> None:
    """Half a file is no set."""
    file = tmp_path / "set.bin"
    pack(in_memory("tsp"), file)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(DamagedData, match=r"set\.bin"):
        open_packed(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 6}, "the instances are not those that were packed"),
        ({"settings": {"capacity": 21, "demand": [1, 9]}}, "the instances are not"),
        ({"count": 9}, "bytes of ranks"),
        ({"colour": "red"}, "not a packed set"),
    ],
)
def test_an_altered_header_is_noticed(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Other instances than those that were packed are refused by their hash."""
    file = tmp_path / "set.bin"
    pack(in_memory("cvrp"), file)
    line, _, content = file.read_bytes().partition(b"\n")
    header = json.loads(line)
    header["manifest"] |= change
    file.write_bytes(json.dumps(header).encode() + b"\n" + content)
    with pytest.raises(DamagedData, match=message):
        open_packed(file)


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    """No more is decompressed than the header's set can need."""
    file = tmp_path / "set.bin"
    pack(in_memory("tsp"), file)
    line = file.read_bytes().partition(b"\n")[0]
    file.write_bytes(line + b"\n" + lzma.compress(bytes(10_000_000)))
    with pytest.raises(DamagedData, match="111 bytes of ranks, expected 110"):
        open_packed(file)


def test_unpacking_does_not_overwrite(tmp_path: Path) -> None:
    """A folder that is there stays as it is."""
    pack(in_memory("tsp"), tmp_path / "set.bin")
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "set.bin", tmp_path / "there")
