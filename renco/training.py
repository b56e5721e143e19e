"""Imitation of an expert in two stages: Algorithm 3 of the paper."""

import json
import math
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from renco.checkpoints import load, read_config, save_policy
from renco.construct import greedy
from renco.dagger import Corrections
from renco.data import Trajectories
from renco.model import (
    PLANS,
    EncoderConfig,
    Policy,
    PolicyConfig,
    chosen_precision,
    link_scores,
)
from renco.optim import Average, optimizers, schedule, set_rate
from renco.problems import Problem
from renco.regrets import Regrets
from renco.sampling import Batch, Part, Sampler, Slices, Weighed, slices
from renco.snapshot import read_snapshot, write_snapshot
from renco.state import State

Stage = Literal["base", "recurrent"]
LOG, SNAPSHOT = "log.jsonl", "snapshot.safetensors"
TELL_EVERY = 20.0
"""Seconds between lines of progress."""


Source = Path | str | Trajectories
"""A set of trajectories, or where it lies."""


class TrainingError(RuntimeError):
    """Training cannot go on; the message says why and what survives."""


@dataclass(frozen=True)
class TrainConfig:
    """The settings of one stage.

    Attributes:
        base: Size of E.
        recurrent: Size of U.
        zoom: See `PolicyConfig`, like the next six.
        relative: Relative features.
        neighbors: Features of the open nodes around each node.
        trees: Features of the cheapest spanning tree; the TSP alone has them.
        savings: Features of a plan by savings; the CVRP alone has them.
        insertions: Features of a plan by insertions; the OP alone has them.
        geometry: Distances in attention.
        reach: Hides what is out of reach.
        grow: Share of a training from scratch during which E has half of its layers;
            the others begin as the identity. Unlike the paper.
        joint: Stage "base" trains E, D and U together, through k unrolled steps.
        links: Weight of an auxiliary loss on the successor of every node of E.
        distill: Weight of an auxiliary loss that pulls U's decisions to those of E.
        regret: Weight of what is learnt from regrets, against the cross-entropy of an
            expert's decision: of the regret that is expected of a decision, in percent
            of the whole cost, or of the cross-entropy with `temper`.
        temper: Regret, in percent of the whole cost, that makes a decision e times as
            unlikely: regrets then teach probabilities. 0: as little as possible.
        k: Unrolled steps of the recurrent loss.
        windows: How many times k steps are unrolled in a row, each time from what U
            made of the last, and each time an update. One in the paper.
        steps: Length of the training; 0 means `minutes` decides.
        minutes: Length of the training in wall-clock time, pauses excluded.
        precision: Of matrix products in the blocks: `float32`, `bfloat16`, or `auto`
            for what the device has hardware for. All else is float32 in any case. On a
            CPU, blocks in bfloat16 are compiled (`renco.compiled`).
        optimizer: `adamw` or `muon`.
        learning_rate: Peak of AdamW's rate.
        weight_decay: Of matrices.
        warmup: Share of the training during which the rate rises.
        clip: Largest norm of the gradient.
        average: Decay of the averaged weights, which are the ones kept.
        slices: How batches are drawn.
        seed: Of initial weights and of batches.
        held_out: Rows of the data to validate on where no other set is given.
        gap_instances: Instances of the validated greedy gap.
        validate_every: Seconds between validations.
        save_every: Seconds between snapshots.
    """

    base: EncoderConfig = field(default_factory=EncoderConfig)
    recurrent: EncoderConfig | None = None
    zoom: bool = False
    relative: bool = False
    neighbors: bool = False
    trees: bool = False
    savings: bool = False
    insertions: bool = False
    geometry: bool = False
    reach: bool = False
    grow: float = 0.0
    joint: bool = False
    links: float = 0.0
    distill: float = 0.0
    regret: float = 10.0
    temper: float = 0.0
    k: int = 10
    windows: int = 1
    steps: int = 0
    minutes: float = 0.0
    precision: str = "float32"
    optimizer: str = "adamw"
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warmup: float = 0.02
    clip: float = 1.0
    average: float = 0.999
    slices: Slices = field(default_factory=Slices)
    seed: int = 0
    held_out: int = 256
    gap_instances: int = 64
    validate_every: float = 300.0
    save_every: float = 120.0

    def __post_init__(self) -> None:
        """Raises ValueError naming a setting out of range."""
        for name in ("k", "windows"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}"
                )
        if self.steps < 0 or self.minutes < 0:
            raise ValueError(f"steps {self.steps} and minutes {self.minutes} below 0")
        if self.learning_rate <= 0 or not 0 < self.warmup < 1:
            raise ValueError(
                f"learning_rate {self.learning_rate} must be positive and warmup "
                f"{self.warmup} between 0 and 1"
            )
        if not 0 <= self.grow < 1:
            raise ValueError(f"grow must be at least 0 and below 1, got {self.grow}")
        chosen_precision(self.precision, torch.empty(0))
        for name in ("links", "distill", "regret", "temper"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be at least 0, got {getattr(self, name)}"
                )
        if self.joint and self.recurrent is None:
            raise ValueError("joint training needs a recurrent encoder")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Builds a config from nested tables, refusing unknown keys."""
        values = dict(values)
        parts = {"base": EncoderConfig, "recurrent": EncoderConfig, "slices": Slices}
        for name, part in parts.items():
            if isinstance(values.get(name), dict):
                values[name] = part(**_known(part, values[name], f"{name}."))
        return cls(**_known(cls, values, ""))

    @classmethod
    def from_toml(cls, path: Path | str) -> Self:
        """Reads a config from a TOML file, the tables named like the attributes."""
        try:
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None


def _known(cls: type, values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Returns the values with whole numbers as floats where floats are due."""
    known = {item.name: item.type for item in fields(cls)}
    for name in values:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise ValueError(f"unknown setting {prefix}{name}: expected {expected}")
    return {n: float(v) if known[n] is float else v for n, v in values.items()}


