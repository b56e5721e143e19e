"""Algorithm 3: losses, the loop, and resuming it exactly."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from renco.checkpoints import load, read_config
from renco.cli import main
from renco.dagger import Corrections
from renco.data import Trajectories
from renco.files import write_atomic
from renco.generate import generate
from renco.model import EncoderConfig, Policy, PolicyConfig, link_scores
from renco.problems import CVRP, OP, PROBLEMS, TSP
from renco.sampling import Sampler, Slices, turned
from renco.snapshot import read_snapshot
from renco.testsets import open_sets
from renco.training import (
    SNAPSHOT,
    TrainConfig,
    TrainingError,
    _build,
    _split,
    _start,
    base_loss,
    cross_entropy,
    divergence,
    link_loss,
    preset,
    recurrent_losses,
    settings,
    train,
)

TINY = replace(
    preset("smoke", "recurrent"),
    base=EncoderConfig(1, 16, 2, 16),
    recurrent=EncoderConfig(1, 16, 2, 16),
    steps=6,
    held_out=4,
    gap_instances=4,
    slices=Slices(tokens=64, longest=8),
    k=3,
)


def trajectories(problem: str, folder: Path, count: int = 24, n: int = 12) -> Path:
    """Labels a small set with the installed expert."""
    pytest.importorskip({"tsp": "fast_tsp", "cvrp": "hygese", "op": "pyvrp"}[problem])
    generate(
        problem,
        folder,
        n=n,
        count=count,
        seed=3,
        expert="auto",
        seconds=0.02,
        workers=1,
    )
    return folder


@pytest.fixture(scope="session", params=sorted(PROBLEMS))
def data(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A small labelled set of each problem."""
    return trajectories(request.param, tmp_path_factory.mktemp("data") / request.param)


@pytest.fixture(scope="session")
def tours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small labelled set of TSP instances."""
    return trajectories("tsp", tmp_path_factory.mktemp("data") / "tours")


def tiny(data: Trajectories) -> Policy:
    """An untrained policy for a set, with blocks that do something."""
    torch.manual_seed(0)
    config = PolicyConfig.for_state(
        data.instances([0]).start(),
        problem=data.manifest.problem,
        base=TINY.base,
        recurrent=TINY.recurrent,
    )
    policy = Policy(config)
    for name, p in policy.named_parameters():
        if "alpha" in name:
            p.data.fill_(0.3)
    return policy


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    """Returns the weights that a run kept."""
    return load(folder).state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are equal to the last bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_every_expert_action_is_feasible(data: Path) -> None:
    """Slices of expert solutions never ask for a masked action."""
    trajectories = Trajectories(data)
    rows = np.arange(len(trajectories))
    sampler = Sampler([(trajectories, rows)], Slices(tokens=64), 0)
    for step in range(40):
        state, actions, _ = sampler.batch(step, step / 40, torch.device("cpu"))
        for t in range(actions.shape[1]):
            mask = state.feasible().expand(len(actions), -1)
            assert mask.gather(1, actions[:, t : t + 1]).all()
            state = state.step(actions[:, t])


def test_slices_follow_the_expert_to_its_cost(data: Path) -> None:
    """Replaying a whole slice ends at the expert's own cost."""
    trajectories = Trajectories(data)
    length = int(np.bincount(trajectories.lengths).argmax())
    rows = np.flatnonzero(trajectories.lengths == length)
    problem, decisions = trajectories.batch(rows)
    state, actions = problem.slices(
        decisions, trajectories.nodes, np.random.default_rng(0)
    )
    for t in range(actions.shape[1]):
        state = state.step(actions[:, t])
    assert np.allclose(state.cost.numpy(), trajectories.costs[rows], rtol=1e-5)


def test_turning_keeps_costs(data: Path) -> None:
    """Mirrored and turned instances have the same solutions and costs."""
    problem, decisions = Trajectories(data).batch(np.arange(8))
    routes = problem.routes(torch.from_numpy(decisions))
    for rotate in (False, True):
        view = turned(problem, np.random.default_rng(1), rotate)
        assert not np.allclose(view.coords, problem.coords)
        assert np.allclose(view.length(routes), problem.length(routes))


