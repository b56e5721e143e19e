"""Sets in a few bytes per label: the seed and the tours, nothing that can be redrawn.

Good tours mostly go to near neighbours, so each step is written as the rank of the
next node among the unvisited ones, by distance from where the vehicle is: mostly 0, 1
or 2, which compresses to a fifth of what the permutation itself would need.

A packed file is a line of JSON (the manifest, and hashes of instances and decisions)
followed by LZMA-compressed ranks. Reading it runs no code, and a result that differs
from the hashes is refused.
"""

import hashlib
import json
import lzma
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int
from numpy import ndarray

from renco import metrics
from renco.data import BLOCK, Trajectories, hash_instances, write_set
from renco.files import write_atomic
from renco.manifest import Manifest
from renco.problems import OP, Problem
from renco.storage import DamagedData

LARGEST_HEADER = 1 << 20
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 0, "pb": 0}]
ROWS = 512
"""Instances that are walked through together: their distances fit the cache."""

File = str | os.PathLike[str]
Nodes = Int[ndarray, "batch step"]


def pack(data: Trajectories, file: File) -> None:
    """Writes a set that was drawn from a seed as one small file.

    A set that is still being made is packed as far as it goes without a gap.

    Raises:
        ValueError: The instances cannot be drawn again, or have no labels.
    """
    manifest = data.manifest
    if manifest.seed is None or manifest.expert is None:
        raise ValueError("only labelled sets that were drawn from a seed can be packed")
    index = data.records(slice(None))["index"]
    count = int((index == manifest.first + np.arange(len(index))).cumprod().sum())
    digests = hashlib.sha256(), hashlib.sha256()
    streams: list[bytes] = []
    for start in range(0, count, BLOCK):
        rows = data.records(slice(start, min(start + BLOCK, count)))
        hash_instances(digests[0], rows, manifest)
        digests[1].update(rows["decisions"].tobytes())
        streams.append(_encode_rows(manifest, rows))
    mean = math.fsum(data.costs[:count]) / count
    header = {
        "manifest": asdict(replace(manifest, count=count, mean_cost=mean, shards={})),
        "instances": digests[0].hexdigest(),
        "decisions": digests[1].hexdigest(),
    }
    content = lzma.compress(b"".join(streams), format=lzma.FORMAT_XZ, filters=FILTERS)
    write_atomic(Path(file), json.dumps(header).encode() + b"\n" + content)


def unpack(file: File, folder: File) -> Trajectories:
    """Restores a packed set in a folder, byte by byte as it was.

    Raises:
        DamagedData: The file is altered, or this version of the program draws other
            instances from the seed.
        FileExistsError: The folder is there already.
    """
    manifest, pieces = _read(Path(file))
    target = Path(folder)
    target.mkdir(parents=True)
    write_set(target, manifest, pieces)
    return Trajectories(target)


def open_packed(file: File) -> Trajectories:
    """Restores a packed set in memory.

    Raises:
        DamagedData: The file is altered, or this version of the program draws other
            instances from the seed.
    """
    manifest, pieces = _read(Path(file))
    return Trajectories.in_memory(manifest, np.concatenate(list(pieces)))


def _read(file: Path) -> tuple[Manifest, Iterator[ndarray]]:
    """Reads the header; the records come block by block, checked at the end."""
    with file.open("rb") as stream:
        line = stream.readline(LARGEST_HEADER)
        content = stream.read()
    try:
        header = json.loads(line)
        manifest = Manifest(**header["manifest"])
        hashes = header["instances"], header["decisions"]
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedData(f"{file}: not a packed set: {error}") from None
    return manifest, _decode(file, manifest, hashes, content)


def _decode(
    file: Path, manifest: Manifest, hashes: tuple[str, str], content: bytes
) -> Iterator[ndarray]:
    width = _row_bytes(manifest)
    size = width * manifest.count
    try:
        decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        # No more than expected: a small file must not fill the memory.
        stream = decompressor.decompress(content, max_length=size + 1)
    except lzma.LZMAError as error:
        raise DamagedData(f"{file}: {error}") from None
    if len(stream) != size or not decompressor.eof:
        raise DamagedData(f"{file}: {len(stream)} bytes of ranks, expected {size}")
    digests = hashlib.sha256(), hashlib.sha256()
    for start in range(0, manifest.count, BLOCK):
        count = min(BLOCK, manifest.count - start)
        part = stream[start * size // manifest.count :][
            : count * size // manifest.count
        ]
        index = manifest.first + start + np.arange(count)
        instances = manifest.draw(int(index[0]), count)
        rows = manifest.rows(index, instances)
        hash_instances(digests[0], rows, manifest)
        _decode_rows(manifest, instances, rows, part)
        digests[1].update(rows["decisions"].tobytes())
        yield rows
    for digest, expected, name in zip(
        digests, hashes, ("instances", "decisions"), strict=True
    ):
        if digest.hexdigest() != expected:
            raise DamagedData(f"{file}: the {name} are not those that were packed")


def _row_bytes(manifest: Manifest) -> int:
    """Returns the bytes of one instance before compression."""
    steps = manifest.layout["decisions"].shape[0]
    planes = 1 + (manifest.n > 256) + (manifest.problem == "cvrp")
    return steps * planes + 2 * (manifest.problem == "op")


