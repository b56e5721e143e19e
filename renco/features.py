"""What the networks are told about each node of a state, beside `State.features`."""

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from renco.compiled import call, load

NEAREST = 3
"""Open nodes next to each node whose distances are told."""
FAR = 20.0
"""Largest distance that is told, in units of `View.xy`."""
SCALES = 4
"""Sizes of the crowds around each node that are told of."""
WIDEST = 6.0
"""Radius of the largest of them, in units of `View.xy`; the next has half of it."""
NO_CROWD = 0.1
"""Nodes that are fewer have no centre to speak of."""


def neighbor_count(amounts: tuple[int, ...]) -> int:
    """Returns how many features `neighbor_features` has."""
    return NEAREST + 4 + (6 + 3 * len(amounts)) * SCALES


class View(NamedTuple):
    """A state as the networks see it.

    Attributes:
        s: Features of each node.
        xy: Coordinates in units of the typical distance between neighbours.
        unit: That distance, in the units of `s`.
        scale: The same in the units of the state.
        n: Number of nodes that count.
        mask: Which nodes count; None for all.
    """

    s: Float[Tensor, "batch node feature"]
    xy: Float[Tensor, "batch node 2"]
    unit: Float[Tensor, "#batch 1 1"]
    scale: Float[Tensor, "#batch 1 1"]
    n: Float[Tensor, "#batch 1 1"]
    mask: Bool[Tensor, "batch 1 1 node"] | None


def relative_features(
    seen: View, lengths: tuple[int, ...] = ()
) -> Float[Tensor, "batch node relative"]:
    """Returns offsets and distances to the first and last node, log n, and slack.

    Offsets keep their direction but grow logarithmically: near nodes are told apart
    and far ones stay bounded. Where a feature is a length that may be used up, its
    slack is what a detour via each node leaves of it.
    """
    xy = seen.xy
    ends = torch.stack([xy[:, 0], xy[:, -1]], dim=1)
    offsets = xy[:, :, None] - ends[:, None]
    length = torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)
    close = torch.log1p(length)
    offsets = offsets * (close / length.clamp_min(1e-6))
    size = (seen.n / 50).log().expand(*xy.shape[:2], 1)
    found = [offsets.flatten(2), close.flatten(2), size]
    for feature in lengths:
        left = seen.s[..., feature, None] / seen.unit - length.sum(dim=2)
        found.append(left.sign() * left.abs().log1p())
    return torch.cat(found, dim=-1)


def neighbor_features(
    seen: View, amounts: tuple[int, ...] = ()
) -> Float[Tensor, "batch node neighbor"]:
    """Returns what the open nodes around each node say about when to visit it.

    Distances to the nearest ones; how many are nearer to it than the first and than the
    last node, and nearer to those than it is; and the crowds around it, small and
    large, also of what nodes have an amount of. A network can learn to compare
    distances, but not soon.
    """
    plain = seen.xy.device.type == "cpu" and seen.xy.dtype == torch.float32
    if plain and (library := compiled()) is not None:
        return _by_c(library, seen, amounts)
    squared = _squared_distances(seen.xy, seen.xy[:, 1:-1])
    squared.diagonal(-1, 1, 2).fill_(torch.inf)  # no node is its own neighbour
    if seen.mask is not None:
        squared.masked_fill_(~seen.mask[:, 0, :, 1:-1], torch.inf)
    ends = _squared_distances(seen.xy, seen.xy[:, [0, -1]])
    ranks = [(squared < ends[..., i, None]).sum(-1) for i in (0, 1)]
    ranks += [(squared[:, -i, None] < ends[..., i, None]).sum(-1) for i in (0, 1)]
    count = min(NEAREST, squared.shape[-1])
    near = squared.topk(count, largest=False).values.sqrt().clamp_max(FAR)
    near = F.pad(near, (0, NEAREST - count), value=FAR)
    # Ranks reach log n, distances about 1: halved, they are alike.
    counts = torch.stack(ranks, -1).log1p() / 2
    weights = _weights(squared)
    found = [near.log1p(), counts, *_crowds(seen.xy, weights)]
    for feature in amounts:
        found += _amounts(seen.xy, seen.s[:, 1:-1, feature], weights)
    return torch.cat(found, dim=-1)