def test_a_share_of_the_batches_is_turned_by_any_angle(tours: Path) -> None:
    """Of the others, legs keep their slopes but for signs and x and y."""

    def slopes(xy: np.ndarray) -> np.ndarray:
        low, high = np.sort(np.abs(xy), axis=-1).reshape(-1, 2).T
        return low[high > 0] / high[high > 0]

    data, rows = Trajectories(tours), np.arange(20)
    coords = data.instances(rows).coords
    known = slopes(coords[:, :, None] - coords[:, None])
    shares = {}
    for rotate in (0.0, 0.5, 1.0):
        sampler = Sampler([(data, rows)], Slices(tokens=64, rotate=rotate), 0)
        batches = (sampler.batch(i, 0.0, torch.device("cpu")) for i in range(60))
        legs = [slopes(b.state.xy.diff(dim=1).numpy())[:, None] for b in batches]
        shares[rotate] = np.mean([np.abs(a - known).min(-1).max() > 1e-4 for a in legs])
    assert shares[0.0] == 0.0
    assert 0.3 < shares[0.5] < 0.7
    assert shares[1.0] == 1.0


def test_batches_depend_on_seed_and_step_only(tours: Path) -> None:
    """A batch can be drawn again, alone."""
    data = Trajectories(tours)
    first = Sampler([(data, np.arange(20))], Slices(tokens=64), 5)
    again = Sampler([(data, np.arange(20))], Slices(tokens=64), 5)
    first.batch(0, 0.0, torch.device("cpu"))
    a, b = (s.batch(7, 0.5, torch.device("cpu"))[0] for s in (first, again))
    assert torch.equal(a.node, b.node) and torch.equal(a.xy, b.xy)
    assert not torch.equal(a.xy, first.batch(8, 0.5, torch.device("cpu"))[0].xy)


def test_the_curriculum_grows_slices(tours: Path) -> None:
    """Early slices are short, late ones reach the whole instance."""
    sampler = Sampler([(Trajectories(tours), np.arange(20))], Slices(longest=6), 0)
    cpu = torch.device("cpu")
    early = {sampler.batch(i, 0.0, cpu)[0].node.shape[1] for i in range(30)}
    late = {sampler.batch(i, 1.0, cpu)[0].node.shape[1] for i in range(60)}
    assert max(early) == 6 and max(late) == 13 and min(early) == 5


@pytest.mark.parametrize("corrected", [0.0, 1.0])
def test_large_slices_are_favored(data: Path, corrected: float) -> None:
    """As often as a power of their decisions, from the data or from corrections."""
    trajectories = Trajectories(data)
    own = Corrections(trajectories, np.ones(len(trajectories), dtype=np.int64))
    means = []
    for favor in (0.0, 3.0):
        how = Slices(tokens=64, curriculum=0.0, favor=favor, corrected=corrected)
        sampler = Sampler([(trajectories, np.arange(24))], how, 0, [own])
        drawn = [sampler.batch(i, 1.0, torch.device("cpu"))[1] for i in range(200)]
        means.append(np.mean([actions.shape[1] for actions in drawn]))
    # Over sizes up to m the mean of the even is m / 2, that of the favored 4 m / 5.
    assert 1.2 * means[0] < means[1] < 1.7 * means[0]


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """A folder of sets: ten tours of 7 nodes, five of 9, and one each of 11 and 12."""
    for n, count in ((7, 10), (9, 5), (11, 1), (12, 1)):
        generate("tsp", tmp_path / "sizes" / f"tsp{n}", n=n, count=count, seconds=0.02)
    return tmp_path / "sizes"


def test_batches_come_from_all_sizes(sizes: Path) -> None:
    """A slice may be as large as its own set, and large sets are drawn more often."""
    parts = [(one, np.arange(len(one))) for one in open_sets(sizes)]
    sampler, cpu = (
        Sampler(parts, Slices(tokens=64, curriculum=0.0), 0),
        torch.device("cpu"),
    )
    batches = [sampler.batch(step, 1.0, cpu)[0] for step in range(300)]
    drawn = Counter(state.xy.shape[1] for state in batches)
    assert sorted(drawn) == [7, 9, 11, 12] and max(drawn, key=drawn.__getitem__) == 7
    for n in drawn:
        assert max(s.node.shape[1] for s in batches if s.xy.shape[1] == n) == n + 1


