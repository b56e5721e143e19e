"""Experts in processes of their own: a solver may crash or hang, a set must not.

Each worker is a process `python -m renco.labeller` that is killed when it hangs and
replaced when it dies. This side of it does without torch.
"""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRIES = 3
LEAST_PATIENCE = 120.0
"""Seconds that every solve may take, however short its time limit."""
START_UP = 300.0
"""Seconds until a worker must have imported everything, on a busy machine."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerFailed(RuntimeError):
    """A worker process could not be started; trying again would not help."""


class _LostError(Exception):
    """A worker process died or was killed while it was solving."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A try that gave no label: which instance, which try, and why."""

    index: int
    attempt: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The label of an instance, without decisions after too many failures.

    Attributes:
        index: Which instance of the set.
        decisions: What the expert decided, or what it was given to finish first.
        cost: Of these.
        begun: How many of the decisions were given.
        failures: Tries that gave no label.
    """

    index: int
    decisions: list[int]
    cost: float
    begun: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether there is no label."""
        return math.isnan(self.cost)


class Worker:
    """One process that solves one instance after the other."""

    def __init__(self, job: dict[str, Any], patience: float | None = None) -> None:
        """Starts no process yet: the first solve does.

        Args:
            job: What to solve and by which expert: the values of a `Manifest`.
            patience: Seconds until a solve counts as hanging.
        """
        self.job = job
        self.patience = patience or max(20 * job["seconds"], LEAST_PATIENCE)
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def label(self, index: int, own: list[int] | None = None) -> Answer:
        """Solves an instance, starting over with another seed where that fails.

        Args:
            index: Which instance of the set.
            own: Decisions to begin with; the expert only finishes the solution.

        Raises:
            WorkerFailed: No process could be started.
        """
        failures: list[Failure] = []
        begun = len(own or [])
        for attempt in range(TRIES):
            try:
                reply = self._ask({"index": index, "attempt": attempt, "own": own})
            except _LostError as error:
                reply = {"error": str(error)}
            if "error" not in reply:
                return Answer(index=index, begun=begun, failures=failures, **reply)
            failures.append(
                Failure(index=index, attempt=attempt, reason=reply["error"])
            )
        return Answer(
            index=index, decisions=[], cost=math.nan, begun=begun, failures=failures
        )

    def stop(self) -> None:
        """Makes a solve in another thread fail, and later ones too."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            # What it was about to read cannot be written any more.
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        # Stopped before: no process is started in vain. Meanwhile: it is not used.
        if self._process is None and not self._stopped:
            self._start()
        if self._stopped:
            raise WorkerFailed("stopped")
        return self._exchange(request, self.patience)

    def _start(self) -> None:
        environment = dict.fromkeys(ONE_THREAD, "1")
        # An expert may be a module that only this process's path leads to.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "renco.labeller"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment | {"PYTHONPATH": path},
            text=True,
            # An interrupt from the keyboard is for this process alone to handle.
            start_new_session=True,
        )
        job = self.job | {"patience": self.patience}
        try:
            reply = self._exchange(job, START_UP)
        except _LostError as error:
            raise WorkerFailed(f"a worker did not start: {error}") from None
        if "error" in reply:
            self.close()
            raise WorkerFailed(f"a worker did not start: {reply['error']}")

    def _exchange(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Sends a line and returns the answer, killing a worker that takes too long."""
        process = self._process
        assert process is not None and process.stdin and process.stdout
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        watchdog = threading.Timer(seconds, expire)
        watchdog.start()
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watchdog.cancel()
        if line.endswith("\n") and not expired.is_set():
            reply: dict[str, Any] = json.loads(line)
            return reply
        code = process.wait()
        self.close()
        if expired.is_set():
            raise _LostError(f"no answer within {seconds:g} s, killed")
        raise _LostError(f"the process ended: {_meaning(code)}")


def _meaning(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def label_locally(
    job: dict[str, Any],
    tasks: Iterable[list[int]],
    *,
    workers: int,
    patience: float | None = None,
    own: Mapping[int, Sequence[list[int]]] | None = None,
) -> Generator[Answer, None, None]:
    """Labels instances on this machine, each worker in a process of its own.

    Args:
        job: What to solve and by which expert: the values of a `Manifest`.
        tasks: Indices of instances, in groups that belong together.
        workers: Number of processes.
        patience: Seconds until a solve counts as hanging.
        own: Beginnings of solutions, by index; the experts only finish each of them.

    Yields:
        Answers in the order in which they come.

    Raises:
        WorkerFailed: A worker process could not be started.
    """
    todo = (
        (index, begun)
        for task in tasks
        for index in task
        for begun in (own[index] if own else [None])
    )
    lock = threading.Lock()
    done: queue.Queue[Answer | BaseException | None] = queue.Queue()
    crew = [Worker(job, patience) for _ in range(workers)]

    def work(worker: Worker) -> None:
        try:
            while True:
                with lock:
                    one = next(todo, None)
                if one is None:
                    break
                done.put(worker.label(*one))
        except BaseException as error:
            done.put(error)
        finally:
            worker.close()
            done.put(None)

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in crew]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            if answer is None:
                running -= 1
            else:
                yield answer
    finally:
        for worker in crew:
            worker.stop()
        for thread in threads:
            thread.join(timeout=5)
