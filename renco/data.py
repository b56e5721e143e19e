"""Trajectories on disk: instances with the decisions of an expert (appendix C).

A set is a folder of `.npy` shards and a `manifest.json` that says how it was made.
A shard is an array of records, one per instance, so that a random batch touches each
row once and a shard is written in one piece. While a set is being made its records
lie in small files under `parts`; `renco.generate` joins them in the end.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.files import write_atomic
from renco.manifest import MANIFEST, Manifest, read_manifest
from renco.problems import PROBLEMS, Problem
from renco.storage import (
    DamagedData,
    array_bytes,
    file_hash,
    read_rows,
)

PARTS = "parts"
OWN = "own.npy"
"""Lies beside solutions that a policy began (`renco.dagger`)."""
SHARD_BYTES = 1 << 26
BLOCK = 4096
"""Instances that are checked, hashed or coded at a time."""
TOLERANCE = 1e-9
"""Relative difference of a stored cost that counts as rounding."""

Indices = Sequence[int] | slice | Int[ndarray, " batch"]


class Trajectories:
    """A set of instances, and an expert's solutions where it has them.

    The shards are memory-mapped: opening is instant, and a random batch reads only
    its rows.

    Attributes:
        manifest: What the set contains and how it was made.
    """

    manifest: Manifest

    def __init__(self, folder: str | os.PathLike[str], *, partial: bool = False):
        """Opens a folder.

        Args:
            folder: Where the set lies.
            partial: Also open a set that is still being made, with the instances
                that are finished by now (read into memory).

        Raises:
            FileNotFoundError: There is no set in the folder.
            DamagedData: The set is unfinished, or its files do not fit the manifest.
        """
        self.folder: Path | None = Path(folder)
        self.manifest = read_manifest(self.folder)
        if self.manifest.shards:
            self._shards = [self._open(name) for name in self.manifest.shards]
            found = sum(map(len, self._shards))
            if found != self.manifest.count:
                raise DamagedData(f"{folder}: {found} of {self.manifest.count} rows")
        elif partial:
            parts = [rows for _, rows in read_parts(self.folder, self.manifest)]
            if not parts:
                raise DamagedData(f"{folder}: no instance is finished yet")
            self._shards = [np.concatenate(parts)]
        else:
            raise DamagedData(
                f"{folder} is unfinished: run the same `renco generate` again, "
                "or open it with partial=True"
            )
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    @classmethod
    def in_memory(cls, manifest: Manifest, rows: ndarray) -> Self:
        """Makes a set of records that are not on disk."""
        self = object.__new__(cls)
        self.folder, self.manifest = None, manifest
        self._shards, self._ends = [rows], np.array([len(rows)])
        return self

    def _open(self, name: str) -> ndarray:
        assert self.folder is not None
        return read_rows(self.folder / name, self.manifest.layout, mmap=True)

    def __len__(self) -> int:
        """Returns the number of instances."""
        return int(self._ends[-1])

    @property
    def problem(self) -> type[Problem]:
        """The class of the instances."""
        return PROBLEMS[self.manifest.problem]

    @property
    def n(self) -> int:
        """The size of the instances."""
        return self.manifest.n

    @property
    def nodes(self) -> int:
        """Nodes of a whole instance as a path problem, both ends included."""
        return self.n + (1 if self.manifest.problem == "tsp" else 2)

    def records(self, indices: Indices) -> ndarray:
        """Returns the records at some places of the set, in the order asked for."""
        if isinstance(indices, slice):
            indices = np.arange(*indices.indices(len(self)))
        places = np.asarray(indices, dtype=np.int64)
        if places.size and not (places.min() >= 0 and places.max() < len(self)):
            wrong = places[(places < 0) | (places >= len(self))][0]
            raise IndexError(f"instance {wrong} of a set of {len(self)}")
        if len(self._shards) == 1:
            return np.asarray(self._shards[0][places])
        rows = np.empty(len(places), self.manifest.layout)
        shard = np.searchsorted(self._ends, places, side="right")
        for number in np.unique(shard):
            here = shard == number
            start = self._ends[number] - len(self._shards[number])
            rows[here] = self._shards[number][places[here] - start]
        return rows

    def instances(self, indices: Indices) -> Problem:
        """Returns some of the instances as one batch."""
        return self._instances(self.records(indices))

    def _instances(self, rows: ndarray) -> Problem:
        arrays = {name: rows[name].astype(np.float64) for name in self.problem.arrays}
        return self.problem.trusted(metric=self.manifest.metric, **arrays)

    def batch(self, indices: Indices) -> tuple[Problem, Int[ndarray, "batch step"]]:
        """Returns some of the instances and the expert's decisions.

        Decisions of an orienteering problem end with zeros where tours are shorter
        than the longest of the batch; `lengths` helps to pick equal ones.
        """
        self._labelled()
        rows = self.records(indices)
        decisions = rows["decisions"].astype(np.int64)
        if self.manifest.problem == "op":
            decisions = decisions[:, : int((decisions != 0).sum(1).max(initial=0))]
        return self._instances(rows), decisions

    @cached_property
    def costs(self) -> Float64[ndarray, " batch"]:
        """The cost of the expert's solution of every instance."""
        self._labelled()
        return np.concatenate([shard["cost"] for shard in self._shards])

    @cached_property
    def lengths(self) -> Int[ndarray, " batch"]:
        """The number of decisions of every instance (orienteering: its visits)."""
        self._labelled()
        if self.manifest.problem != "op":
            steps = self.manifest.layout["decisions"].shape[0]
            return np.full(len(self), steps)
        return np.concatenate([(s["decisions"] != 0).sum(1) for s in self._shards])

    def _labelled(self) -> None:
        if self.manifest.expert is None:
            raise ValueError(f"{self.folder or 'the set'} has no expert decisions")

    @cached_property
    def sha256(self) -> str:
        """A hash of the instances alone: equal for equal problems to solve."""
        digest = hashlib.sha256()
        for rows in self._blocks():
            hash_instances(digest, rows, self.manifest)
        return digest.hexdigest()

    def _blocks(self) -> Iterator[ndarray]:
        for start in range(0, len(self), BLOCK):
            yield self.records(slice(start, start + BLOCK))

    def verify(self) -> None:
        """Checks the files' hashes, and every instance and solution anew.

        Raises:
            DamagedData: Something is not as the manifest says; the message names it.
        """
        for name, expected in self.manifest.shards.items():
            if self.folder is not None and file_hash(self.folder / name) != expected:
                raise DamagedData(f"{self.folder / name}: SHA-256 is not {expected}")
        for rows in self._blocks():
            self._verify_rows(rows)

    def _verify_rows(self, rows: ndarray) -> None:
        where, index = self.folder or "the set", rows["index"]
        instances = self._instances(rows)
        if self.manifest.seed is not None and (np.diff(index) == 1).all():
            again = self.manifest.draw(int(index[0]), len(rows))
            for name in instances.arrays:
                if (getattr(again, name) != getattr(instances, name)).any():
                    raise DamagedData(f"{where}: {name} are not those of the seed")
        if self.manifest.expert is None:
            return
        decisions = torch.from_numpy(rows["decisions"].astype(np.int64))
        for row, routes in enumerate(instances.routes(decisions)):
            try:
                cost = float(instances[row].cost([routes])[0])
            except ValueError as error:
                raise DamagedData(f"{where}: instance {index[row]}: {error}") from None
            stored = float(rows["cost"][row])
            if not math.isclose(cost, stored, rel_tol=TOLERANCE):
                raise DamagedData(
                    f"{where}: instance {index[row]} costs {cost}, stored {stored}"
                )


