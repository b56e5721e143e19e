"""What a batch of routing instances must offer, whatever the problem."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from numpy import ndarray
from torch import Tensor

from renco import metrics
from renco.state import State

RouteOrder = Literal["random", "sorted", "far", "mixed"]

Routes = list[list[int]]
"""Node ids in order of visit: one route (TSP, OP) or several (CVRP), no depot."""

TOLERANCE = 1e-9
"""Relative excess of a limit that counts as rounding of the sum, not a violation."""

LARGEST = 1e30
"""Coordinates beyond this would overflow single precision in a sum of lengths."""


class Infeasible(ValueError):
    """A solution breaks a rule of its problem; the message names rule and values."""


def as_array(name: str, value: Any, dtype: type = np.float64) -> ndarray:
    """Converts lists, NumPy arrays and tensors to a finite float array.

    Raises:
        ValueError: The values are not numbers, or not finite.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        value = (value.double() if value.is_floating_point() else value).numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: {error}") from None
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers, got dtype {array.dtype}")
    array = array.astype(dtype)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(where)} is {array[where]}, expected finite")
    array.flags.writeable = False
    return array


def as_points(value: Any) -> ndarray:
    """Converts coordinates of one instance or a batch to `(batch, node, 2)`.

    Raises:
        ValueError: The shape is wrong, or values are not numbers of sensible size.
    """
    points = batched(as_array("coords", value), 3)
    if points.ndim != 3 or points.shape[-1] != 2:
        raise ValueError(
            "coords must have shape (nodes, 2) or (batch, nodes, 2), "
            f"got {points.shape}"
        )
    batch, nodes, _ = points.shape
    if batch == 0:
        raise ValueError(f"a batch needs at least one instance, got {batch}")
    if nodes == 0:
        raise ValueError(f"an instance needs at least one node, got {nodes}")
    if (abs(points) > LARGEST).any():
        where = tuple(int(i) for i in np.argwhere(abs(points) > LARGEST)[0])
        raise ValueError(
            f"coords{list(where)} is {points[where]:g}, too large to measure"
        )
    return points


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(ABC):
    """A batch of instances of equal size; one instance is a batch of one.

    Node 0 is the depot (TSP: the arbitrary start).

    Attributes:
        coords: Coordinates in the instance's own units.
        metric: Rule for distances: `"euclidean"` or a TSPLIB edge weight type.
        matrix: Distances of an `EXPLICIT` instance, else None.
        title: Name of the instance where its file gives one.
        numbers: How the file numbers the nodes; None means 0, 1, 2, ...
        best_known: Cost of the best known solution where the file says so.
    """

    name: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("coords",)
    """Fields with one row per instance."""

    coords: Float64[ndarray, "batch node 2"]
    metric: str = "euclidean"
    matrix: Float64[ndarray, "node node"] | None = None
    title: str = ""
    numbers: tuple[int, ...] | None = None
    best_known: float | None = None

    def __len__(self) -> int:
        """Returns the number of instances."""
        return len(self.coords)

    def __getitem__(self, index: int | slice | Sequence[int] | ndarray) -> Self:
        """Returns some of the instances, as a batch."""
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"instance {index} of a batch of {len(self)}")
            index = [int(index)]
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return type(self)(**values | {a: values[a][index] for a in self.arrays})

    @classmethod
    def trusted(cls, **values: Any) -> Self:
        """Makes a batch of arrays that are known to be valid, without checking.

        For data that was checked when it was stored: a training step cannot afford
        to look at every instance again.
        """
        self = object.__new__(cls)
        defaults = {field.name: field.default for field in fields(Problem)}
        for name, value in (defaults | values).items():
            object.__setattr__(self, name, value)
        return self

    def with_coords(self, coords: Float64[ndarray, "batch node 2"]) -> Self:
        """Returns the instances at other coordinates, unchecked."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return self.trusted(**values | {"coords": coords})

    @property
    @abstractmethod
    def n(self) -> int:
        """The size as the paper counts it: customers, or nodes of a TSP."""

    @classmethod
    @abstractmethod
    def random(cls, batch: int, n: int, *, seed: int = 0, first: int = 0) -> Self:
        """Draws instances by the protocol of appendix C.

        Instance `i` of the batch depends on `(seed, first + i)` alone, so a set can
        be made in pieces, in any order, by any number of workers.
        """

    @abstractmethod
    def start(self, device: torch.device | str | None = None) -> State:
        """Returns s_0: the start duplicated as destination, everything open."""

    @abstractmethod
    def replay(self, decisions: Int[Tensor, "batch step"], step: int) -> State:
        """Returns s_step of the given decisions, without stepping.

        The open nodes come in the order of the decisions, so the next decision is
        always position 1.
        """

    def after(
        self, decisions: Int[ndarray, "batch step"], step: int
    ) -> tuple[State, Int[Tensor, "batch label"]]:
        """Returns s_step of the given decisions, and the rest of them as actions."""
        given = torch.from_numpy(decisions)
        state = self.replay(given, step)
        # Position 1, and the choice that a decision holds beside its node.
        return state, state.choices + given[:, step:] % state.choices

    def arranged(
        self,
        decisions: Int[ndarray, "batch step"],
        begun: int,
        rng: np.random.Generator,
        order: RouteOrder,
    ) -> Int[ndarray, "batch step"]:
        """Returns the same solutions in an order to learn, from step `begun` on.

        Only solutions of several routes have a choice.
        """
        return decisions

    @abstractmethod
    def routes(self, decisions: Int[Tensor, "batch step"]) -> list[Routes]:
        """Translates decisions to routes."""

    @abstractmethod
    def decisions(self, routes: Sequence[Routes]) -> Int[Tensor, "batch step"]:
        """Translates routes to decisions: the inverse of `routes`."""

    @abstractmethod
    def slices(
        self,
        decisions: Int[ndarray, "batch step"],
        nodes: int,
        rng: np.random.Generator,
    ) -> tuple[State, Int[Tensor, "batch label"]]:
        """Cuts a random part of `nodes` nodes out of each expert solution.

        Returns:
            The path problems with their nodes in the expert's order, and the
            expert's actions, always at position 1.
        """

    @abstractmethod
    def _check(self, index: int, routes: Routes) -> None:
        """Raises `Infeasible` unless the routes solve instance `index`."""

    @abstractmethod
    def _objective(self, index: int, routes: Routes, length: float) -> float:
        """Returns f(x) of appendix A for checked routes of the given length."""

    @abstractmethod
    def _closed(self, route: list[int]) -> list[int]:
        """Returns the nodes that a vehicle passes, first and last the same."""

    def cost(self, routes: Sequence[Routes]) -> Float64[ndarray, " batch"]:
        """Checks each solution and returns f(x) in the instance's own metric.

        Works in float64 on the original coordinates and shares no code with the
        states that the policies walk through.

        Raises:
            Infeasible: A solution breaks a rule; the message says which and where.
        """
        if len(routes) != len(self):
            raise ValueError(f"{len(routes)} solutions for {len(self)} instances")
        costs = []
        for index, solution in enumerate(routes):
            self._check_ids(solution)
            length = self._length(index, solution)
            self._check(index, solution)
            costs.append(self._objective(index, solution, length))
        return np.array(costs, dtype=np.float64)

    def length(self, routes: Sequence[Routes]) -> Float64[ndarray, " batch"]:
        """Returns the length travelled in the instance's metric, unchecked."""
        lengths = [self._length(i, solution) for i, solution in enumerate(routes)]
        return np.array(lengths, dtype=np.float64)

    def _length(self, index: int, solution: Routes) -> float:
        legs: list[float] = []
        for route in solution:
            nodes = np.array(self._closed(route), dtype=np.int64)
            legs.extend(self.legs(index, nodes[:-1], nodes[1:]).tolist())
        return math.fsum(legs)

    def legs(
        self, index: int, a: Int[ndarray, "*leg"], b: Int[ndarray, "*leg"]
    ) -> Float64[ndarray, "*leg"]:
        """Returns the distances from nodes `a` to nodes `b` of one instance."""
        if self.matrix is not None:
            return np.asarray(self.matrix[a, b])
        points = self.coords[index]
        return metrics.distance(self.metric, points[a], points[b])

    def _check_ids(self, solution: Routes) -> None:
        nodes = self.coords.shape[1]
        for route in solution:
            for node in route:
                if isinstance(node, bool) or not isinstance(node, int | np.integer):
                    raise Infeasible(f"node {node!r} is not a whole number")
                if not 0 <= node < nodes:
                    raise Infeasible(f"node {node} is not one of 0..{nodes - 1}")

    def _check_visits(
        self, solution: Routes, nodes: range, all_required: bool = True
    ) -> None:
        """Raises unless each of the nodes is visited once, and no other."""
        seen: set[int] = set()
        for number, route in enumerate(solution):
            for node in route:
                if node in seen:
                    raise Infeasible(f"node {node} is visited twice")
                if node not in nodes:
                    raise Infeasible(f"route {number} contains the depot, node {node}")
                seen.add(int(node))
        missing = [node for node in nodes if node not in seen]
        if missing and all_required:
            shown = ", ".join(map(str, missing[:5])) + ", ..." * (len(missing) > 5)
            raise Infeasible(f"{len(missing)} nodes are not visited: {shown}")

    def _set(self, **values: Any) -> None:
        """Fills the frozen fields of a new batch and validates the common ones."""
        if values.get("matrix") is not None:
            values["matrix"] = as_array("matrix", values["matrix"])
        if values.get("numbers") is not None:
            for number in values["numbers"]:
                if number != int(number):
                    raise ValueError(f"node number {number} is not whole")
            values["numbers"] = tuple(int(i) for i in values["numbers"])
        unknown = values.keys() - {field.name for field in fields(self)}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown.pop()!r}")
        known = {field.name: field.default for field in fields(Problem)} | values
        for name, value in known.items():
            object.__setattr__(self, name, value)
        self._check_common()

    def _check_common(self) -> None:
        nodes = self.coords.shape[1]
        if self.metric == metrics.EXPLICIT:
            if self.matrix is None:
                raise ValueError("metric EXPLICIT needs a matrix of distances")
            self._check_matrix(self.matrix)
        elif not isinstance(self.metric, str) or self.metric not in metrics.METRICS:
            known = ", ".join([*metrics.METRICS, metrics.EXPLICIT])
            raise ValueError(f"unknown metric {self.metric!r}: expected one of {known}")
        elif self.matrix is not None:
            raise ValueError(f"a matrix needs metric EXPLICIT, got {self.metric!r}")
        if self.numbers is not None:
            if len(self.numbers) != nodes:
                raise ValueError(f"{len(self.numbers)} numbers for {nodes} nodes")
            if len(set(self.numbers)) != nodes:
                twice = next(i for i in self.numbers if self.numbers.count(i) > 1)
                raise ValueError(f"node number {twice} is given twice")

    def _check_matrix(self, matrix: ndarray) -> None:
        nodes = self.coords.shape[1]
        if len(self) != 1:
            raise ValueError(f"a matrix belongs to one instance, got {len(self)}")
        if matrix.shape != (nodes, nodes):
            raise ValueError(f"matrix must be {nodes} x {nodes}, got {matrix.shape}")
        if (matrix < 0).any():
            i, j = map(int, np.argwhere(matrix < 0)[0])
            raise ValueError(f"matrix[{i}, {j}] is negative: {matrix[i, j]}")
        if (matrix != matrix.T).any():
            i, j = map(int, np.argwhere(matrix != matrix.T)[0])
            raise ValueError(
                f"matrix must be symmetric, but [{i}, {j}] is {matrix[i, j]} "
                f"and [{j}, {i}] is {matrix[j, i]}"
            )

    def frame(
        self,
    ) -> tuple[Float32[ndarray, "batch node 2"], Float64[ndarray, " batch"]]:
        """Maps each instance to the unit square with one factor for both axes.

        Returns:
            Coordinates in the unit square, and the length of the square's side in
            the instance's units (one where all points coincide).
        """
        points = metrics.plane(self.metric, self.coords)
        lowest = points.min(axis=1, keepdims=True)
        points = points - lowest
        side = points.max(axis=(1, 2))
        side = np.where(side > 0, side, 1.0)
        return (points / side[:, None, None]).astype(np.float32), side


