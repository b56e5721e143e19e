"""What a plan by savings says about the routes of a CVRP.

Clarke and Wright (Scheduling of vehicles from a central depot to a number of delivery
points, 1964) begin with a route for each customer, and join routes end to end where
that saves most, as long as the vehicle can carry it. Here the vehicle that is under way
has a route of its own, which begins where it stands. A network learns where the plan is
wrong; by itself it does not find one soon.
"""

import ctypes
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from numpy import ndarray
from torch import Tensor

from renco.compiled import call, load
from renco.features import View

TOLD = 13
"""Features that a plan gives to each node."""
NEAREST = 12
"""Customers to whose routes that of a customer may be joined; the vehicle's to all."""
SLACK = 1e-5
"""Of Q: rounding of a sum must not close an exact fit."""
DEMAND, ROOM = 2, 3
"""Where the demand of each node and the room of the vehicle are in `View.s`."""


@cache
def compiled() -> ctypes.CDLL | None:
    """Returns `savings.c`; None where it cannot be had."""
    told = (f"-DTOLD={TOLD}", f"-DNEAREST={NEAREST}", f"-DSLACK={SLACK}f")
    return load("savings", "-fopenmp", "-ffp-contract=off", *told)


def savings_features(seen: View) -> Float[Tensor, "batch node plan"]:
    """Returns what a plan for the open customers says about each node.

    Of all nodes: the room that the plan leaves on the route of the vehicle, and how
    many others it has. Of each customer: whether the vehicle is to come there, and
    after how many others; load and size of its route; the detour that it would be for
    the vehicle, if it is not to come there, and the one that it is where it is; the
    saving of going there from here; and where the nodes beside it lie, the nearer one
    first.
    """
    # There is nothing to gain from a GPU: one joint comes after the other.
    xy = seen.xy.detach().to("cpu", torch.float32).contiguous()
    demand = seen.s[..., DEMAND].detach().to("cpu", torch.float32).contiguous()
    room = seen.s[:, 0, ROOM].detach().to("cpu", torch.float32).contiguous()
    batch, n, _ = xy.shape
    told = torch.zeros(batch, n, TOLD)
    if (library := compiled()) is not None:
        call(library.savings, xy, demand, room, batch, n, told)
    elif n > 2:
        for row in range(batch):
            given = (xy[row].numpy(), demand[row, 1:-1].numpy(), room[row].item())
            told[row] = torch.from_numpy(_by_python(*given))
    return told.to(seen.xy.device)


def _by_python(
    xy: Float32[ndarray, "node 2"], demand: Float32[ndarray, " open"], room: float
) -> Float32[ndarray, "node plan"]:
    """Returns the same as `savings.c`. The vehicle is the node after the open ones."""
    open_nodes = len(xy) - 2
    points = np.concatenate([xy[1:-1], xy[:1]])
    apart, home = _apart(points, points), _apart(points, xy[-1:])[:, 0]
    load = np.append(demand, np.float32(1) - np.float32(room))
    links, route = _joined(apart, home, load)
    size = np.bincount(route[:-1], minlength=open_nodes + 1)
    own = route[-1]
    load = np.bincount(route, load, open_nodes + 1).astype(np.float32)
    way, before = [open_nodes], -1
    while after := [node for node in links[way[-1]] if node != before]:
        before = way[-1]
        way.append(after[0])
    told = np.zeros((len(xy), TOLD), np.float32)
    told[:, 0] = 1 - load[own]
    told[:, 1] = np.log1p(len(set(route[:-1].tolist()) - {own})) / 2
    legs = np.append(apart[way[:-1], way[1:]], home[way[-1]])
    for node in range(open_nodes):
        mine = route[node] == own
        beside = sorted(
            (
                (home[node], xy[-1])
                if other < 0
                else (apart[node, other], points[other])
                for other in (*links[node], -1, -1)[:2]
            ),
            key=lambda found: found[0],
        )
        out = apart[node, way]
        back = np.append(out[1:], home[node])
        spared = sum(far for far, _ in beside) - np.hypot(
            *(beside[0][1] - beside[1][1])
        )
        told[node + 1, 2:9] = (
            mine,
            np.log(1 + way.index(node)) / 2 if mine else 0,
            load[route[node]],
            np.log(size[route[node]]) / 2,
            0 if mine else _squeezed((out + back - legs).min()),
            _squeezed(spared),
            _squeezed(home[-1] + home[node] - apart[node, -1]),
        )
        told[node + 1, 9:11] = _offset(beside[0][1] - points[node])
        told[node + 1, 11:13] = _offset(beside[1][1] - points[node])
    return told


def _joined(
    apart: Float32[ndarray, "node node"],
    home: Float32[ndarray, " node"],
    load: Float32[ndarray, " node"],
) -> tuple[list[list[int]], Int[ndarray, " node"]]:
    """Returns the nodes beside each node on its route, and the number of its route."""
    vehicle = len(home) - 1
    away = apart[:-1, :-1].copy()
    np.fill_diagonal(away, np.inf)
    near = away.argsort(axis=1, kind="stable")[:, : min(NEAREST, vehicle - 1)]
    pairs = [(a, b) for a in range(vehicle) for b in near[a].tolist()]
    pairs += [(vehicle, b) for b in range(vehicle)]
    a, b = np.array(pairs).T
    saving = home[a] + home[b] - apart[a, b]
    order = (-saving).argsort(kind="stable")
    links: list[list[int]] = [[] for _ in home]
    ends = np.array([2] * vehicle + [1])
    route, load = np.arange(len(home)), load.copy()
    for i in order[: int((saving > 0).sum())].tolist():
        first, second = a[i], b[i]
        kept, gone = route[first], route[second]
        full = load[kept] + load[gone] > np.float32(1 + SLACK)
        if kept == gone or not ends[first] or not ends[second] or full:
            continue
        for here, there in ((first, second), (second, first)):
            links[here].append(int(there))
            ends[here] -= 1
        load[kept] += load[gone]
        route[route == gone] = kept
    return links, route


def _apart(
    a: Float32[ndarray, "one 2"], b: Float32[ndarray, "other 2"]
) -> Float32[ndarray, "one other"]:
    x, y = (a[:, None, i] - b[None, :, i] for i in (0, 1))
    return np.sqrt(x * x + y * y)


def _squeezed(x: np.float32) -> np.float32:
    return np.copysign(np.log1p(abs(x)), x)


def _offset(way: Float32[ndarray, " 2"]) -> Float32[ndarray, " 2"]:
    """Returns an offset with its direction, its length squeezed."""
    length = np.hypot(*way)
    return way * np.float32(np.log1p(length) / max(length, 1e-6))