_OURS = TrainConfig(
    zoom=True,
    relative=True,
    neighbors=True,
    trees=True,
    savings=True,
    insertions=True,
    geometry=True,
    reach=True,
)
PRESETS: dict[str, TrainConfig] = {
    "paper": TrainConfig(
        recurrent=EncoderConfig(4, 128, 8, 256),
        steps=500_000,
        slices=Slices(batch=1024, shortest=3, curriculum=0.0),
    ),
    "cpu": replace(
        _OURS,
        base=EncoderConfig(8, 128, 8, 256),
        recurrent=EncoderConfig(2, 128, 8, 256),
        grow=0.5,
        minutes=60.0,
        precision="auto",
        learning_rate=1e-3,
    ),
    "smoke": replace(
        _OURS,
        base=EncoderConfig(2, 32, 4, 64),
        recurrent=EncoderConfig(1, 32, 4, 64),
        steps=200,
        learning_rate=3e-3,
        slices=Slices(tokens=512, longest=20),
        held_out=32,
        gap_instances=16,
    ),
}
"""Settings by name: the paper's sizes, what two cores can do, a minute's trial."""


def preset(name: str, stage: Stage = "base") -> TrainConfig:
    """Returns a preset's settings for one stage."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: expected {', '.join(PRESETS)}")
    if stage not in get_args(Stage):
        raise ValueError(f"stage must be base or recurrent, got {stage!r}")
    config = PRESETS[name]
    if stage == "base":
        return replace(config, recurrent=None)
    # A slice has k labels here: smaller batches are as steady, and there are more.
    return replace(config, slices=replace(config.slices, tokens=512))


# --- losses -----------------------------------------------------------------------


def cross_entropy(
    policy: Policy,
    h: Float[Tensor, "batch node d"],
    state: State,
    action: Int[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Returns CE(a, D(h)), averaged over the batch."""
    return -policy.score(h, state).gather(1, action[:, None]).mean()


