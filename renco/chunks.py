"""The work of making a set, in chunks that are done or not.

A finished chunk is one file, written atomically and named after its first instance: a
run that is killed loses the chunk it was at and nothing else, and two runs that make
the same chunk leave one.
"""

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

import numpy as np
from numpy import ndarray

from renco.cluster import label_on_ray
from renco.data import PARTS, Trajectories, read_parts, write_set
from renco.files import write_atomic
from renco.labeller import load_instance
from renco.manifest import MANIFEST, Manifest, read_manifest
from renco.progress import Callback, Progress
from renco.storage import DamagedData, array_bytes
from renco.workers import Answer, Failure, label_locally

FAILURES = "failures.jsonl"


class Unlabelled(RuntimeError):
    """Instances have no label after all tries; the others are kept.

    Attributes:
        indices: The instances without a label.
    """

    def __init__(self, folder: Path, indices: Sequence[int], count: int) -> None:
        """Names the first few of the instances."""
        shown = ", ".join(map(str, indices[:10])) + ", ..." * (len(indices) > 10)
        super().__init__(
            f"{folder}: {len(indices)} of {count} instances have no label: {shown} "
            f"(reasons in {folder / FAILURES}); the others are kept, run the same "
            "command again to retry"
        )
        self.indices = list(indices)


@dataclass(frozen=True)
class Machine:
    """Where experts run.

    Attributes:
        workers: Processes to run side by side.
        ray: Address of a Ray cluster to run on instead.
        patience: Seconds until a solve counts as hanging.
    """

    workers: int
    ray: str | None
    patience: float | None

    def label(
        self, plan: Manifest, tasks: Iterator[list[int]]
    ) -> Generator[Answer, None, None]:
        """Labels instances that come in groups, in any order."""
        job = json.loads(plan.to_json())
        if self.ray is None:
            yield from label_locally(
                job, tasks, workers=self.workers, patience=self.patience
            )
        else:
            yield from label_on_ray(
                job, tasks, address=self.ray, patience=self.patience
            )


