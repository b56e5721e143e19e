"""`renco check`: is this a solution of that instance, and what does it cost?"""

from typing import Annotated

import typer

from renco.commands.console import write_json_to, write_text


def check(
    instance: Annotated[str, typer.Argument(help="Instance file.")],
    solution: Annotated[str, typer.Argument(help="Its .sol, .tour or .json.")],
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Also write JSON.")
    ] = None,
) -> int:
    """Check a solution in the instance's own metric and say what it violates.

    `renco check A-n32-k5.vrp A-n32-k5.sol`

    Exit code 0: feasible. 1: not feasible, or not readable.
    """
    from renco.formats import read, read_solution
    from renco.problems import OP
    from renco.result import number, percent_above
    from renco.violations import violations

    problem = read(instance)
    routes = read_solution(solution, problem)
    faults = violations(problem, routes)
    length = float(problem.length([routes])[0])
    cost = None if faults else float(problem.cost([routes])[0])
    gap = None if cost is None else percent_above(cost, problem.best_known)
    if json is not None:
        verdict = {"instance": instance, "solution": solution, "feasible": not faults}
        verdict |= {"cost": cost, "length": length, "metric": problem.metric}
        write_json_to(json, verdict | {"gap": gap, "violations": faults})
    if json != "-":
        lines = [f"infeasible, length {number(length)} ({problem.metric})"]
        if cost is not None:
            what = f"cost {number(cost)}"
            if isinstance(problem, OP):
                what = f"prize {number(-cost + 0.0)}, length {number(length)}"
            lines = [f"feasible, {what} ({problem.metric})"]
        if gap is not None:
            lines[0] += f", {gap:.2f} % above the best known"
        write_text("\n".join(lines + [f"  {fault}" for fault in faults]))
    return 1 if faults else 0


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(check)