@pytest.mark.parametrize("corrected", [0.0, 1.0])
def test_sets_can_be_drawn_alike_however_small(sizes: Path, corrected: float) -> None:
    """One tour of 12 nodes counts as much as ten of 7."""
    sets = open_sets(sizes)
    own = [Corrections(one, np.ones(len(one), dtype=np.int64)) for one in sets]
    how = Slices(tokens=64, curriculum=0.0, by_size=0.0, corrected=corrected)
    sampler = Sampler([(one, np.arange(len(one))) for one in sets], how, 0, own)
    batches = [sampler.batch(i, 1.0, torch.device("cpu"))[0] for i in range(400)]
    drawn = Counter(state.xy.shape[1] for state in batches)
    assert min(drawn.values()) > 70 and len(drawn) == 4


def test_a_model_is_trained_on_a_folder_of_sets(sizes: Path, tmp_path: Path) -> None:
    """What is held out is spread over all of them."""
    config = replace(TINY, recurrent=None, steps=4)
    trained, checked = _split(open_sets(sizes), None, config)
    assert [len(rows) for _, rows in trained] == [1, 1, 8, 4]
    assert [len(problem) for problem, _ in checked.references] == [2, 1]
    words = ["train", "base", "--preset", "smoke", "--steps", "3", "--threads", "1"]
    out = ["--data", str(sizes), "--out", str(tmp_path / "run")]
    assert main([*words, *out]) == 0
    made = read_config(tmp_path / "run")["training"]["data"]
    assert [(one["n"], one["count"]) for one in made] == [
        (11, 1),
        (12, 1),
        (7, 10),
        (9, 5),
    ]