def hash_instances(digest: "hashlib._Hash", rows: ndarray, manifest: Manifest) -> None:
    """Adds a block of instances, without their labels, to a hash."""
    for name in PROBLEMS[manifest.problem].arrays:
        digest.update(np.ascontiguousarray(rows[name]).tobytes())


def read_parts(
    folder: Path, manifest: Manifest, start: int | None = None
) -> Iterator[tuple[int, ndarray]]:
    """Yields the first index of each chunk of an unfinished set, and its rows so far.

    Args:
        folder: Where the set lies.
        manifest: What it is to contain.
        start: First index of the only chunk wanted.

    A damaged file counts as missing: its chunk is made again.
    """
    name = "*.npy" if start is None else f"{start:09d}.npy"
    for path in sorted((folder / PARTS).glob(name)):
        try:
            yield int(path.stem), read_rows(path, manifest.layout)
        except DamagedData:
            continue


def folders_with(folder: Path | str, name: str, what: str) -> list[Path]:
    """Returns the sets in a folder beside whose solutions a file of that name lies.

    Raises:
        FileNotFoundError: There are none; `what` says what was looked for.
    """
    found = sorted(path.parent for path in Path(folder).glob(f"*/{name}"))
    if not found:
        raise FileNotFoundError(f"{folder} holds no {what}")
    return found


def write_set(folder: Path, manifest: Manifest, pieces: Iterable[ndarray]) -> None:
    """Writes records as shards, and then the manifest that makes them count.

    Args:
        folder: Where to write; it must exist.
        manifest: What the set contains; hashes and mean cost are added.
        pieces: All records in order, cut anywhere.

    Raises:
        DamagedData: They are not the instances of the manifest, each once.
    """
    limit = max(1, SHARD_BYTES // manifest.layout.itemsize)
    expected = manifest.first
    hashes: dict[str, str] = {}
    costs: list[float] = []
    kept: list[ndarray] = []

    def write(rows: ndarray) -> None:
        path = folder / f"shard-{len(hashes):05d}.npy"
        write_atomic(path, array_bytes(rows))
        hashes[path.name] = file_hash(path)

    for rows in pieces:
        if rows["index"].tolist() != list(range(expected, expected + len(rows))):
            raise DamagedData(f"{folder}: not all of {expected}.. are there once")
        expected += len(rows)
        if manifest.expert is not None:
            costs += rows["cost"].tolist()
        kept.append(rows)
        while sum(map(len, kept)) >= limit:
            joined = np.concatenate(kept)
            write(joined[:limit])
            kept = [joined[limit:]]
    if expected != manifest.first + manifest.count:
        raise DamagedData(
            f"{folder}: {expected - manifest.first} of {manifest.count} instances"
        )
    if sum(map(len, kept)):
        write(np.concatenate(kept))
    mean = math.fsum(costs) / len(costs) if costs else None
    done = replace(manifest, mean_cost=mean, shards=hashes)
    write_atomic(folder / MANIFEST, done.to_json().encode())