class Run:
    """One run of one process on one set."""

    def __init__(
        self,
        folder: Path,
        plan: Manifest,
        shard: tuple[int, int],
        progress: Callback | None,
    ) -> None:
        """Plans the chunks; nothing is written yet.

        Args:
            folder: Where the set is made.
            plan: What it is to contain, as `claim` returned it.
            shard: `(i, N)`: take the i-th of N parts of the chunks.
            progress: Called after every instance.
        """
        self.folder, self.plan = folder, plan
        starts = range(plan.first, plan.first + plan.count, plan.chunk)
        self.chunks = [
            range(start, min(start + plan.chunk, plan.first + plan.count))
            for start in starts
        ]
        self.mine = self.chunks[shard[0] - 1 :: shard[1]]
        self.progress = progress
        self.total = sum(map(len, self.mine))
        self.done = self.made = 0
        self.failed: list[int] = []
        self.started = monotonic()
        self.missing: dict[int, int] = {}
        self.answers: dict[int, dict[int, Answer]] = defaultdict(dict)

    def execute(self, machine: Machine) -> Trajectories | None:
        """Makes what is missing; returns the set once it is complete."""
        if self.plan.shards:
            return finish(self.folder)
        if self.plan.expert is None:
            for chunk in self.mine:
                if not self._finished(chunk):
                    self._write(chunk, _instances(self.plan, chunk))
                self._advance(len(chunk))
        else:
            self._label(machine)
        return finish(self.folder)

    def _label(self, machine: Machine) -> None:
        try:
            with closing(machine.label(self.plan, self._tasks())) as answers:
                for answer in answers:
                    self._take(answer)
        finally:
            # Also what an interrupt leaves behind is worth keeping.
            for start in list(self.answers):
                self._save(start)
        if self.failed:
            raise Unlabelled(self.folder, sorted(self.failed), self.total)

    def _tasks(self) -> Iterator[list[int]]:
        """Yields the instances of each chunk that have no label yet."""
        for chunk in self.mine:
            if read_manifest(self.folder).shards:  # by another run, meanwhile
                return
            have = set(self._finished(chunk))
            missing = [index for index in chunk if index not in have]
            self._advance(len(have))
            if missing:
                self.missing[chunk.start] = len(missing)
                yield missing

    def _finished(self, chunk: range) -> list[int]:
        for _, rows in read_parts(self.folder, self.plan, chunk.start):
            indices: list[int] = rows["index"].tolist()
            return indices
        return []

    def _take(self, answer: Answer) -> None:
        offset = (answer.index - self.plan.first) // self.plan.chunk
        start = self.chunks[offset].start
        self.answers[start][answer.index] = answer
        if answer.failures:
            self._log(answer.failures)
        if answer.failed:
            self.failed.append(answer.index)
            self._advance(0)
        else:
            self.made += 1
            self._advance(1)
        if len(self.answers[start]) == self.missing[start]:
            self._save(start)

    def _save(self, start: int) -> None:
        """Writes the labels of a chunk that are there, with those of earlier runs."""
        answers = self.answers.pop(start)
        chunk = self.chunks[(start - self.plan.first) // self.plan.chunk]
        rows = _instances(self.plan, chunk)
        labelled = np.zeros(len(rows), dtype=bool)
        for _, old in read_parts(self.folder, self.plan, start):
            rows[old["index"] - start] = old
            labelled[old["index"] - start] = True
        for index, answer in answers.items():
            if not answer.failed:
                row = rows[index - start]
                row["decisions"][: len(answer.decisions)] = answer.decisions
                row["cost"] = answer.cost
                labelled[index - start] = True
        if labelled.any():
            self._write(chunk, rows[labelled])

    def _write(self, chunk: range, rows: ndarray) -> None:
        path = self.folder / PARTS / f"{chunk.start:09d}.npy"
        try:
            write_atomic(path, array_bytes(rows))
        except FileNotFoundError:
            if not read_manifest(self.folder).shards:  # by another run, meanwhile
                raise

    def _log(self, failures: list[Failure]) -> None:
        with (self.folder / FAILURES).open("a", encoding="utf-8") as file:
            for failure in failures:
                file.write(json.dumps(asdict(failure)) + "\n")

    def _advance(self, instances: int) -> None:
        self.done += instances
        if self.progress is not None:
            seconds = monotonic() - self.started
            self.progress(
                Progress(self.done, self.total, self.made, len(self.failed), seconds)
            )


def claim(folder: Path, plan: Manifest) -> Manifest:
    """Begins a set in a folder or continues the one that is there.

    Returns:
        The manifest to go on with, with the chunks as they were cut before.

    Raises:
        ValueError: The folder holds another set, or something else.
        OSError: It cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MANIFEST).exists():
        # Another run may be about to write the same manifest.
        names = [path.name for path in folder.iterdir() if path.suffix != ".tmp"]
        others = set(names) - {PARTS, MANIFEST}
        if others:
            raise ValueError(f"{folder} is not empty: it holds {min(others)}")
        (folder / PARTS).mkdir(exist_ok=True)
        write_atomic(folder / MANIFEST, plan.to_json().encode())
    there = read_manifest(folder)
    now, then = json.loads(plan.to_json()), json.loads(there.plan.to_json())
    for key, value in now.items():
        if then[key] != value and key not in ("chunk", "note"):
            raise ValueError(
                f"{folder} holds a set with {key} {then[key]!r}, not {value!r}"
            )
    return there


def _instances(plan: Manifest, chunk: range) -> ndarray:
    if plan.seed is not None:
        return plan.rows(np.array(chunk), plan.draw(chunk.start, len(chunk)))
    return np.concatenate(
        [plan.rows(np.array([i]), load_instance(plan, i)) for i in chunk]
    )


def finish(folder: Path) -> Trajectories | None:
    """Joins the parts of a set to shards if all are there; else returns None."""
    manifest = read_manifest(folder)
    if not manifest.shards:
        with suppress(DamagedData, FileNotFoundError):
            _join(folder, manifest)
        # Another run may have been faster: then its result counts.
        if not read_manifest(folder).shards:
            return None
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    return Trajectories(folder)


def _join(folder: Path, manifest: Manifest) -> None:
    """Writes the shards and then the manifest that makes them count.

    Raises:
        DamagedData: Some instances are missing.
    """
    chunks = math.ceil(manifest.count / manifest.chunk)
    if len(list((folder / PARTS).glob("*.npy"))) < chunks:
        raise DamagedData(f"{folder}: chunks are missing")
    write_set(folder, manifest, (rows for _, rows in read_parts(folder, manifest)))