def test_sets_of_two_problems_are_refused(tours: Path, tmp_path: Path) -> None:
    """The message names both, and where they are."""
    other = trajectories("cvrp", tmp_path / "cvrp")
    with pytest.raises(ValueError, match=r"of one problem: .*tours is tsp, .* is cvrp"):
        train("base", TINY, data=[tours, other], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_recurrent_loss_leaves_the_base_alone(data: Path) -> None:
    """Stage two gives no gradient to E and D (Algorithm 3, second loop)."""
    trajectories = Trajectories(data)
    policy = tiny(trajectories)
    policy.base.requires_grad_(False)
    policy.decoder.requires_grad_(False)
    sampler = Sampler([(trajectories, np.arange(20))], Slices(tokens=64), 0)
    state, actions, _ = sampler.batch(0, 1.0, torch.device("cpu"))
    next(recurrent_losses(policy, state, actions, 3)).backward()
    assert all(p.grad is None for p in policy.base.parameters())
    assert all(p.grad is None for p in policy.decoder.parameters())
    assert any(p.grad.abs().sum() > 0 for p in policy.recurrent.parameters())


def test_the_recurrent_loss_is_the_mean_over_k_steps(data: Path) -> None:
    """The loss equals a loop written out by hand, for k below and above the rest."""
    trajectories = Trajectories(data)
    policy = tiny(trajectories)
    sampler = Sampler([(trajectories, np.arange(20))], Slices(tokens=64), 0)
    state, actions, _ = sampler.batch(1, 1.0, torch.device("cpu"))
    for k in (1, 2, 50):
        s, h, terms = state, policy.encode(state), []
        for i in range(1, min(k, actions.shape[1] - 1) + 1):
            s = s.step(actions[:, i - 1])
            h = policy.update(h, s)
            logp = policy.score(h, s)
            terms.append(
                -torch.stack(
                    [r[a] for r, a in zip(logp, actions[:, i], strict=True)]
                ).mean()
            )
        expected = sum(terms) / len(terms)
        loss = next(recurrent_losses(policy, state, actions, k))
        assert torch.allclose(loss, expected)


def test_windows_go_on_from_what_the_recurrent_encoder_made(tours: Path) -> None:
    """Each window is a loss on k more steps, whose gradient ends where it begins."""
    policy = make_policy("tsp")
    problem, decisions = Trajectories(tours).batch([0, 1])
    state, actions = problem.slices(decisions, 8, np.random.default_rng(0))
    joint = {"windows": 3, "through_base": True}
    found = list(recurrent_losses(policy, state, actions, 2, **joint))
    assert len(found) == 2  # five steps are left of the first decision: two windows
    h, s, terms = policy.encode(state), state, []
    for i in range(1, 5):
        s = s.step(actions[:, i - 1])
        h = policy.update(h, s)
        terms.append(cross_entropy(policy, h, s, actions[:, i]))
    torch.testing.assert_close(found[1], torch.stack(terms[2:]).mean())
    found[1].backward()
    assert all(p.grad is None for p in policy.base.parameters())
    found[0].backward()
    assert all(p.grad is not None for p in policy.base.parameters())


def test_training_learns(tours: Path, tmp_path: Path) -> None:
    """Some hundred steps on one batch-sized set lower the loss by much."""
    config = replace(TINY, steps=150, recurrent=None, learning_rate=5e-3)
    train("base", config, data=tours, out=tmp_path / "run", report=lambda _: None)
    data = Trajectories(tours)
    batch = Sampler([(data, np.arange(20))], Slices(batch=20, longest=12), 9).batch(
        3, 1.0, torch.device("cpu")
    )[:2]
    before = base_loss(tiny(data), *batch).item()
    after = base_loss(load(tmp_path / "run"), *batch).item()
    assert after < 0.7 * before


def test_both_stages_run_for_every_problem(data: Path, tmp_path: Path) -> None:
    """A base, then a recurrent encoder on it; the base stays bit for bit the same."""
    base, out = tmp_path / "base", tmp_path / "recurrent"
    quiet = {"data": data, "report": lambda _: None}
    train("base", replace(TINY, recurrent=None), out=base, **quiet)
    train("recurrent", TINY, out=out, base=base, **quiet)
    before, after = parameters(base), parameters(out)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(name.startswith("recurrent.") for name in after)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == TINY.steps and "val_gap_recurrent" in log[-1]


def test_joint_training_moves_all_parts(tours: Path, tmp_path: Path) -> None:
    """Joint training changes E, U and D in one stage."""
    config = replace(TINY, joint=True, windows=2)
    train("base", config, data=tours, out=tmp_path / "a", report=lambda _: None)
    more = replace(config, steps=12)
    train("base", more, data=tours, out=tmp_path / "b", report=lambda _: None)
    a, b = parameters(tmp_path / "a"), parameters(tmp_path / "b")
    for part in ("base.", "recurrent.", "decoder."):
        assert any(not torch.equal(a[n], b[n]) for n in a if n.startswith(part))


class Stop(Exception):
    """Ends a run in the middle."""


def test_layers_that_have_not_grown_are_the_identity(
    tours: Path, tmp_path: Path
) -> None:
    """Half of the layers wait, change nothing, and learn afterwards."""
    base = replace(TINY.base, layers=2)
    config = replace(TINY, base=base, recurrent=None, steps=10, average=0.0)
    waiting = replace(config, grow=0.99)
    half = train("base", waiting, data=tours, out=tmp_path / "a", report=lambda _: None)
    assert half.base.depth == 1
    last = half.base.blocks[1]
    assert last.alpha_ff == 0 and last.alpha_attention == 0
    state = TSP.random(2, 9).start()
    few = half.encode(state)
    half.base.depth = 2
    torch.testing.assert_close(half.encode(state), few, rtol=0, atol=0)
    grown = replace(config, grow=0.5)
    whole = train("base", grown, data=tours, out=tmp_path / "b", report=lambda _: None)
    assert whole.base.depth == 2
    assert whole.base.blocks[1].alpha_ff != 0
    # What a training begins with has grown already.
    again = train(
        *("base", waiting),
        data=tours,
        init=tmp_path / "b",
        out=tmp_path / "c",
        report=lambda _: None,
    )
    assert again.base.depth == 2


@pytest.mark.parametrize(
    ("optimizer", "grow"), [("adamw", 0.0), ("muon", 0.0), ("adamw", 0.4)]
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    tours: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str,
    grow: float,
) -> None:
    """Parameters, averages, optimizer and batches go on bit for bit."""
    config = replace(TINY, recurrent=None, steps=8, save_every=0.0)
    config = replace(config, optimizer=optimizer, grow=grow)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train("base", config, data=tours, out=whole, report=lambda _: None)
    draw = Sampler.batch

    def interrupted(self: Sampler, step: int, *rest: object) -> object:
        if step == 5:
            raise Stop
        return draw(self, step, *rest)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Sampler, "batch", interrupted)
        train("base", config, data=tours, out=parts, report=lambda _: None)
    train("base", config, data=tours, out=parts, resume=True, report=lambda _: None)
    assert same(parameters(whole), parameters(parts))