@cache
def compiled() -> ctypes.CDLL | None:
    """Returns `neighbors.c`; None where it cannot be had.

    Sums may be reordered there, but equal distances stay equal (no contraction).
    """
    reorder = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
    values = {"NEAREST": NEAREST, "FAR": FAR, "SCALES": SCALES}
    values |= {"WIDEST": WIDEST, "NO_CROWD": NO_CROWD}
    told = (
        f"-D{name}={value}{'f' * isinstance(value, float)}"
        for name, value in values.items()
    )
    return load("neighbors", "-ffp-contract=off", *reorder, *told)


def _by_c(
    library: ctypes.CDLL, seen: View, amounts: tuple[int, ...]
) -> Float[Tensor, "batch node neighbor"]:
    """Returns the same by way of C."""
    batch, n, _ = seen.xy.shape
    mask = None if seen.mask is None else seen.mask.reshape(batch, n).contiguous()
    has = seen.s[..., list(amounts)].permute(2, 0, 1).contiguous()
    found = seen.xy.new_empty(batch, n, neighbor_count(amounts))
    xy = seen.xy.contiguous()
    call(library.neighbors, xy, mask, has, len(amounts), batch, n, found)
    return found


Weights = list[tuple[float, Float[Tensor, "batch node open"]]]
"""How much each open node counts in the crowd around each node, by scale."""


def _weights(squared: Float[Tensor, "batch node open"]) -> Weights:
    """Returns Gaussians of several scales; one exponential does for all of them."""
    scale, weight = WIDEST, (squared / -(WIDEST**2)).exp_()
    found = [(scale, weight)]
    while len(found) < SCALES:
        scale, weight = scale / 2, weight.square().square_()
        found.append((scale, weight))
    return found


def _crowds(xy: Float[Tensor, "batch node 2"], weights: Weights) -> Iterator[Tensor]:
    """Yields moments of the open nodes around each node, at each scale.

    How many they are, where their centre lies and how far off, and along which axis
    they are spread.
    """
    x, y = xy[:, 1:-1].unbind(-1)
    powers = torch.stack([torch.ones_like(x), x, y, x * x, y * y, x * y], dim=1)
    x, y = xy.unbind(-1)
    for scale, weight in weights:
        # Four times as fast as `weight @ powers`, whose last dimension is tiny.
        mass, sx, sy, sxx, syy, sxy = (powers @ weight.mT).unbind(1)
        # Moments around each node, from those around the origin.
        dx, dy = sx - mass * x, sy - mass * y
        spread = (sxx - 2 * x * sx) - (syy - 2 * y * sy) + mass * (x * x - y * y)
        slant = 2 * (sxy - x * sy - y * sx + mass * x * y)
        size = scale * (mass + NO_CROWD)
        centre = torch.stack([dx / size, dy / size], dim=-1)
        off = torch.linalg.vector_norm(centre, dim=-1, keepdim=True)
        axis = torch.stack([spread, slant], dim=-1) / (scale * size[..., None])
        yield torch.cat([mass.log1p()[..., None], centre, off, axis], dim=-1)


def _amounts(
    xy: Float[Tensor, "batch node 2"],
    amount: Float[Tensor, "batch open"],
    weights: Weights,
) -> Iterator[Tensor]:
    """Yields how much there is of something around each node, and where."""
    there = xy[:, 1:-1].mT * amount[:, None]
    powers = torch.cat([amount[:, None], there], dim=1)
    for scale, weight in weights:
        sums = (powers @ weight.mT).mT
        mass = sums[..., :1]
        centre = (sums[..., 1:] - mass * xy) / (scale * (mass + NO_CROWD))
        yield torch.cat([mass.log1p(), centre], dim=-1)


def _squared_distances(
    xy: Float[Tensor, "batch node 2"], others: Float[Tensor, "batch other 2"]
) -> Float[Tensor, "batch node other"]:
    """Returns squared distances; axis by axis, much faster than both at once."""
    x, y = (xy[..., i, None] - others[:, None, :, i] for i in (0, 1))
    return x.square_().add_(y.square_())


def squares(xy: Float[Tensor, "batch node 2"]) -> Float[Tensor, "token 4"]:
    """Returns x, y, x^2 + y^2 and 1, what squared distances are made of."""
    square = xy.square().sum(-1, keepdim=True)
    return torch.cat([xy, square, torch.ones_like(square)], dim=-1).flatten(0, 1)
