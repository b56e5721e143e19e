"""What a spanning tree says about the shortest path through the open nodes.

A path is a spanning tree in which every open node has two edges. The cheapest tree has
others, but a price on each node, paid at its end of every edge, makes the tree more
like a path: dearer where there are too many edges, cheaper where there are too few.
Held and Karp (The traveling-salesman problem and minimum spanning trees, part II, 1971)
find such prices step by step. What an edge then costs beyond the tree's own is one of
the best measures of whether it belongs to the shortest path (Helsgaun, An effective
implementation of the Lin-Kernighan traveling salesman heuristic, 2000). A network can
learn to use such costs, but hardly to find them.

The base encoder begins without prices, at every state anew. The recurrent encoder goes
on from those of the state before, in a fifth of the steps: prices are realigned with
the embeddings.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from renco.compiled import call, load

TOLD = 12
"""Features that a tree gives to each node."""
FIRST = tuple(0.2 * 0.96**i for i in range(100))
"""Sizes of the steps from no prices at all, in units of `View.xy`."""
NEXT = tuple(0.2 * 0.86**i for i in range(20))
"""Sizes of the steps from the prices of the state before."""


@cache
def compiled() -> ctypes.CDLL | None:
    """Returns `trees.c`; None where it cannot be had."""
    return load("trees", "-fopenmp", "-ffp-contract=off", f"-DTOLD={TOLD}")


def tree_features(
    xy: Float[Tensor, "batch node 2"], price: Float[Tensor, "batch node"] | None
) -> tuple[Float[Tensor, "batch node tree"], Float[Tensor, "batch node"]]:
    """Returns what the tree says about each node, and the price of each node.

    Of each open node: its price; what the edges to it from the current node and to the
    destination cost beyond the cheapest ones; the same from the current node if another
    edge of the tree could be left out for it; edges beyond two; how far down the tree
    it is and how many nodes are below; how far off the way from first to last; and
    where the next nodes of the tree lie, up and down. The others have zeros.

    Args:
        xy: Coordinates in units of the typical distance between neighbours.
        price: Those of the state before; None to begin with none.
    """
    steps = torch.tensor(FIRST if price is None else NEXT)
    if (library := compiled()) is None:
        start = torch.zeros_like(xy[..., 0]) if price is None else price.detach()
        return _by_pytorch(xy.detach(), start, steps.tolist())
    # There is nothing to gain from a GPU: one edge comes after the other.
    here = xy.detach().to("cpu", torch.float32).contiguous()
    batch, n, _ = here.shape
    found = torch.zeros(batch, n)
    if price is not None:
        found.copy_(price.detach())
    told = torch.zeros(batch, n, TOLD)
    call(library.trees, here, steps, len(steps), batch, n, found, told)
    return told.to(xy.device), found.to(xy.device)


class Tree(NamedTuple):
    """A spanning tree of the open nodes of each state.

    Attributes:
        order: The nodes, each after the one above it.
        parent: The node above each node; the root's own is the root.
        end: The node that the destination is tied to.
    """

    order: Int[Tensor, "batch open"]
    parent: Int[Tensor, "batch open"]
    end: Int[Tensor, " batch"]

    @property
    def root(self) -> Int[Tensor, " batch"]:
        """The node that the current node is tied to."""
        return self.order[:, 0]

    def degree(self) -> Int[Tensor, "batch open"]:
        """Returns the number of edges at each node, ties included."""
        one = torch.ones_like(self.order)
        degree = one.scatter_add(1, self.parent, one)  # one up, and one for each below
        degree.scatter_add_(1, self.root[:, None], -one)  # that above itself
        return degree.scatter_add_(1, self.end[:, None], one)


def _by_pytorch(
    xy: Float[Tensor, "batch node 2"],
    price: Float[Tensor, "batch node"],
    steps: list[float],
) -> tuple[Float[Tensor, "batch node tree"], Float[Tensor, "batch node"]]:
    """Returns the same as `trees.c`, all states of a batch side by side."""
    told = xy.new_zeros(*xy.shape[:2], TOLD)
    if xy.shape[1] < 3:
        return told, price
    inner, found = xy[:, 1:-1], price[:, 1:-1]
    first, last = (_apart(xy[:, [end]], inner)[:, 0] for end in (0, -1))
    apart = _apart(inner, inner)
    for step in steps:
        degree = _grown(apart, first, last, found).degree()
        found = found + step * (degree - 2)
    tree = _grown(apart, first, last, found)
    told[:, 1:-1] = _said(tree, inner, apart, first, last, found)
    price = price.clone()
    price[:, 1:-1] = found
    return told, price


def _apart(
    a: Float[Tensor, "batch one 2"], b: Float[Tensor, "batch other 2"]
) -> Float[Tensor, "batch one other"]:
    x, y = (a[:, :, None, i] - b[:, None, :, i] for i in (0, 1))
    return (x.square() + y.square()).sqrt()


def _grown(
    apart: Float[Tensor, "batch open open"],
    first: Float[Tensor, "batch open"],
    last: Float[Tensor, "batch open"],
    price: Float[Tensor, "batch open"],
) -> Tree:
    """Returns the cheapest tree at given prices: Prim's algorithm."""
    row = torch.arange(len(price), device=price.device)
    at = (first + price).argmin(1)
    key, done = torch.full_like(price, torch.inf), torch.zeros_like(price)
    done[row, at] = torch.inf
    above = at[:, None].expand_as(price)
    order = [at]
    for _ in range(price.shape[1] - 1):
        edge = apart[row, at] + price + price[row, at, None]
        # Those that are in already keep what they have.
        better = (edge < key) & (done == 0)
        key = torch.where(better, edge, key)
        above = torch.where(better, at[:, None], above)
        at = (key + done).argmin(1)
        done[row, at] = torch.inf
        order.append(at)
    return Tree(torch.stack(order, 1), above, (last + price).argmin(1))