def test_progress_is_told_between_validations(
    tours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With throughput and an estimate of the end."""
    monkeypatch.setattr("renco.training.TELL_EVERY", 0.0)
    lines: list[str] = []
    config = replace(TINY, recurrent=None, steps=3)
    train("base", config, data=tours, out=tmp_path / "run", report=lines.append)
    assert len(lines) == 3
    for step, line in enumerate(lines, start=1):
        pace = r", \d+ samples/s, \d+ nodes/s, \d+ min left$"
        assert re.match(rf"step {step}, loss \d\.\d+", line) and re.search(pace, line)
    assert "gap" in lines[-1] and not any("gap" in line for line in lines[:-1])


def test_resume_refuses_other_settings(tours: Path, tmp_path: Path) -> None:
    """A snapshot of another run is named, not loaded."""
    config = replace(TINY, recurrent=None)
    train("base", config, data=tours, out=tmp_path, report=lambda _: None)
    other = replace(config, learning_rate=1e-4)
    with pytest.raises(ValueError, match=r"learning_rate = 0.003, asked for 0.0001"):
        train("base", other, data=tours, out=tmp_path, resume=True)


def test_a_run_is_not_overwritten(tours: Path, tmp_path: Path) -> None:
    """Starting anew in a folder with a run is an error."""
    config = replace(TINY, recurrent=None)
    train("base", config, data=tours, out=tmp_path, report=lambda _: None)
    with pytest.raises(ValueError, match="holds a training run"):
        train("base", config, data=tours, out=tmp_path)


def test_nothing_to_resume_is_an_error(tours: Path, tmp_path: Path) -> None:
    """Resuming an empty folder says so."""
    with pytest.raises(ValueError, match="nothing to resume"):
        train(
            "base", replace(TINY, recurrent=None), data=tours, out=tmp_path, resume=True
        )


@pytest.mark.parametrize("cut", [0, 1, 100, 2000, -1])
def test_damaged_snapshots_are_refused(tours: Path, tmp_path: Path, cut: int) -> None:
    """A truncated snapshot raises and is named."""
    config = replace(TINY, recurrent=None)
    train("base", config, data=tours, out=tmp_path, report=lambda _: None)
    file = tmp_path / SNAPSHOT
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match=SNAPSHOT):
        train("base", config, data=tours, out=tmp_path, resume=True)


def test_nan_stops_the_training(
    tours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that is not a number stops with its step, and the snapshot survives."""
    monkeypatch.setattr(
        "renco.training.base_loss",
        lambda policy, *rest: policy.decoder.weight.sum() * float("nan"),
    )
    with pytest.raises(TrainingError, match="loss is nan at step 0"):
        train("base", replace(TINY, recurrent=None), data=tours, out=tmp_path)


def test_a_full_disk_keeps_the_old_snapshot(
    tours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk is full the run raises and the previous snapshot still loads."""
    config = replace(TINY, recurrent=None, save_every=0.0)
    train("base", config, data=tours, out=tmp_path, report=lambda _: None)
    before = (tmp_path / SNAPSHOT).read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("renco.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / SNAPSHOT, b"new")
    assert (tmp_path / SNAPSHOT).read_bytes() == before
    assert not list(tmp_path.glob(f".{SNAPSHOT}*"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nonsense": 1}, "unknown setting nonsense"),
        ({"base": {"depth": 3}}, r"unknown setting base\.depth"),
        ({"base": {"d": 30, "heads": 4}}, "30 is not a multiple of 4"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"windows": 0}, "windows must be at least 1, got 0"),
        ({"steps": -1}, "steps -1"),
        ({"warmup": 2.0}, "warmup 2.0"),
        ({"precision": "float16"}, "precision must be .* got 'float16'"),
        ({"learning_rate": 0.0}, "learning_rate 0.0"),
        ({"slices": {"order": "best"}}, "'best'"),
        ({"slices": {"shortest": 2}}, "shortest"),
        ({"slices": {"curriculum": 3}}, "curriculum must be in 0..1, got 3"),
        ({"joint": True}, "joint training needs a recurrent encoder"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_settings_are_named(values: dict[str, object], message: str) -> None:
    """Every bad setting raises with its name and value."""
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_dict(values)


def test_configs_come_from_toml(tmp_path: Path) -> None:
    """A TOML file gives the same settings as the constructor."""
    file = tmp_path / "c.toml"
    file.write_text(
        'steps = 5\noptimizer = "muon"\n[base]\nlayers = 2\n[slices]\nbatch = 3\n'
    )
    config = TrainConfig.from_toml(file)
    expected = TrainConfig(
        steps=5, optimizer="muon", base=EncoderConfig(layers=2), slices=Slices(batch=3)
    )
    assert config == expected


def test_settings_of_the_shipped_models_can_be_read() -> None:
    """Every file of experiments/train holds settings, and a length."""
    found = [*(Path(__file__).parents[1] / "experiments" / "train").glob("*.toml")]
    assert found
    assert all(TrainConfig.from_toml(path).minutes > 0 for path in found)


def test_presets_have_the_papers_sizes() -> None:
    """The preset `paper` is exactly the paper's model."""
    paper = preset("paper", "recurrent")
    assert paper.base == EncoderConfig(9, 192, 12, 512)
    assert paper.recurrent == EncoderConfig(4, 128, 8, 256) and paper.k == 10
    assert paper.windows == 1
    assert not (paper.zoom or paper.relative or paper.geometry)
    with pytest.raises(ValueError, match="unknown preset 'x'"):
        preset("x")


SCRIPT = """
import sys
from dataclasses import replace
from renco.training import train
from tests.test_training import TINY
data, out, steps, resume = sys.argv[1:]
config = replace(TINY, recurrent=None, steps=int(steps), save_every=0.0)
train("base", config, data=data, out=out, resume=resume == "1")
"""


def launch(*args: object, torchrun: int = 0) -> "subprocess.Popen[bytes]":
    """Starts a training process in the background."""
    command = [sys.executable, "-c", SCRIPT, *map(str, args)]
    if torchrun:
        script = Path(str(args[1])).parent / "script.py"
        script.write_text(SCRIPT)
        command = [sys.executable, "-m", "torch.distributed.run"]
        command += ["--standalone", f"--nproc-per-node={torchrun}"]
        command += ["--max-restarts=1"]
        command += [str(script), *map(str, args)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_two_processes_train_like_one(tours: Path, tmp_path: Path) -> None:
    """Under torchrun with two processes the losses are those of one process."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert launch(tours, one, 6, 0).wait(120) == 0
    assert launch(tours, two, 6, 0, torchrun=2).wait(120) == 0
    logs = [json.loads((run / "log.jsonl").read_text()) for run in (one, two)]
    assert logs[0]["loss"] == pytest.approx(logs[1]["loss"], rel=1e-4)
    assert logs[0]["val_ce"] == pytest.approx(logs[1]["val_ce"], rel=1e-3)


@pytest.mark.slow
def test_a_killed_process_is_started_again(tours: Path, tmp_path: Path) -> None:
    """With torchrun the training goes on from the last snapshot, as if nothing was."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert launch(tours, one, 40, 0).wait(120) == 0
    process = launch(tours, two, 40, 0, torchrun=2)
    deadline = time.monotonic() + 60
    while not (two / SNAPSHOT).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children.split()[-1]), signal.SIGKILL)
    assert not (two / "log.jsonl").exists(), "it was killed too late to tell"
    assert process.wait(120) == 0
    logs = [json.loads((run / "log.jsonl").read_text()) for run in (one, two)]
    assert [log["step"] for log in logs] == [40, 40]
    assert logs[0]["val_ce"] == pytest.approx(logs[1]["val_ce"], rel=1e-3)
    assert logs[0]["samples"] == logs[1]["samples"]


@pytest.mark.slow
def test_snapshots_survive_kill_9(tours: Path, tmp_path: Path) -> None:
    """Killed at random moments again and again, the last snapshot always loads."""
    rng = np.random.default_rng(0)
    for attempt in range(10):
        resume = int((tmp_path / "run" / SNAPSHOT).exists())
        process = launch(tours, tmp_path / "run", 10**6, resume)
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / SNAPSHOT).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(5):
            time.sleep(rng.uniform(0.05, 0.4) + 1.5 * (attempt > 0 and _ == 0))
            process.send_signal(signal.SIGSTOP)
            # A stopped process is as dead to its files as a killed one.
            check_snapshot(tours, tmp_path / "run")
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        check_snapshot(tours, tmp_path / "run")


