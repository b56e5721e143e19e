"""`renco correct`: expert answers to a policy's own states (DAgger)."""

from typing import Annotated

import typer

from renco.commands.console import finite, write_text
from renco.commands.rolling import Data, Expert, K, Model, Out, Seconds, Workers


def correct(
    model: Model,
    data: Data,
    out: Out,
    k: K = 1000,
    stops: Annotated[int, typer.Option(min=1, help="Corrections per instance.")] = 8,
    doubt: Annotated[
        float,
        typer.Option(
            min=0,
            max=10,
            help="Stop rather where the policy doubts; 0 stops anywhere alike.",
        ),
    ] = 2.0,
    expert: Expert = "auto",
    seconds: Seconds = None,
    workers: Workers = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides where the policy is stopped.")
    ] = 0,
) -> None:
    """Let an expert finish what a policy began, to train on (DAgger).

    `renco generate tsp --expert none --seed 2 --out data/fresh`, then
    `renco correct --model runs/base --data data/fresh --out data/corrected`, then
    `renco train base --init runs/base --corrections data/corrected ...`

    Run it again to continue where it stopped.
    """
    finite("--seconds", seconds, positive=True)
    finite("--doubt", doubt)
    from renco.checkpoints import load
    from renco.dagger import correct as run
    from renco.progress import ProgressBar
    from renco.testsets import open_data

    policy = load(model)
    with ProgressBar("correct") as bar:
        made = run(
            policy,
            open_data(data),
            out,
            k=1 if policy.recurrent is None else k,
            stops=stops,
            doubt=doubt,
            expert=expert,
            seconds=seconds,
            workers=workers,
            seed=seed,
            progress=bar,
        )
    write_text(f"{out}: {len(made)} sets, each begun by {policy.name}")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(correct)
