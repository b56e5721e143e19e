"""What a set of trajectories contains, how it was made, and how it is stored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from renco.problems import PROBLEMS, Problem
from renco.storage import DamagedData

SCHEMA = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a set contains and how it was made.

    Attributes:
        problem: Name of the problem.
        n: Size of every instance.
        count: Number of instances.
        seed: Seed of the instances; None if they come from files.
        first: Index of the first instance among those of the seed.
        settings: Further arguments of `Problem.random`.
        files: Where instances that were not drawn come from, in order.
        metric: Rule for distances.
        expert: Name of the expert; None for a set without decisions.
        version: Version of the expert.
        seconds: Time the expert had per instance.
        note: How the set was made, where that needs saying.
        chunk: Instances per file while the set is being made.
        mean_cost: Mean cost of the expert's solutions.
        shards: SHA-256 of each file; empty while the set is being made.
        schema: Version of this format.
    """

    problem: str
    n: int
    count: int
    seed: int | None
    first: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    metric: str = "euclidean"
    expert: str | None
    version: str | None = None
    seconds: float | None = None
    note: str = ""
    chunk: int = 256
    mean_cost: float | None = None
    shards: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Checks the values that everything else relies on."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema} is not supported, only {SCHEMA}")
        if self.problem not in PROBLEMS:
            raise ValueError(f"unknown problem {self.problem!r}")
        if self.count < 1 or self.chunk < 1:
            raise ValueError(f"count {self.count} and chunk {self.chunk} must be >= 1")

    @classmethod
    def parse(cls, text: str, source: object) -> Self:
        """Reads a manifest from JSON; `source` is named in errors."""
        try:
            values = json.loads(text)
            known = {entry.name for entry in fields(cls)}
            if unknown := sorted(set(values) - known):
                raise ValueError(f"unknown keys {', '.join(unknown)}")
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise DamagedData(f"{source}: {error}") from None

    def to_json(self) -> str:
        """Returns the manifest as JSON text."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def plan(self) -> Self:
        """The manifest without its results: equal for runs that may be joined."""
        return replace(self, mean_cost=None, shards={})

    @property
    def layout(self) -> np.dtype:
        """The record of one instance."""
        drawn = not self.files
        nodes = self.n + (self.problem != "tsp")
        real: Any = np.float32 if drawn else np.float64
        columns: list[tuple[Any, ...]] = [
            ("index", np.int64),
            ("coords", real, (nodes, 2)),
        ]
        if self.problem == "cvrp":
            largest = self.settings["demand"][1] if drawn else 0
            whole = np.min_scalar_type(largest) if drawn else np.float64
            columns += [("demands", whole, (nodes,)), ("capacity", np.float64)]
        if self.problem == "op":
            # Drawn prizes are 1..100.
            columns += [("prizes", np.uint8 if drawn else np.float64, (nodes,))]
            columns += [("limit", np.float64)]
        if self.expert is not None:
            steps = self.n - (self.problem == "tsp")
            last = 2 * self.n + 1 if self.problem == "cvrp" else self.n
            columns += [("cost", np.float64)]
            columns += [("decisions", np.min_scalar_type(last), (steps,))]
        return np.dtype(columns)

    def draw(self, first: int, count: int) -> Problem:
        """Draws instances `first`, `first + 1`, ... of the set again."""
        if self.seed is None:
            raise ValueError("instances from files cannot be drawn again")
        settings: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in self.settings.items()
        }
        return PROBLEMS[self.problem].random(
            count, self.n, seed=self.seed, first=first, **settings
        )

    def rows(self, index: Int[ndarray, " row"], instances: Problem) -> ndarray:
        """Returns records of instances, their labels still empty."""
        rows = np.zeros(len(index), self.layout)
        rows["index"] = index
        for name in instances.arrays:
            values = getattr(instances, name)
            rows[name] = values
            if (rows[name] != values).any():
                raise ValueError(f"{name} cannot be stored as {rows.dtype[name].base}")
        return rows


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a folder.

    Raises:
        FileNotFoundError: The folder holds no set.
        DamagedData: The manifest cannot be understood.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no set: {path} is missing")
    return Manifest.parse(path.read_text(encoding="utf-8"), path)


def is_there(folder: Path, plan: Manifest) -> bool:
    """Returns whether an earlier run has finished a set.

    Raises:
        ValueError: The folder holds something else.
    """
    if not (folder / MANIFEST).exists():
        return False
    found = read_manifest(folder)
    if found.plan != plan.plan:
        raise ValueError(f"{folder} holds another set: {found.note}")
    return True