def expected_regret(
    policy: Policy,
    h: Float[Tensor, "batch node d"],
    state: State,
    weighed: Weighed,
    step: int,
) -> Float[Tensor, ""]:
    """Returns the regret of the next decision, averaged over policy and batch.

    What is not among the options is as bad as the worst of them; where none was
    weighed, all are as good.
    """
    regrets = weighed.regrets[:, step]
    found = _of_options(policy, h, state, weighed, step).exp() * regrets.isfinite()
    lost = regrets.nan_to_num()
    others = (1 - found.sum(1)) * lost.amax(1)
    return ((found * lost).sum(1) + others).mean()


def tempered_cross_entropy(
    policy: Policy,
    h: Float[Tensor, "batch node d"],
    state: State,
    weighed: Weighed,
    step: int,
    temper: float,
) -> Float[Tensor, ""]:
    """Returns CE(p, D(h)) with p = exp(-regret / temper), averaged over the batch.

    The logarithms of such decisions add up to minus the regret of a solution, which is
    what beams are to be ranked by. Where nothing was weighed the loss is 0.
    """
    regrets = weighed.regrets[:, step]
    known = regrets.isfinite()
    # A row of which nothing is known would be NaN, and NaN has a gradient.
    target = (-regrets.nan_to_num() / temper).exp() * known
    target = target / target.sum(1, keepdim=True).clamp_min(1.0)  # the best has 1
    found = _of_options(policy, h, state, weighed, step).masked_fill(~known, 0.0)
    return -(target * found).sum(1).mean()


def _of_options(
    policy: Policy,
    h: Float[Tensor, "batch node d"],
    state: State,
    weighed: Weighed,
    step: int,
) -> Float[Tensor, "batch option"]:
    """Returns the log-probability of each decision that was weighed at a step."""
    options = weighed.options[:, step]
    nodes = options // state.choices
    place = (state.node[:, None] == nodes[..., None]).int().argmax(-1)
    action = place * state.choices + options % state.choices
    return policy.score(h, state).gather(1, action)


def base_loss(
    policy: Policy,
    state: State,
    actions: Int[Tensor, "batch step"],
    links: float = 0.0,
) -> Float[Tensor, ""]:
    """Returns the loss of E and D on one step: Algorithm 3, first loop.

    Args:
        policy: Policy to train.
        state: States of an expert, the nodes in the expert's order.
        actions: The expert's actions from there on.
        links: Weight of the loss on all links of the path. Unlike the paper, which
            learns from one decision per state.
    """
    state = policy.visible(state)
    h = policy.encode(state)
    loss = cross_entropy(policy, h, state, actions[:, 0])
    if not links:
        return loss
    return loss + links * link_loss(policy, h, state, actions)


def link_loss(
    policy: Policy,
    h: Float[Tensor, "batch node d"],
    state: State,
    actions: Int[Tensor, "batch step"],
) -> Float[Tensor, ""]:
    """Returns the cross-entropy of the node after each node, averaged.

    Node i + 1 follows node i, the end follows the last of them, and what an
    orienteering tour leaves out follows itself. A link via a depot is none.
    """
    scores, (batch, steps) = link_scores(policy, h), actions.shape
    last = h.shape[1] - 1
    node = torch.arange(last, device=h.device)
    after = torch.where(node < steps, node + 1, node)
    after[steps] = last
    found = scores[:, node, after]
    counts = torch.ones(batch, last, dtype=torch.bool, device=h.device)
    counts[:, :steps] = actions % state.choices == 0
    return -(found * counts).sum() / counts.sum()


