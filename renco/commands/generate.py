"""`renco generate`: instances and an expert's solutions to learn from."""

from pathlib import Path
from typing import Annotated

import typer

from renco.commands.console import finite, parsed, usage, write_text

SUFFIXES = (".tsp", ".vrp", ".oplib", ".json")
NAMES = ("tsp", "cvrp", "op")


def generate(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROBLEM", help="tsp, cvrp or op.", show_default=False),
    ] = None,
    n: Annotated[int, typer.Option(min=1, help="Customers (TSP: nodes).")] = 100,
    count: Annotated[int, typer.Option(min=1, help="Number of instances.")] = 1000,
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder of the set.")] = "",
    expert: Annotated[
        str, typer.Option(metavar="NAME|auto|none", help="Solver for the labels.")
    ] = "auto",
    seconds: Annotated[
        float | None, typer.Option(help="Time of the expert per instance.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: all cores.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Make only the I-th of N equal parts."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(metavar="Q|LO:HI", help="CVRP: capacity.")
    ] = None,
    demand: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="CVRP: demands.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(metavar="D", help="OP: longest tour.")
    ] = None,
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="FILES", help="Label your own instances."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="SEED", help="Seed of the instances.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Draw instances and label them with a classical solver.

    `renco generate tsp --n 100 --count 10000 --out data/tsp100`

    Your own: `renco generate --from instances/*.vrp --out data/mine`

    One of 64 jobs that share a folder: `renco generate cvrp --shard 3/64 --out data/x`

    Run it again to continue where it stopped. The same seed gives the same instances
    for any number of workers.
    """
    problem, files = _split(words or [], from_ or [])
    if not out:
        raise usage("name the folder of the set, e.g. --out data/tsp100", "--out")
    finite("--seconds", seconds, positive=True)
    from contextlib import nullcontext

    from renco.generate import generate as run
    from renco.progress import ProgressBar

    bar = nullcontext() if quiet else ProgressBar()
    with bar as progress:
        sets = run(
            problem,
            out,
            n=n,
            count=count,
            seed=seed,
            expert=expert,
            seconds=seconds,
            workers=workers,
            shard=None if shard is None else _shard(shard),
            ray=ray,
            capacity=None if capacity is None else _capacity(capacity),
            demand=None if demand is None else _bounds("--demand", demand),
            limit=limit,
            from_files=files,
            progress=progress,
        )
    for made in sets:
        cost = made.manifest.mean_cost
        label = f", mean cost {cost:.6g}" if cost is not None else ""
        write_text(
            f"{made.folder}: {len(made)} x {made.manifest.problem}{made.n}"
            f", seed {seed}, expert {made.manifest.expert or 'none'}{label}"
        )


def _split(words: list[str], files: list[str]) -> tuple[str | None, list[Path]]:
    """Tells the problem from the files that a shell's `--from *.tsp` leaves over."""
    problem = words[0] if words and words[0] in NAMES else None
    rest = words[1:] if problem else words
    if not files:
        if problem is None or rest:
            wrong = rest[0] if rest else None
            got = f", got {wrong!r}" if wrong else ""
            raise usage(f"expected tsp, cvrp or op{got}", "PROBLEM")
        return problem, []
    found: list[Path] = []
    for path in map(Path, [*files, *rest]):
        inside = path.iterdir() if path.is_dir() else [path]
        found += sorted(
            p for p in inside if not path.is_dir() or p.suffix.lower() in SUFFIXES
        )
    if not found:
        raise usage(f"no instance files in {files[0]!r}", "--from")
    return problem, found


def _shard(text: str) -> tuple[int, int]:
    def parse(text: str) -> tuple[int, int]:
        part, parts = text.split("/")
        if not 1 <= int(part) <= int(parts):
            raise ValueError
        return int(part), int(parts)

    shard: tuple[int, int] = parsed("--shard", parse, text, "I/N with 1 <= I <= N")
    return shard


def _bounds(option: str, text: str) -> tuple[int, int]:
    def parse(text: str) -> tuple[int, int]:
        low, high = text.split(":")
        if not 0 <= int(low) <= int(high):
            raise ValueError
        return int(low), int(high)

    bounds: tuple[int, int] = parsed(option, parse, text, "LO:HI, whole numbers")
    return bounds


def _capacity(text: str) -> int | tuple[int, int]:
    if ":" in text:
        return _bounds("--capacity", text)
    return int(parsed("--capacity", int, text, "a whole number or LO:HI"))


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(generate)
