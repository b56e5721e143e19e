"""`renco plot`: a picture of an instance, a solution or a training run."""

from pathlib import Path
from typing import Annotated

import typer

from renco.commands.console import check_writable, usage


def plot(
    instance: Annotated[str, typer.Argument(help="Instance file, or a training run.")],
    solution: Annotated[
        str | None, typer.Argument(help="Its .sol, .tour or .json.")
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="A .png, .svg or .pdf file.")
    ] = "plot.png",
) -> None:
    """Draw an instance, alone or with the routes of a solution.

    `renco plot A-n32-k5.vrp A-n32-k5.sol --out routes.svg`

    The curves of a training run: `renco plot runs/tsp100 --out curves.png`
    """
    check_writable("--out", out, instance, solution or "-")
    from renco.formats import read, read_solution
    from renco.plot import check_format, plot_curves, plot_routes
    from renco.violations import violations

    try:
        check_format(out)
    except ValueError as error:
        raise usage(str(error), "--out") from None
    given = Path(instance)
    log = given / "log.jsonl" if given.is_dir() else given
    if log.suffix == ".jsonl":
        plot_curves({log.absolute().parent.name: log}, out)
        return
    problem = read(instance)
    routes = None if solution is None else read_solution(solution, problem)
    if routes is not None and (faults := violations(problem, routes)):
        raise ValueError(f"{solution}: {'; '.join(faults)}")
    plot_routes(problem, routes, out)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(plot)