def recurrent_losses(
    policy: Policy,
    state: State,
    actions: Int[Tensor, "batch step"],
    k: int,
    *,
    windows: int = 1,
    through_base: bool = False,
    distill: float = 0.0,
    weighed: Weighed | None = None,
    regret: float = 1.0,
    temper: float = 0.0,
) -> Iterator[Float[Tensor, ""]]:
    """Yields the loss of U on up to k unrolled steps: Algorithm 3, second loop.

    The paper sums over the steps; the mean differs by a constant factor, and does
    not change its scale where fewer than k steps remain.

    Args:
        policy: Policy with a recurrent encoder. It may be updated after each loss.
        state: States s_j of an expert.
        actions: The expert's actions from there on.
        k: Number of recurrent steps.
        windows: How many losses, as long as k steps remain: each goes on from the
            embeddings of the one before, but gradients do not go back so far. Unlike
            the paper, where U never sees what more than k steps of it lead to.
        through_base: Also train E and D, on step j and through the first window.
            Unlike the paper, which freezes them.
        distill: Weight of the divergence of U's decisions from those of E, which
            then runs at every step.
        weighed: What could be decided in each state, if that is to be learnt from
            instead of the actions, which then are the policy's own.
        regret: Weight of the loss then.
        temper: See `TrainConfig`.
    """

    def lost(i: int) -> Float[Tensor, ""]:
        if weighed is None:
            return cross_entropy(policy, h, state, actions[:, i])
        given = (policy, h, state, weighed, i)
        if temper:
            return regret * tempered_cross_entropy(*given, temper)
        return regret * expected_regret(*given)

    state = policy.visible(state)
    with torch.set_grad_enabled(through_base and torch.is_grad_enabled()):
        h = policy.encode(state)
    losses = []
    if through_base:
        losses.append(lost(0))
    steps = min(windows * k, actions.shape[1] - 1)
    steps -= steps % k if steps > k else 0  # only the first window may be shorter
    for i in range(1, steps + 1):
        state = policy.visible(state.step(actions[:, i - 1]))
        h = policy.update(h, state)
        losses.append(lost(i))
        if distill:
            losses[-1] = losses[-1] + distill * divergence(policy, h, state)
        if i % k == 0:
            yield torch.stack(losses).mean()
            losses, h = [], h.detach()
    if steps < k:
        yield torch.stack(losses).mean()


def divergence(
    policy: Policy, h: Float[Tensor, "batch node d"], state: State
) -> Float[Tensor, ""]:
    """Returns KL(D(E(s)) || D(h)), averaged over the batch."""
    with torch.no_grad():
        wanted = policy.score(policy.encode(state), state)
    found = policy.score(h, state)
    # Infeasible actions have probability 0 in both.
    difference = torch.where(wanted.isfinite(), wanted - found, 0.0)
    return (wanted.exp() * difference).sum(-1).mean()


# --- the loop ---------------------------------------------------------------------