def check_snapshot(data: Path, folder: Path) -> None:
    """Loads the snapshot of a run into a fresh one."""
    config = replace(TINY, recurrent=None, steps=10**6, save_every=0.0)
    trajectories = Trajectories(data)
    run = _start(tiny_base(trajectories, config), config)
    read_snapshot(folder / SNAPSHOT, run, settings("base", config, [trajectories]))
    assert run.step > 0


def tiny_base(data: Trajectories, config: TrainConfig) -> Policy:
    """The policy that a base run of the config trains."""
    return _build("base", config, data, None)


def test_more_layers_begin_where_a_smaller_model_ended(
    tours: Path, tmp_path: Path
) -> None:
    """ReZero: a base with new layers decides as the one it began with."""
    config = replace(TINY, recurrent=None)
    small = train("base", config, data=tours, out=tmp_path / "a", report=lambda _: None)
    data = Trajectories(tours)
    deeper = replace(config, base=replace(config.base, layers=config.base.layers + 2))
    grown = _build("base", deeper, data, init=tmp_path / "a")
    state = data.instances([0, 1]).start()
    torch.testing.assert_close(grown.encode(state), small.encode(state))
    wider = replace(config, base=replace(config.base, d=32))
    with pytest.raises(ValueError, match=r"has shape .* here it is"):
        _build("base", wider, data, init=tmp_path / "a")


