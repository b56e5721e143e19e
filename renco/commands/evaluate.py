"""`renco evaluate`: gaps and times on a labelled set."""

from pathlib import Path
from typing import Annotated

import typer

from renco.commands.console import (
    Near,
    check_writable,
    finite,
    usage,
    write_json_to,
    write_table,
)


def evaluate(
    model: Annotated[
        list[str], typer.Option(metavar="NAME|PATH", help="Repeat for several.")
    ],
    data: Annotated[
        str, typer.Option(metavar="DIR|NAME", help="Labelled set, or a shipped one.")
    ],
    search: Annotated[
        str, typer.Option(metavar="greedy|beam|lns", help="How to search.")
    ] = "greedy",
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
        float | None, typer.Option(metavar="SECONDS", help="Per instance (lns).")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Per instance (lns).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N instances.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Solve N together; measures no time."),
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
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Append a row per model.")
    ] = None,
    gaps: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write each instance's gap.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write the rows as JSON.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="SEED", help="Seed of the search.")
    ] = 0,
) -> None:
    """Measure gap and time of models on a labelled set.

    `renco evaluate --model runs/rec --data tsp100-test --search beam --beam 16`

    Only the gap, faster: `renco evaluate --model runs/rec --data data/val --batch 256`

    Instances are solved one by one unless `--batch` is given: the time is the latency
    of one instance, environment and cost included, warm-up excluded.
    """
    finite("--time-limit", time_limit)
    check_writable("--csv", csv)
    check_writable("--json", json)
    check_writable("--gaps", gaps)
    from renco.commands.limits import Limits
    from renco.commands.watching import counting
    from renco.evaluate import append_row
    from renco.evaluate import evaluate as run
    from renco.searches import SearchOptions
    from renco.solver import find_policy, using_threads
    from renco.testsets import open_data

    try:
        limits = Limits.of(search, time_limit, iterations)
    except ValueError as error:
        raise usage(str(error), "--search") from None
    options = SearchOptions(
        k=k, beam=beam, n_sub=n_sub, near=near, seed=seed, stop=limits.rule
    )
    dataset = open_data(data)
    rows, single = [], {}
    with using_threads(threads):
        for name in model:
            policy = find_policy(
                name, dataset.manifest.problem, device=device, precision=precision
            )
            with counting(policy.name) as progress:
                found = run(
                    policy,
                    dataset,
                    search=search,
                    options=options,
                    limit=limit,
                    batch=batch,
                    limits=str(limits),
                    dataset=Path(data).name,
                    progress=progress,
                )
            rows.append(found.row())
            single[policy.name] = found.gaps.tolist()
            if csv is not None:
                append_row(csv, rows[-1])
    if gaps is not None:
        write_json_to(gaps, single)
    if json is not None:
        write_json_to(json, rows)
    if json != "-":
        columns = [
            *("model", "dataset", "search", "k", "width", "gap_mean", "gap_sem"),
            *("seconds_per_instance", "instances", "seed"),
        ]
        cells = [[_cell(row[column]) for column in columns] for row in rows]
        titles = [c.replace("seconds_per_instance", "seconds") for c in columns]
        write_table(titles, cells, left=3)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(evaluate)