@dataclass(frozen=True)
class Processes:
    """The processes that train together; one, unless started by torchrun."""

    rank: int = 0
    world: int = 1
    restarted: bool = False

    @classmethod
    def join(cls) -> Self:
        """Joins the other processes if torchrun started this one.

        It starts all of them again when one has died, if `--max-restarts` says so.
        """
        if "RANK" not in os.environ:
            return cls()
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        if not dist.is_initialized():
            store, rank, world = next(rendezvous("env://"))
            # Or processes would look for each other where the dead ones were.
            store = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
            backend = "nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=world)
        return cls(dist.get_rank(), dist.get_world_size(), attempt > 0)

    def share(self, batch: Batch) -> Batch:
        """Returns this process's rows of a batch."""
        if self.world == 1:
            return batch
        rows, device = len(batch.actions), batch.actions.device
        if rows < self.world:
            raise TrainingError(f"{rows} rows for {self.world} processes")
        return batch.rows(torch.arange(self.rank, rows, self.world, device=device))

    def average(self, tensors: list[Tensor]) -> None:
        """Replaces tensors by their means over all processes."""
        if self.world == 1:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.world
        for t, part in zip(
            tensors, flat.split([t.numel() for t in tensors]), strict=True
        ):
            t.copy_(part.view_as(t))

    def agree(self, value: float) -> float:
        """Returns the first process's value in all of them."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(shared, 0)
        return shared.item()


@dataclass
class Run:
    """What changes during training, and is saved to go on later."""

    policy: Policy
    average: Average
    optimizers: list[torch.optim.Optimizer]
    step: int = 0
    seconds: float = 0.0
    samples: int = 0
    nodes: int = 0


def train(
    stage: Stage,
    config: TrainConfig,
    *,
    data: Source | Sequence[Source],
    out: Path | str,
    val: Source | None = None,
    base: Path | str | None = None,
    init: Path | str | None = None,
    corrections: Sequence[Path | str] = (),
    regrets: Sequence[Path | str] = (),
    resume: bool = False,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] | None = None,
    tensorboard: bool = False,
) -> Policy:
    """Trains a policy and writes it, its log and its snapshots to a folder.

    Args:
        stage: `base` trains E and D; `recurrent` trains U on top of a frozen base.
        config: The settings.
        data: Labelled trajectories: a set, or several of any sizes.
        out: Folder for `model.safetensors`, `config.json`, `log.jsonl` and the
            snapshot from which `resume` goes on.
        val: Trajectories to validate on; None holds some rows of the data out.
        base: The base model of stage `recurrent`.
        init: Model whose encoder of this stage to begin with; fewer layers than wanted
            are fine, since new ones begin as the identity (ReZero), and so is one that
            knows nothing of neighbors or plans, which then count nothing.
        corrections: Folders of what experts did in states of the policy's own
            (`renco.dagger`), to mix in.
        regrets: Folders of what the decisions that the policy could have made would
            have cost (`renco.regrets`), to mix in.
        resume: Continues from the snapshot in `out`, exactly as if never stopped. So
            does a training that torchrun has started again.
        device: Where to train.
        report: Receives a line of progress now and then; None prints to stderr.
        tensorboard: Also writes what is measured for TensorBoard, to `out`.

    Returns:
        The trained policy, with averaged weights.
    """
    if not config.steps and not config.minutes:
        raise ValueError("give the length of the training: steps or minutes")
    if stage == "base" and base is not None:
        raise ValueError(f"a base is for stage recurrent: begin with init={base}")
    if init is not None:  # its layers are all at work
        config = replace(config, grow=0.0)
    together, out = Processes.join(), Path(out)
    resume = resume or (together.restarted and (out / SNAPSHOT).exists())
    sets = _opened(data)
    device = torch.device(device)
    if not resume and (out / SNAPSHOT).exists():
        raise ValueError(f"{out} holds a training run: resume it or choose another")
    board = _board(out) if tensorboard else None
    out.mkdir(parents=True, exist_ok=True)
    trained, checked = _split(sets, val, config)
    policy = _build(stage, config, sets[0], base, init).to(device)
    run = _start(policy, config)
    given = [c for folder in corrections for c in Corrections.read_all(folder)]
    weighed = [r for folder in regrets for r in Regrets.read_all(folder)]
    if weighed and policy.recurrent is None:
        raise ValueError("regrets are for training U: stage recurrent, or joint")
    about = settings(stage, config, sets, given, weighed)
    if resume:
        read_snapshot(out / SNAPSHOT, run, about)
    say = report or (lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    sampler = Sampler(trained, config.slices, config.seed, given, weighed)
    loop = _Loop(stage, config, run, sampler, checked, out, together, say)
    loop.details = {
        "training": about,
        "base": _source(base),
        "init": _source(init),
    }
    loop.board = board
    policy.mix(config.precision)
    loop.go(device)
    run.average.swap(policy)
    return policy.mix("float32").eval()


def settings(
    stage: Stage,
    config: TrainConfig,
    sets: Sequence[Trajectories],
    corrections: Sequence[Corrections] = (),
    regrets: Sequence[Regrets] = (),
) -> dict[str, Any]:
    """Returns what makes two runs the same run."""
    names = ("problem", "n", "seed", "first", "expert", "version", "seconds", "note")
    about = [
        {name: getattr(data.manifest, name) for name in names} | {"count": len(data)}
        for data in sets
    ]
    return {
        "stage": stage,
        "config": asdict(config),
        "data": about,
        "corrections": [given.data.manifest.note for given in corrections],
        "regrets": [given.data.manifest.note for given in regrets],
    }


def _board(out: Path) -> Any:
    """Returns a writer of curves for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError(
            "curves for TensorBoard need pip install renco[tensorboard]"
        ) from None
    return SummaryWriter(str(out))


def _source(base: Path | str | None) -> dict[str, str] | None:
    """Returns which weights a training began with."""
    if base is None:
        return None
    config = read_config(base)
    return {"name": config["name"], "sha256": config["sha256"]}