def test_recurrent_encoder_goes_on_from_another(tours: Path, tmp_path: Path) -> None:
    """Only U comes from `init`; E and D stay those of the base."""
    quiet = {"data": tours, "report": lambda _: None}
    for name, seed in (("a", 0), ("b", 1)):
        config = replace(TINY, recurrent=None, seed=seed)
        train("base", config, out=tmp_path / name, **quiet)
    train("recurrent", TINY, base=tmp_path / "a", out=tmp_path / "u", **quiet)
    policy = _build(
        "recurrent", TINY, Trajectories(tours), tmp_path / "b", tmp_path / "u"
    )
    mine = policy.state_dict()
    for name, expected in parameters(tmp_path / "u").items():
        if name.startswith("recurrent."):
            assert torch.equal(mine[name], expected), name
    for name, expected in parameters(tmp_path / "b").items():
        assert torch.equal(mine[name], expected), name


def test_tensorboard_reads_what_the_log_says(tours: Path, tmp_path: Path) -> None:
    """The same values at the same steps, read back by TensorBoard itself."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = replace(TINY, recurrent=None)
    train(
        *("base", config),
        data=tours,
        out=tmp_path / "run",
        report=lambda _: None,
        tensorboard=True,
    )
    record = json.loads((tmp_path / "run/log.jsonl").read_text().splitlines()[-1])
    curves = EventAccumulator(str(tmp_path / "run")).Reload()
    for name in ("loss", "val_ce", "val_gap"):
        last = curves.Scalars(name)[-1]
        assert last.step == record["step"]
        assert last.value == pytest.approx(record[name], rel=1e-6)


def test_missing_tensorboard_names_the_extra(
    tours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written or trained."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install renco\[tensorboard\]"):
        train("base", TINY, data=tours, out=tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def make_policy(problem: str, **options: bool) -> Policy:
    """The policy of conftest, which processes that import this file cannot see."""
    from conftest import make_policy

    return make_policy(problem, **options)


def test_link_loss_is_the_successor_of_every_node(tours: Path) -> None:
    """Computed again link by link; without a weight it is the paper's loss."""
    data = Trajectories(tours)
    policy = make_policy("tsp", links=True)
    problem, decisions = data.batch([0, 1, 2])
    state, actions = problem.slices(decisions, 7, np.random.default_rng(0))
    plain = base_loss(policy, state, actions)
    scores = link_scores(policy, policy.encode(state))
    steps = [scores[row, i, i + 1] for row in range(3) for i in range(6)]
    expected = plain - 0.5 * torch.stack(steps).mean()
    torch.testing.assert_close(base_loss(policy, state, actions, 0.5), expected)


