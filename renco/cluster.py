"""Labels from a Ray cluster: the same chunks, on machines that may go away.

Ray runs a lost task again elsewhere and hands every result over once, and only the
process that called writes files: nothing is lost, nothing comes twice. Experts run in
processes below those of Ray, which never load torch themselves. Neither Ray nor
this module authenticates anybody, so keep the cluster on a private network. All
machines need renco and the expert, in the same versions.
"""

import atexit
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from renco.workers import Answer, Failure, Worker

AHEAD = 2
"""Tasks that wait per core: enough to keep it busy, few enough to lose nothing."""

_worker: Worker | None = None


def label_on_ray(
    job: dict[str, Any],
    tasks: Iterable[list[int]],
    *,
    address: str,
    patience: float | None = None,
) -> Generator[Answer, None, None]:
    """Labels instances on all cores of a Ray cluster.

    Args:
        job: What to solve and by which expert: the values of a `Manifest`.
        tasks: Indices of instances, in groups that run one after the other.
        address: Address of the cluster, `auto` for the one this machine belongs to,
            `local` for a new one on this machine.
        patience: Seconds until a solve counts as hanging.

    Yields:
        Answers in the order in which they come.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: There is no cluster at the address.
        WorkerFailed: The expert cannot run on one of the machines.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("a Ray cluster needs pip install renco[ray]") from None
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        yield from _run(ray, job, iter(tasks), patience)
    finally:
        if started:
            ray.shutdown()


def _run(
    ray: Any, job: dict[str, Any], tasks: Iterator[list[int]], patience: float | None
) -> Generator[Answer, None, None]:
    # Machines may come and go as they like: a task is tried until it returns.
    remote = ray.remote(num_cpus=1, max_retries=-1)(label_task)
    pending: list[Any] = []
    try:
        while True:
            cores = int(ray.cluster_resources().get("CPU", 1))
            while len(pending) < AHEAD * max(1, cores):
                task = next(tasks, None)
                if task is None:
                    break
                pending.append(remote.remote(job, task, patience))
            if not pending:
                return
            done, pending = ray.wait(pending, num_returns=1)
            for values in ray.get(done[0]):
                failures = [Failure(**failure) for failure in values.pop("failures")]
                yield Answer(failures=failures, **values)
    finally:
        for task in pending:
            ray.cancel(task, force=True)


def label_task(
    job: dict[str, Any], indices: list[int], patience: float | None
) -> list[dict[str, Any]]:
    """Labels some instances, in a process of a cluster that keeps its expert."""
    global _worker
    if _worker is None or _worker.job != job:
        if _worker is not None:
            _worker.close()
        else:
            atexit.register(_stop)
        _worker = Worker(job, patience)
    return [asdict(_worker.label(index)) for index in indices]


def _stop() -> None:
    if _worker is not None:
        _worker.close()