def _encode_rows(manifest: Manifest, rows: ndarray) -> bytes:
    """Returns ranks as planes of bytes, then CVRP's flags or OP's lengths."""
    nodes = rows["decisions"].astype(np.int64)
    via = np.zeros(nodes.shape, dtype=bool)
    length = np.full(len(nodes), nodes.shape[1])
    if manifest.problem == "cvrp":
        nodes, via = nodes // 2, nodes % 2 == 1
    if manifest.problem == "op":
        length = (nodes != 0).sum(1)
    coords = rows["coords"].astype(np.float64)
    ranks = _in_blocks(ranks_of, coords, nodes, via, length)
    planes = [ranks & 255, ranks >> 8] if manifest.n > 256 else [ranks]
    content = b"".join(plane.astype(np.uint8).tobytes() for plane in planes)
    if manifest.problem == "cvrp":
        content += via.astype(np.uint8).tobytes()
    if manifest.problem == "op":
        content += length.astype("<u2").tobytes()
    return content


def _decode_rows(
    manifest: Manifest, instances: Problem, rows: ndarray, content: bytes
) -> None:
    """Fills in the decisions and the costs of records."""
    shape = rows["decisions"].shape
    planes = np.frombuffer(
        content,
        np.uint8,
        shape[0] * shape[1] * (1 + (manifest.n > 256) + (manifest.problem == "cvrp")),
    ).reshape(-1, *shape)
    ranks = planes[0].astype(np.int64)
    if manifest.n > 256:
        ranks += 256 * planes[1].astype(np.int64)
    via = np.zeros(shape, dtype=bool)
    length = np.full(shape[0], shape[1])
    if manifest.problem == "cvrp":
        via = planes[-1] == 1
    if manifest.problem == "op":
        length = np.frombuffer(content, "<u2", offset=planes.size).astype(np.int64)
    nodes = _in_blocks(nodes_of, instances.coords, ranks, via, length)
    rows["decisions"] = nodes * 2 + via if manifest.problem == "cvrp" else nodes
    rows["cost"] = costs(instances, nodes, via)


def _in_blocks(
    code: Callable[[ndarray, ndarray, ndarray, ndarray], ndarray], *arrays: ndarray
) -> ndarray:
    starts = range(0, len(arrays[0]), ROWS)
    return np.concatenate([code(*(a[s : s + ROWS] for a in arrays)) for s in starts])


def ranks_of(
    coords: Float64[ndarray, "batch node 2"],
    nodes: Nodes,
    via: Bool[ndarray, "batch step"],
    length: Int[ndarray, " batch"],
) -> Nodes:
    """Returns the rank of each next node among the unvisited, nearest first.

    Args:
        coords: Coordinates; node 0 is where everything starts.
        nodes: The nodes in order of visit.
        via: Whether a node is reached via node 0.
        length: Steps of each row; the rank of later ones is 0.
    """
    ranks = np.zeros_like(nodes)
    ids = np.arange(coords.shape[1])

    def choose(step: int, distance: ndarray) -> ndarray:
        node = nodes[:, step]
        chosen = np.take_along_axis(distance, node[:, None], axis=1)
        before = distance < chosen
        before |= (distance == chosen) & (ids < node[:, None])
        ranks[:, step] = before.sum(1) * (step < length)
        return node

    _walk(coords, via, choose)
    return ranks


def nodes_of(
    coords: Float64[ndarray, "batch node 2"],
    ranks: Nodes,
    via: Bool[ndarray, "batch step"],
    length: Int[ndarray, " batch"],
) -> Nodes:
    """Returns the nodes in order of visit: the inverse of `ranks_of`."""
    nodes = np.zeros_like(ranks)

    def choose(step: int, distance: ndarray) -> ndarray:
        rank = ranks[:, step]
        node = distance.argmin(1)
        rows = np.flatnonzero(rank)
        passed = 0
        while len(rows):
            passed += 1
            distance[rows, node[rows]] = np.inf
            node[rows] = distance[rows].argmin(1)
            rows = rows[rank[rows] > passed]
        nodes[:, step] = node * (step < length)
        return nodes[:, step]

    _walk(coords, via, choose)
    return nodes


def _walk(
    coords: ndarray, via: ndarray, choose: Callable[[int, ndarray], ndarray]
) -> None:
    """Walks from node 0 to the nodes that `choose` picks by the distances.

    Distances are squares. Drawn coordinates are multiples of 2**-24, so that these
    are exact: the ranks are the same on every machine.
    """
    batch = np.arange(len(coords))
    x, y = coords[..., 0], coords[..., 1]
    open_x, open_y = x.copy(), y.copy()
    open_x[:, 0] = np.inf
    here = np.zeros(len(coords), dtype=np.int64)
    distance, other = np.empty_like(open_x), np.empty_like(open_x)
    for step in range(via.shape[1]):
        here = here * ~via[:, step]
        np.subtract(open_x, x[batch, here][:, None], out=distance)
        np.subtract(open_y, y[batch, here][:, None], out=other)
        distance *= distance
        other *= other
        distance += other
        here = choose(step, distance)
        open_x[batch, here] = np.inf


def costs(
    instances: Problem, nodes: Nodes, via: Bool[ndarray, "batch step"]
) -> Float64[ndarray, " batch"]:
    """Returns what `Problem.cost` does for solutions that need no check, faster."""
    batch = np.arange(len(nodes))[:, None]
    if isinstance(instances, OP):
        return -instances.prizes[batch, nodes].sum(1)
    depot = np.zeros((len(nodes), 1), dtype=np.int64)
    start = np.concatenate([depot, nodes], axis=1)
    end = np.concatenate([nodes, depot], axis=1)
    detour = np.concatenate([via, depot == 1], axis=1)
    points = instances.coords[batch, start], instances.coords[batch, end]
    home = instances.coords[:, :1]
    first = metrics.distance(
        instances.metric, points[0], np.where(detour[..., None], home, points[1])
    )
    second = detour * metrics.distance(instances.metric, home, points[1])
    legs = np.concatenate([first, second], axis=1)
    return np.array([math.fsum(row) for row in legs.tolist()])