def _said(
    tree: Tree,
    xy: Float[Tensor, "batch open 2"],
    apart: Float[Tensor, "batch open open"],
    first: Float[Tensor, "batch open"],
    last: Float[Tensor, "batch open"],
    price: Float[Tensor, "batch open"],
) -> Float[Tensor, "batch open tree"]:
    """Returns what a tree says about each open node."""
    row = torch.arange(len(price), device=price.device)
    root, parent, end = tree.root, tree.parent, tree.end
    edge = apart.gather(2, parent[..., None])[..., 0] + price
    edge = edge + price.gather(1, parent)
    depth, size = torch.zeros_like(parent), torch.ones_like(parent)
    worst, heir = torch.full_like(price, -torch.inf), torch.full_like(parent, -1)
    for at in tree.order[:, 1:].unbind(1):
        up = parent[row, at]
        depth[row, at] = depth[row, up] + 1
        worst[row, at] = torch.maximum(worst[row, up], edge[row, at])
    for at in tree.order[:, 1:].flip(1).unbind(1):
        up = parent[row, at]
        size[row, up] += size[row, at]
        known = heir[row, up]
        larger = (known < 0) | (size[row, at] >= size[row, known])
        heir[row, up] = torch.where(larger, at, known)
    off, at = torch.ones_like(parent), end
    for _ in range(price.shape[1]):
        off[row, at] = 0
        at = parent[row, at]
    for at in tree.order.unbind(1):
        off[row, at] = torch.where(off[row, at] > 0, off[row, parent[row, at]] + 1, 0)
    low, low_end = (first + price)[row, root], (last + price)[row, end]
    from_here, cut = first + price, torch.maximum(low[:, None], worst)
    leaf = heir < 0
    numbers = [
        _squeezed(price),
        _squeezed(from_here - low[:, None]),
        _squeezed(last + price - low_end[:, None]),
        _squeezed(from_here - cut),
        tree.degree() - 2,
        depth.log1p() / 2,
        size.log() / 2,
        off.log1p(),
    ]
    heir = torch.where(leaf, torch.arange(heir.shape[1], device=heir.device), heir)
    ways = [_offset(xy, xy[row[:, None], to]) for to in (parent, heir)]
    return torch.cat([torch.stack(numbers, -1), *ways], dim=-1)


def _squeezed(x: Float[Tensor, "batch open"]) -> Float[Tensor, "batch open"]:
    return x.abs().log1p().copysign(x)


def _offset(
    a: Float[Tensor, "batch open 2"], b: Float[Tensor, "batch open 2"]
) -> Float[Tensor, "batch open 2"]:
    """Returns offsets with their direction, their length squeezed."""
    way = b - a
    length = torch.linalg.vector_norm(way, dim=-1, keepdim=True)
    return way * (length.log1p() / length.clamp_min(1e-6))
