"""What a plan by savings says about the routes of a CVRP.

Clarke and Wright (Scheduling of vehicles from a central depot to a number of delivery
points, 1964) begin with a route for each customer, and join routes end to end where
that saves most, as long as the vehicle can carry it. Here the vehicle that is under way
has a route of its own, which begins where it stands. Local moves then make the plan
shorter (`routes.py`). A network learns where the plan is wrong; by itself it does not
find one soon.
"""

import ctypes
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor

from renco.compiled import call, load
from renco.features import View
from renco.routes import Routes
from renco.squeezed import offset, squeezed

TOLD = 13
"""Features that a plan gives to each node."""
NEAREST = 12
"""Customers to whose routes that of a customer may be joined; the vehicle's to all."""
SHAPE, ASYMMETRY = 1.3, 0.2
"""How much the length of a joint counts in its saving (Yellow, 1970), and how much a
difference between the ways home (Paessens, The savings algorithm for the vehicle
routing problem, 1988)."""
SLACK = 1e-5
"""Of Q: rounding of a sum must not close an exact fit."""
DEMAND, ROOM = 2, 3
"""Where the demand of each node and the room of the vehicle are in `View.s`."""


@cache
def compiled() -> ctypes.CDLL | None:
    """Returns `savings.c`; None where it cannot be had."""
    told = [f"-DTOLD={TOLD}", f"-DNEAREST={NEAREST}", f"-DSLACK={SLACK}f"]
    told += [f"-DSHAPE={SHAPE}f", f"-DASYMMETRY={ASYMMETRY}f"]
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
    points = np.concatenate([xy[1:-1], xy[:1], xy[-1:]])
    apart = _apart(points, points)
    home = apart[-1, :-1]
    load = np.append(demand, np.float32(1) - np.float32(room))
    routes = _planned(apart, load)
    own, *others = routes
    way = [open_nodes, *own]
    loads = [load[way].sum(), *(load[other].sum() for other in others)]
    number = {node: i for i, route in enumerate(routes) for node in route}
    told = np.zeros((len(xy), TOLD), np.float32)
    told[:, 0] = 1 - loads[0]
    told[:, 1] = np.log1p(len(others)) / 2
    legs = np.append(apart[way[:-1], way[1:]], home[way[-1]])
    for node in range(open_nodes):
        route = routes[number[node]]
        mine = route is own
        stops = [open_nodes if mine else -1, *route, -1]
        place = stops.index(node)
        beside = sorted(
            (
                (apart[node, other], points[other])
                for other in stops[place - 1 : place + 2 : 2]
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
            np.log(1 + place) / 2 if mine else 0,
            loads[number[node]],
            np.log(len(route)) / 2,
            0 if mine else squeezed((out + back - legs).min()),
            squeezed(spared),
            squeezed(home[-1] + home[node] - apart[node, open_nodes]),
        )
        told[node + 1, 9:11] = offset(beside[0][1] - points[node])
        told[node + 1, 11:13] = offset(beside[1][1] - points[node])
    return told


def _planned(
    apart: Float32[ndarray, "node node"], load: Float32[ndarray, " stop"]
) -> list[list[int]]:
    """Returns the customers of each route, in order; those of the vehicle first.

    Args:
        apart: Distances between the customers, the vehicle and the depot.
        load: Of the customers and the vehicle.
    """
    vehicle = len(load) - 1
    away = apart[:vehicle, :vehicle].copy()
    np.fill_diagonal(away, np.inf)
    near = away.argsort(axis=1, kind="stable")[:, : min(NEAREST, vehicle - 1)].tolist()
    far = (-apart[-1, :vehicle]).argsort(kind="stable").tolist()
    full = np.float32(1 + SLACK)
    tour = _in_a_row(_joined(apart, load, near, full), far)
    legs, loads = apart.tolist(), [*load.tolist(), 0.0]
    routes = Routes(tour, legs, loads, near, float(full))
    routes.improve(far)
    found: list[list[int]] = [[]]
    for node in routes.tour[1:-1]:
        if node > vehicle:
            found.append([])
        else:
            found[-1].append(node)
    return [found[0], *(route for route in found[1:] if route)]


def _joined(
    apart: Float32[ndarray, "node node"],
    load: Float32[ndarray, " stop"],
    near: list[list[int]],
    full: np.float32,
) -> list[list[int]]:
    """Returns the nodes beside each node on its route: Clarke and Wright."""
    vehicle, home = len(load) - 1, apart[-1]
    pairs = [(a, b) for a in range(vehicle) for b in near[a]]
    pairs += [(vehicle, b) for b in range(vehicle)]
    a, b = np.array(pairs).T
    saving = home[a] + home[b] - np.float32(SHAPE) * apart[a, b]
    saving = saving + np.float32(ASYMMETRY) * abs(home[a] - home[b])
    order = (-saving).argsort(kind="stable")
    links: list[list[int]] = [[] for _ in load]
    ends = np.array([2] * vehicle + [1])
    route, load = np.arange(len(load)), load.copy()
    for i in order[: int((saving > 0).sum())].tolist():
        first, second = a[i], b[i]
        kept, gone = route[first], route[second]
        over = load[kept] + load[gone] > full
        if kept == gone or not ends[first] or not ends[second] or over:
            continue
        for here, there in ((first, second), (second, first)):
            links[here].append(int(there))
            ends[here] -= 1
        load[kept] += load[gone]
        route[route == gone] = kept
    return links


def _in_a_row(links: list[list[int]], far: list[int]) -> list[int]:
    """Returns all routes in a row: the vehicle's, then from their far ends."""
    vehicle = len(links) - 1
    tour, known = [], {vehicle}
    for first in (vehicle, *far):
        if first != vehicle and (first in known or len(links[first]) > 1):
            continue
        after = [first]
        while after:
            tour.append(after[0])
            known.add(after[0])
            after = [node for node in links[after[0]] if node not in known]
        tour.append(vehicle + 1)
    return tour


def _apart(
    a: Float32[ndarray, "one 2"], b: Float32[ndarray, "other 2"]
) -> Float32[ndarray, "one other"]:
    x, y = (a[:, None, i] - b[None, :, i] for i in (0, 1))
    return np.sqrt(x * x + y * y)
