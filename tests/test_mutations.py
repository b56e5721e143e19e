"""The tests are tested: each of these faults, put into the code, must be noticed.

A copy of the package gets one fault; the tests that should see it run on the copy.
When a line named here changes, the fault must be put into its successor.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import renco

ROOT = Path(renco.__file__).parent
TESTS = Path(__file__).parent


class Fault(NamedTuple):
    """One line of code, what becomes of it, and the test that must notice."""

    file: str
    line: str
    broken: str
    test: str


FAULTS = {
    "the TSP may go to its destination early": Fault(
        "problems/tsp.py",
        "mask[:, 0] = mask[:, -1] = False",
        "mask[:, 0] = False",
        "test_problems.py::test_tsp_by_hand",
    ),
    "a step mixes up the open nodes": Fault(
        "state.py",
        "rest + (rest >= column % (n - 1))",
        "rest + (rest > column % (n - 1))",
        "test_contract.py::test_a_step_keeps_the_order_of_the_other_nodes",
    ),
    "going home loses the end": Fault(
        "state.py",
        "(rest >= column % (n - 1))",
        "(rest >= column)",
        "test_problems.py::test_op_by_hand",
    ),
    "the route to the end is free": Fault(
        "state.py",
        "return self.travelled + span(here, end)",
        "return self.travelled",
        "test_problems.py::test_tsp_by_hand",
    ),
    "rows forget part of the state": Fault(
        "problems/cvrp.py",
        'row_fields: ClassVar[tuple[str, ...]] = (*State.row_fields, "room")',
        "row_fields: ClassVar[tuple[str, ...]] = State.row_fields",
        "test_contract.py::test_rows_repeat_and_reorder_everything",
    ),
    "vehicles are never loaded": Fault(
        "problems/cvrp.py",
        "room=room - self.demand[self.instance, node[:, 0]]",
        "room=room",
        "test_problems.py::test_cvrp_by_hand",
    ),
    "vehicles are never unloaded": Fault(
        "problems/cvrp.py",
        "room = torch.where(via, self.capacity[self.instance], self.room)",
        "room = self.room",
        "test_problems.py::test_cvrp_by_hand",
    ),
    "full vehicles go on": Fault(
        "problems/cvrp.py",
        "[fits | at_depot, ",
        "[torch.ones_like(fits), ",
        "test_contract.py::test_random_rollouts_are_feasible_and_costed_alike",
    ),
    "the depot is left in two ways": Fault(
        "problems/cvrp.py",
        "~at_depot.expand_as(fits)]",
        "torch.ones_like(fits)]",
        "test_problems.py::test_cvrp_by_hand",
    ),
    "the way via the depot is as short as the direct one": Fault(
        "problems/cvrp.py",
        "leg = torch.where(via, detour, span(here, there))",
        "leg = span(here, there)",
        "test_contract.py::test_random_rollouts_are_feasible_and_costed_alike",
    ),
    "a replay loads all vehicles into one": Fault(
        "problems/cvrp.py",
        "(load * (route == route[:, -1:])).sum(1)",
        "load.sum(1)",
        "test_contract.py::test_replay_equals_stepping",
    ),
    "the checker lets vehicles be overloaded": Fault(
        "problems/cvrp.py",
        "if load > capacity * (1 + TOLERANCE):",
        "if load > capacity * 2:",
        "test_problems.py::test_cvrp_checker",
    ),
    "orienteering forgets the way home": Fault(
        "problems/op.py",
        "return self._legs(self.node[:, :1]) + self._legs(self.node[:, -1:])",
        "return self._legs(self.node[:, :1])",
        "test_contract.py::test_random_rollouts_are_feasible_and_costed_alike",
    ),
    "orienteering spends no length": Fault(
        "problems/op.py",
        "left = self.remaining - leg",
        "left = self.remaining",
        "test_problems.py::test_op_by_hand",
    ),
    "orienteering may give up early": Fault(
        "problems/op.py",
        "mask[:, -1] = ~mask.any(dim=1)",
        "mask[:, -1] = True",
        "test_problems.py::test_op_by_hand",
    ),
    "an exact fit of the limit is closed": Fault(
        "problems/op.py",
        "self.limit * (1 + SLACK) / side",
        "self.limit * (1 - SLACK) / side",
        "test_problems.py::test_exact_fits_are_feasible",
    ),
    "the checker lets tours be too long": Fault(
        "problems/op.py",
        "if length > limit * (1 + TOLERANCE):",
        "if length > limit * 2:",
        "test_problems.py::test_op_checker",
    ),
    "the checker counts no visits": Fault(
        "problems/base.py",
        "if node in seen:",
        "if False:",
        "test_problems.py::test_tsp_checker",
    ),
    "each axis has its own scale": Fault(
        "problems/base.py",
        "return (points / side[:, None, None]).astype(np.float32), side",
        "axes = np.maximum(points.max(axis=1, keepdims=True), 1e-300)\n"
        "        return (points / axes).astype(np.float32), side",
        "test_contract.py::test_features_are_normalised",
    ),
    "half rounds to even": Fault(
        "metrics.py",
        "np.floor(_euclidean(a, b) + 0.5)",
        "np.rint(_euclidean(a, b))",
        "test_metrics.py::test_hand_computed_distances",
    ),
    "embeddings are not realigned": Fault(
        "model.py",
        "[row + origin]",
        "[row + origin.sort(dim=1).values]",
        "test_model.py::test_equation_2_and_the_recurrent_encoder_equal_a_naive_loop",
    ),
    "start and end look alike": Fault(
        "model.py",
        "torch.cat([self.start[None], middle, self.end[None]])",
        "torch.cat([self.end[None], middle, self.start[None]])",
        "test_model.py::test_equation_1",
    ),
    "equation 2 has no residual": Fault(
        "model.py",
        "h = F.relu(self.merge(torch.cat([previous, h0], dim=-1))) + h0",
        "h = F.relu(self.merge(torch.cat([previous, h0], dim=-1)))",
        "test_model.py::test_equation_2_and_the_recurrent_encoder_equal_a_naive_loop",
    ),
    "infeasible actions have a chance": Fault(
        "model.py",
        ".masked_fill(~state.feasible(), -torch.inf)",
        ".masked_fill(~state.feasible(), -1.0)",
        "test_model.py::test_the_decoder_is_a_masked_softmax",
    ),
    "beams lose their embeddings": Fault(
        "construct.py",
        "h[parent]",
        "h[parent.sort().values]",
        "test_construct.py::test_embeddings_follow_their_nodes",
    ),
    "beams lose their embeddings, with weights": Fault(
        "construct.py",
        "h[parent]",
        "h[parent.sort().values]",
        "test_construct.py::test_beam_search_equals_a_naive_one",
    ),
    "dead beams can win": Fault(
        "construct.py",
        ".masked_fill(score.isinf(), torch.inf)",
        "",
        "test_contract.py::test_wider_beams_than_actions_give_numbers",
    ),
    "the base encoder runs once": Fault(
        "construct.py",
        "if t % k == 0 else",
        "if t == 0 else",
        "test_construct.py::test_the_base_encoder_runs_every_k_steps",
    ),
}


def copy_project(folder: Path) -> None:
    """Copies the code, the tests and their settings."""
    for source in ROOT.rglob("*.py"):
        target = folder / "renco" / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    shutil.copytree(TESTS, folder / "tests", ignore=shutil.ignore_patterns("__*"))
    shutil.copyfile(ROOT.parent / "pyproject.toml", folder / "pyproject.toml")


def run_tests(folder: Path, tests: list[str]) -> tuple[int, str]:
    """Runs tests on the copy; returns the exit code and what was printed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHONPATH", "COV_"))
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in tests)],
        cwd=folder,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", list(FAULTS))
def test_faults_have_a_place(name: str) -> None:
    """The line that a fault would break, and the test to notice it, exist."""
    fault = FAULTS[name]
    assert fault.line in (ROOT / fault.file).read_text(encoding="utf-8"), (
        f"{fault.file} no longer contains {fault.line!r}: put the fault "
        f"{name!r} into the line that took its place"
    )
    file, _, test = fault.test.partition("::")
    assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FAULTS))
def test_faults_are_noticed(name: str, tmp_path: Path) -> None:
    """The test named with a fault fails once the fault is in the code."""
    fault = FAULTS[name]
    copy_project(tmp_path)
    file = tmp_path / "renco" / fault.file
    source = file.read_text(encoding="utf-8")
    assert fault.line in source
    file.write_text(source.replace(fault.line, fault.broken), encoding="utf-8")
    code, output = run_tests(tmp_path, [fault.test])
    assert code == 1, f"{name}: pytest ended with {code}\n{output}"


@pytest.mark.slow
def test_sound_code_passes(tmp_path: Path) -> None:
    """Without a fault the same tests pass on the copy."""
    copy_project(tmp_path)
    tests = sorted({fault.test for fault in FAULTS.values()})
    code, output = run_tests(tmp_path, tests)
    assert code == 0, output