def check_decisions(decisions: Tensor, batch: int, steps: int, step: int = 0) -> None:
    """Raises unless decisions of that many steps fit the batch and contain `step`."""
    if decisions.shape != (batch, steps):
        raise ValueError(
            f"decisions of {batch} instances must have shape {(batch, steps)}, "
            f"got {tuple(decisions.shape)}"
        )
    if not 0 <= step <= steps:
        raise ValueError(f"step must be in 0..{steps}, got {step}")


def batched(array: ndarray, dims: int) -> ndarray:
    """Adds the leading batch axis to the arrays of a single instance."""
    return array[None] if array.ndim == dims - 1 else array


def per_node(
    name: str, value: Any, points: Float64[ndarray, "batch node 2"]
) -> Float64[ndarray, "batch node"]:
    """Converts values of the nodes of one instance or of a batch.

    Raises:
        ValueError: There is not one for each node.
    """
    array = batched(as_array(name, value), 2)
    if array.shape != points.shape[:2]:
        raise ValueError(
            f"{name} must have shape {points.shape[:2]} as the nodes have, "
            f"got {array.shape}"
        )
    return array


def per_instance(
    name: str, value: Any, points: Float64[ndarray, "batch node 2"]
) -> Float64[ndarray, " batch"]:
    """Converts a value of each instance; one alone is for all of them.

    Raises:
        ValueError: There is not one for each instance.
    """
    array, batch = batched(as_array(name, value), 1), len(points)
    if array.shape == (1,):
        return np.broadcast_to(array, (batch,))
    if array.shape != (batch,):
        raise ValueError(f"{name} has shape {array.shape} for {batch} instances")
    return array


def generators(seed: int, first: int, batch: int) -> list[np.random.Generator]:
    """Returns one generator per instance, a function of `(seed, index)` only."""
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if seed < 0 or first < 0:
        raise ValueError(f"seed and first must not be negative: {seed}, {first}")
    return [np.random.default_rng([seed, first + i]) for i in range(batch)]


def uniform_points(rngs: Sequence[np.random.Generator], nodes: int) -> ndarray:
    """Draws points of the unit square, exactly representable in float32."""
    points = [rng.random((nodes, 2), dtype=np.float32) for rng in rngs]
    return np.stack(points).astype(np.float64)
