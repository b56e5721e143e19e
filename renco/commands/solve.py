"""`renco solve`: instance files in, a table, solutions and pictures out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from renco.commands.console import (
    Near,
    check_writable,
    finite,
    say,
    usage,
    write_json_to,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from renco.commands.solving import Job
    from renco.result import Result


def solve(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Instances: .tsp, .vrp, .oplib, .json; - is stdin."
        ),
    ],
    search: Annotated[
        str, typer.Option(metavar="greedy|beam|lns", help="How to search.")
    ] = "lns",
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="W", help="Width of the beams.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Steps between base encodings."),
    ] = None,
    near: Near = None,
    n_sub: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Size of sub-problems (lns).")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Per instance (lns); 10 by default."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Per instance (lns).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="Default: the best shipped one."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda[:i]", help="Where to run.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processor threads.")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="auto|float32|bfloat16", help="Of the network.")
    ] = "auto",
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Solve files of equal size together, timed together."
        ),
    ] = False,
    start: Annotated[
        str | None, typer.Option(metavar="FILE.sol", help="Solution to improve (lns).")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|COST",
            help="Best known cost, or a file of lines 'name cost', for the gap.",
        ),
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write the results as JSON.")
    ] = None,
    sol_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write .sol and .tour files.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE.png", help="Or .svg, .pdf: a picture.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="SEED", help="Seed of the search.")
    ] = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Neither progress nor table.")
    ] = False,
) -> int:
    """Solve instances of the TSP, the CVRP and the OP.

    One file, ten seconds: `renco solve berlin52.tsp`

    Many files: `renco solve *.vrp --time-limit 30 --sol-dir out`

    One pass of the network: `renco solve *.tsp --search beam --beam 16 --batch`

    In a pipeline: `cat instance.json | renco solve - --json - > result.json`

    Improve a solution: `renco solve A-n32-k5.vrp --start A-n32-k5.sol`

    Ctrl-C ends the search in order and keeps the best solution so far.
    """
    finite("--time-limit", time_limit)
    if search != "lns":
        _without_lns(search, start, n_sub, time_limit, iterations)
    folder = None if sol_dir is None else _folder(sol_dir)
    check_writable("--json", json, *files)
    check_writable("--plot", plot, *files)
    if files.count("-") > 1:
        raise usage("standard input can be read once", "FILE")
    from renco.commands.solving import Job

    job = Job(
        search=search,
        model=model,
        device=device,
        precision=precision,
        threads=threads,
        beam=beam,
        k=k,
        n_sub=n_sub,
        near=near,
        seed=seed,
        time_limit=time_limit,
        iterations=iterations,
        batch=batch,
        start=start,
        reference=reference,
        folder=folder,
        picture=plot,
        quiet=quiet,
    )
    results = job.run(files)
    _report(job, results, json, quiet)
    return 1 if job.failures else 0


def _without_lns(
    search: str,
    start: str | None,
    n_sub: int | None,
    time_limit: float | None,
    iterations: int | None,
) -> None:
    """Refuses or explains options that only the large neighborhood search has."""
    if start is not None:
        raise usage(f"only --search lns improves a solution, not {search}", "--start")
    if n_sub is not None:
        raise usage(f"only --search lns has sub-problems, not {search}", "--n-sub")
    if time_limit is not None or iterations is not None:
        say(f"note: limits are for --search lns; {search} takes the time it takes")


def _folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".renco-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise usage(
            f"cannot write to {name!r}: {error.strerror}", "--sol-dir"
        ) from None
    return folder


def _report(job: "Job", results: "list[Result]", json: str | None, quiet: bool) -> None:
    if json is not None and (results or job.several):
        values = [result.to_dict() for result in results]
        write_json_to(json, values if job.several else values[0])
    if quiet or json == "-" or not results:
        return
    from renco.result import number

    columns = ["instance", "problem", "n", "cost", "gap", "feasible", "seconds"]
    rows = []
    for result in results:
        gap = job.gap(result)
        rows.append(
            [
                result.instance,
                result.problem.name,
                str(result.problem.n),
                number(result.cost),
                "" if gap is None else f"{gap:.2f} %",
                "yes" if result.feasible else "no",
                f"{result.seconds:.2f}",
            ]
        )
    write_table(columns, rows, left=2)
    gaps = [gap for gap in map(job.gap, results) if gap is not None]
    if len(gaps) > 1:
        mean = sum(gaps) / len(gaps)
        write_text(f"mean gap {mean:.2f} % over {len(gaps)} instances")
    for result in {result.problem.name: result for result in results}.values():
        write_text(
            f"{result.problem.name}: {result.search}, model {result.model}, "
            f"k {result.k}, beam {result.beam}, seed {result.seed}"
        )


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(solve)
