"""`renco weigh`: what a policy's doubtful decisions would have cost (AggreVaTe)."""

from typing import Annotated

import typer

from renco.commands.console import finite, write_text
from renco.commands.rolling import Data, Expert, K, Model, Out, Seconds, Workers


def weigh(
    model: Model,
    data: Data,
    out: Out,
    k: K = 1000,
    rivals: Annotated[
        int, typer.Option(min=2, help="Decisions to weigh in a state, at most.")
    ] = 3,
    doubt: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Weigh where other decisions have at least this probability.",
        ),
    ] = 0.08,
    expert: Expert = "auto",
    seconds: Seconds = None,
    workers: Workers = 1,
) -> None:
    """Let an expert say what a policy's doubtful decisions cost (AggreVaTe).

    `renco generate tsp --expert none --seed 2 --out data/fresh`, then
    `renco weigh --model runs/u --data data/fresh --out data/weighed`, then
    `renco train recurrent --init runs/u --regrets data/weighed ...`

    Run it again to continue where it stopped.
    """
    finite("--seconds", seconds, positive=True)
    finite("--doubt", doubt)
    from renco.checkpoints import load
    from renco.progress import ProgressBar
    from renco.regrets import weigh as run
    from renco.testsets import open_data

    policy = load(model)
    with ProgressBar("weigh") as bar:
        made = run(
            policy,
            open_data(data),
            out,
            k=1 if policy.recurrent is None else k,
            rivals=rivals,
            doubt=doubt,
            expert=expert,
            seconds=seconds,
            workers=workers,
            progress=bar,
        )
    write_text(f"{out}: {len(made)} sets, each decided by {policy.name}")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(weigh)
