"""The test sets that come with the package."""

from pathlib import Path

import numpy as np
import pytest
from standins import labelled, plan

from renco.data import Trajectories, write_set
from renco.packing import pack
from renco.testsets import load_testset, names, open_data

COUNTS = {100: 256, 200: 64, 500: 16, 1000: 8}


def test_there_are_test_sets() -> None:
    """At least the one that the documentation uses."""
    assert "tsp100-test" in names()


@pytest.mark.parametrize("name", names())
def test_a_test_set_is_what_its_name_says(name: str) -> None:
    """Problem, size and number are right, and the seed is one of no training set."""
    data = load_testset(name)
    manifest = data.manifest
    assert name == f"{manifest.problem}{manifest.n}-test"
    assert len(data) == COUNTS[manifest.n]
    assert (manifest.seed, manifest.first) == (10_000 + manifest.n, 0)
    assert manifest.expert and manifest.version and manifest.seconds and manifest.note
    assert manifest.mean_cost == pytest.approx(data.costs.mean(), rel=1e-12)


@pytest.mark.parametrize("name", names())
def test_its_solutions_solve_its_instances(name: str) -> None:
    """Some of the solutions pass the checker and cost what is stored."""
    data = load_testset(name)
    some = Trajectories.in_memory(data.manifest, data.records([0, 3, 7]))
    some.verify()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match=r"unknown test set 'tsp7'.*tsp100-test"):
        load_testset("tsp7")
    with pytest.raises(FileNotFoundError, match=r"no test set: .*tsp100-test"):
        open_data("tsp7")


def test_folders_files_and_names_are_opened_alike(tmp_path: Path) -> None:
    """What an option `--data` may be: a folder, a packed file or a name."""
    manifest = plan("tsp")
    folder = tmp_path / "set"
    folder.mkdir()
    write_set(folder, manifest, [labelled(manifest)])
    pack(Trajectories(folder), tmp_path / "set.bin")
    rows = [
        open_data(path).records(slice(None)) for path in (folder, tmp_path / "set.bin")
    ]
    assert np.array_equal(*rows)
    assert open_data("tsp100-test") is load_testset("tsp100-test")