def test_what_a_tour_leaves_out_follows_itself() -> None:
    """Orienteering: four visits, the way home, and the nodes left out."""
    problem = OP.random(2, 9, seed=1)
    policy = make_policy("op", links=True)
    state, actions = problem.after(np.array([[4, 2, 7, 1]] * 2), 1)
    h = policy.encode(state)
    scores = link_scores(policy, h)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 9), *((i, i) for i in range(4, 9))]
    expected = -torch.stack([scores[:, i, j] for i, j in pairs]).mean()
    torch.testing.assert_close(link_loss(policy, h, state, actions), expected)


def test_links_do_not_jump_over_the_depot() -> None:
    """A customer visited via the depot does not follow its predecessor."""
    problem = CVRP.random(1, 6, seed=1, capacity=9)
    policy = make_policy("cvrp", links=True)
    one_each = np.arange(1, 7)[None] * 2 + 1  # a route for every customer
    state, actions = problem.after(one_each, 2)
    assert (actions % 2 == 1).all()
    h = policy.encode(state)
    expected = -link_scores(policy, h)[:, 4, 5].mean()  # the last one, home
    torch.testing.assert_close(link_loss(policy, h, state, actions), expected)


def test_distilling_compares_with_the_base(tours: Path) -> None:
    """No divergence of E from itself; U's has a finite gradient."""
    policy = make_policy("tsp")
    problem, decisions = Trajectories(tours).batch([0, 1])
    state, actions = problem.slices(decisions, 8, np.random.default_rng(0))
    h = policy.encode(state)
    assert divergence(policy, h, state).item() == pytest.approx(0.0, abs=1e-6)
    after = state.step(actions[:, 0])
    assert divergence(policy, policy.update(h, after), after).item() > 1e-3
    plain = next(recurrent_losses(policy, state, actions, 3))
    loss = next(recurrent_losses(policy, state, actions, 3, distill=0.5))
    assert loss > plain
    loss.backward()
    assert policy.recurrent is not None
    grads = [p.grad for p in policy.recurrent.parameters()]
    assert all(g is not None and g.isfinite().all() for g in grads)


def test_auxiliary_losses_train_and_leave_no_trace_in_the_recurrent_model(
    tours: Path, tmp_path: Path
) -> None:
    """Both stages with both losses; the head for links is the base's alone."""
    config = replace(TINY, links=0.5, distill=0.5, steps=4)
    quiet = {"data": tours, "report": lambda _: None}
    train("base", replace(config, recurrent=None), out=tmp_path / "a", **quiet)
    assert load(tmp_path / "a").links is not None
    train("recurrent", config, base=tmp_path / "a", out=tmp_path / "b", **quiet)
    assert load(tmp_path / "b").links is None
    with pytest.raises(ValueError, match="links must be at least 0, got -1"):
        replace(config, links=-1.0)