def _opened(data: Source | Sequence[Source]) -> list[Trajectories]:
    """Opens sets of one problem.

    Raises:
        ValueError: They are of several.
    """
    given = [data] if isinstance(data, Source) else data
    sets = [
        one if isinstance(one, Trajectories) else Trajectories(one) for one in given
    ]
    problems = {one.manifest.problem: one.folder for one in sets}
    if len(problems) > 1:
        named = ", ".join(f"{folder} is {name}" for name, folder in problems.items())
        raise ValueError(f"sets to train on must be of one problem: {named}")
    return sets


def _split(
    sets: Sequence[Trajectories], val: Source | None, config: TrainConfig
) -> tuple[list[Part], "Validation"]:
    """Returns the rows to train on, and what to validate on."""
    everything = [np.arange(len(data)) for data in sets]
    if val is not None:
        others = _opened(val)
        checked = [(other, np.arange(len(other))) for other in others]
        return [*zip(sets, everything, strict=True)], Validation(checked, config)
    total = sum(map(len, sets))
    held = min(config.held_out, total // 5)
    if held == 0:
        raise ValueError(f"{total} instances are too few to hold some out")
    # Spread over all sets, however small: an own file may be the only one of its size.
    away = np.zeros(total, dtype=bool)
    away[np.arange(1, held + 1) * total // held - 1] = True
    trained, checked = [], []
    for data, rows, out in zip(
        sets, everything, np.split(away, np.cumsum([*map(len, sets)])[:-1]), strict=True
    ):
        trained.append((data, rows[~out]))
        if out.any():
            checked.append((data, rows[out]))
    return trained, Validation(checked, config)


def _build(
    stage: Stage,
    config: TrainConfig,
    data: Trajectories,
    base: Path | str | None = None,
    init: Path | str | None = None,
) -> Policy:
    """Returns the policy to train, with only the parameters of the stage open."""
    problem = data.manifest.problem
    wanted = PolicyConfig.for_state(
        data.instances([0]).start(),
        problem=problem,
        base=config.base,
        recurrent=config.recurrent,
        zoom=config.zoom,
        relative=config.relative,
        neighbors=config.neighbors,
        **{name: getattr(config, name) and of == problem for name, of in PLANS.items()},
        geometry=config.geometry,
        reach=config.reach,
        links=config.links > 0,
    )
    if stage == "recurrent":
        if base is None or config.recurrent is None:
            raise ValueError("stage recurrent needs a base model and a recurrent size")
        wanted = replace(load(base).config, recurrent=config.recurrent, links=False)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        policy = Policy(wanted)
    _take(policy, init, data, ("recurrent.",) if stage == "recurrent" else ())
    if stage == "recurrent":
        _take(policy, base, data, ("base.", "decoder."))
        policy.base.requires_grad_(False)
        policy.decoder.requires_grad_(False)
    return policy.train()


def _take(
    policy: Policy,
    source: Path | str | None,
    data: Trajectories,
    parts: tuple[str, ...],
) -> None:
    """Copies the weights of some parts, or of all, from another model."""
    if source is None:
        return
    given = load(source)
    if given.config.problem != data.manifest.problem:
        raise ValueError(
            f"model {source} is for {given.config.problem}, the data are "
            f"{data.manifest.problem}"
        )
    known, mine = given.state_dict(), policy.state_dict()
    known = {n: t for n, t in known.items() if n.startswith(parts or "") and n in mine}
    for name, tensor in known.items():
        if name.endswith("init.linear.weight"):
            known[name] = tensor = _widened(tensor, given.config, policy.config)
        if tensor.shape != mine[name].shape:
            raise ValueError(
                f"{name} of {source} has shape {tuple(tensor.shape)}, here it is "
                f"{tuple(mine[name].shape)}"
            )
    policy.load_state_dict(known, strict=False)


def _widened(
    weight: Float[Tensor, "d told_before"], before: PolicyConfig, now: PolicyConfig
) -> Float[Tensor, "d told"]:
    """Returns a weight to which what is told only now counts nothing."""
    given = before.told
    pieces = weight.split([weight.shape[1] - sum(given), *given], dim=1)
    more = [0, *(max(0, w - g) for w, g in zip(now.told, given, strict=True))]
    return torch.cat(
        [F.pad(p, (0, m)) for p, m in zip(pieces, more, strict=True)], dim=1
    )


def _start(policy: Policy, config: TrainConfig) -> Run:
    found = optimizers(
        policy, config.optimizer, config.learning_rate, config.weight_decay
    )
    return Run(policy, Average(policy, config.average), found)


class Validation:
    """A fixed set of slices and instances to judge a policy by."""

    SIZES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the whole instance

    def __init__(self, parts: Sequence[Part], config: TrainConfig) -> None:
        """Chooses the slices once, from rows of sets."""
        self.k = config.k
        self.batches: list[Batch] = []
        self.references: list[tuple[Problem, Float64[np.ndarray, " row"]]] = []
        rng = np.random.default_rng(0)
        total = sum(len(rows) for _, rows in parts)
        for data, rows in parts:
            self.batches += self._slices(data, rows, rng, config.slices)
            some = rows[: math.ceil(config.gap_instances * len(rows) / total)]
            self.references.append((data.instances(some), data.costs[some]))

    def _slices(
        self,
        data: Trajectories,
        rows: Int[np.ndarray, " row"],
        rng: np.random.Generator,
        how: Slices,
    ) -> Iterator[Batch]:
        """Yields slices of several sizes."""
        lengths, largest = data.lengths[rows], data.nodes
        usual = int(np.bincount(lengths).argmax())
        problem, decisions = data.batch(rows[lengths == usual][:128])
        for share in self.SIZES:
            nodes = max(4, round(share * largest))
            if data.manifest.problem == "op":
                nodes = largest - round((1 - share) * (usual - 2))
            yield slices(problem, decisions, nodes, rng, how)

    @torch.no_grad()
    def measure(self, policy: Policy, device: torch.device) -> dict[str, float]:
        """Returns cross-entropy and greedy gap, with U where there is one."""
        losses = []
        for batch in self.batches:
            state, actions, _ = batch.to(device)
            losses.append(base_loss(policy, state, actions).item())
        found = {"val_ce": float(np.mean(losses))}
        found["val_gap"] = self._gap(policy, 1, device)
        if policy.recurrent is not None:
            unrolled = [
                next(recurrent_losses(policy, s.to(device), a.to(device), self.k))
                for s, a, _ in self.batches
                if a.shape[1] > 1
            ]
            found["val_ce_recurrent"] = torch.stack(unrolled).double().mean().item()
            found["val_gap_recurrent"] = self._gap(policy, 1000, device)
        return found

    def _gap(self, policy: Policy, k: int, device: torch.device) -> float:
        gaps = []
        for problem, reference in self.references:
            decisions = greedy(policy, problem.start(device), k=k).decisions.cpu()
            cost = problem.cost(problem.routes(decisions))
            gaps.append(100 * (cost - reference) / np.abs(reference))
        return float(np.concatenate(gaps).mean())


@dataclass
class _Loop:
    stage: Stage
    config: TrainConfig
    run: Run
    sampler: Sampler
    validation: Validation
    out: Path
    together: Processes
    say: Callable[[str], None]
    details: dict[str, Any] = field(default_factory=dict)
    board: Any = None

    def go(self, device: torch.device) -> None:
        """Trains to the end, validating and saving on the way."""
        run, config = self.run, self.config
        began = time.monotonic() - run.seconds
        checked, saved, told, losses = run.seconds, run.seconds, run.seconds, []
        while (progress := self._progress()) < 1:
            set_rate(run.optimizers, schedule(progress, config.warmup))
            losses.append(self._step(progress, device))
            run.seconds = self.together.agree(time.monotonic() - began)
            last = self._progress() >= 1
            if last or run.seconds - checked >= config.validate_every:
                self._validate(losses, device)
                checked, told, losses = run.seconds, run.seconds, []
            elif run.seconds - told >= TELL_EVERY:
                self._tell(losses)
                told = run.seconds
            if last or run.seconds - saved >= config.save_every:
                self._save()
                saved = run.seconds

    def _progress(self) -> float:
        if self.config.steps:
            return self.run.step / self.config.steps
        return self.run.seconds / (60 * self.config.minutes)

    def _step(self, progress: float, device: torch.device) -> float:
        run, config = self.run, self.config
        if config.grow and self.stage == "base":
            layers = config.base.layers
            grown = progress >= config.grow
            run.policy.base.depth = layers if grown else (layers + 1) // 2
        batch = self.sampler.batch(run.step, progress, device)
        rows = self.together.share(batch)
        if self.stage == "base" and not config.joint:
            losses = iter(
                [base_loss(run.policy, rows.state, rows.actions, config.links)]
            )
        else:
            losses = recurrent_losses(
                *(run.policy, rows.state, rows.actions, config.k),
                weighed=rows.weighed,
                regret=config.regret,
                temper=config.temper,
                windows=config.windows,
                through_base=config.joint,
                distill=config.distill,
            )
        # Shares of a batch may differ by a row; weighted, their mean is the batch's.
        share = len(rows.actions) * self.together.world / len(batch.actions)
        values = [self._update(loss * share) for loss in losses]
        run.step += 1
        run.samples += len(batch.actions)
        run.nodes += batch.state.node.numel()
        return float(np.mean(values))

    def _update(self, loss: Float[Tensor, ""]) -> float:
        """Moves the weights down the gradient of a loss and returns its value."""
        run, config = self.run, self.config
        for optimizer in run.optimizers:
            optimizer.zero_grad()
        loss.backward()
        grads = [p.grad for p in run.policy.parameters() if p.grad is not None]
        value = loss.detach().reshape(1)
        self.together.average([*grads, value])
        if not value.isfinite():
            raise TrainingError(
                f"loss is {value.item()} at step {run.step}: lower learning_rate "
                f"({config.learning_rate}); the last snapshot is in {self.out}"
            )
        torch.nn.utils.clip_grad_norm_(run.policy.parameters(), config.clip)
        for optimizer in run.optimizers:
            optimizer.step()
        run.average.update(run.policy, run.step)
        return value.item()

    def _validate(self, losses: list[float], device: torch.device) -> None:
        run = self.run
        run.average.swap(run.policy)
        run.policy.eval()
        found = self.validation.measure(run.policy, device)
        record = {
            "step": run.step,
            "seconds": round(run.seconds, 1),
            "samples": run.samples,
            "loss": float(np.mean(losses)),
            "samples_per_second": run.samples / run.seconds,
            "nodes_per_second": run.nodes / run.seconds,
            **found,
        }
        if self.together.rank == 0:
            info = self.details | {"validation": found, "steps": run.step}
            save_policy(run.policy, self.out, **info)
            with (self.out / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            if self.board is not None:
                for name, value in record.items():
                    self.board.add_scalar(name, value, run.step)
                self.board.flush()
            self.say(self._line(record))
        run.policy.train()
        run.average.swap(run.policy)

    def _line(self, record: dict[str, Any]) -> str:
        words = [f"val {record['val_ce']:.3f}", f"gap {record['val_gap']:.2f} %"]
        if "val_gap_recurrent" in record:
            words.append(f"recurrent {record['val_gap_recurrent']:.2f} %")
        return self._pace(record["loss"], words)

    def _tell(self, losses: list[float]) -> None:
        """Says between two validations how the training goes."""
        if self.together.rank == 0:
            self.say(self._pace(float(np.mean(losses)), []))

    def _pace(self, loss: float, found: list[str]) -> str:
        """Returns a line with what was found, the throughput and the time left."""
        run, progress = self.run, self._progress()
        left = max(0.0, run.seconds * (1 / max(progress, 1e-9) - 1) / 60)
        pace = [
            f"{run.samples / run.seconds:.0f} samples/s",
            f"{run.nodes / run.seconds:.0f} nodes/s",
            f"{left:.0f} min left",
        ]
        return ", ".join([f"step {run.step}", f"loss {loss:.3f}", *found, *pace])

    def _save(self) -> None:
        if self.together.rank == 0:
            write_snapshot(self.out / SNAPSHOT, self.run, self.details["training"])
