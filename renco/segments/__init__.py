"""Cutting sub-problems out of solutions and pasting them back, per problem."""

from typing import Any

import torch

from renco.problems import Problem, Routes
from renco.segments.base import Cut, CutSettings, Segments
from renco.segments.cvrp import CVRPSegments
from renco.segments.op import OPSegments
from renco.segments.tsp import TSPSegments

SEGMENTS: dict[str, type[Segments[Any]]] = {
    "tsp": TSPSegments,
    "cvrp": CVRPSegments,
    "op": OPSegments,
}

__all__ = ["SEGMENTS", "Cut", "CutSettings", "Segments", "segments_of"]


def segments_of(
    problem: Problem, routes: list[Routes], device: torch.device
) -> Segments[Any]:
    """Returns what cuts and pastes the given solutions of a problem."""
    return SEGMENTS[problem.name](problem, routes, device)
