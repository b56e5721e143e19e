"""`renco train`: from trajectories to a model."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from renco.commands.console import finite, usage, write_text


def train(
    stage: Annotated[
        Literal["base", "recurrent"],
        typer.Argument(metavar="base|recurrent", help="The stage."),
    ],
    data: Annotated[
        list[str],
        typer.Option(metavar="DIR", help="Labelled set, or a folder of sets."),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Folder of the model, log, curves and snapshot."
        ),
    ],
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="paper, cpu (default) or smoke.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE.toml", help="Settings of your own.")
    ] = None,
    val: Annotated[
        str | None, typer.Option(metavar="DIR", help="Set to validate on.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="Base model of stage recurrent."),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH", help="Model to begin with, not from scratch."
        ),
    ] = None,
    corrections: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Mix in what renco correct wrote."),
    ] = None,
    regrets: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Mix in what renco weigh wrote."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Length of the training.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Length of the training, in updates.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out.")
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda[:i]", help="Where to train.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processor threads.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Curves for TensorBoard, in --out.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of weights and batches.")
    ] = None,
) -> None:
    """Train a policy on an expert's trajectories (Algorithm 3).

    First the base: `renco train base --data data/tsp100 --out runs/base`

    Then the recurrent encoder: `renco train recurrent --base runs/base
    --data data/tsp100 --out runs/rec`

    Sets of several sizes train one model: repeat `--data`, or name the folder that
    `renco generate --from` made of your files.

    A trial of a minute: `renco train base --preset smoke --data data/x --out runs/x`

    Several processes: `torchrun --nproc-per-node=4 -m renco train base ...`; with
    `--max-restarts=3` they go on from the last snapshot when one of them has died.
    """
    if preset is not None and config is not None:
        raise usage("give a preset or a file of settings, not both", "--config")
    if minutes is not None and steps is not None:
        raise usage("give minutes or steps, not both", "--steps")
    if stage == "recurrent" and base is None:
        raise usage("stage recurrent needs a base model", "--base")
    finite("--minutes", minutes, positive=True)
    from dataclasses import replace

    from renco.plot import plot_curves
    from renco.solver import find_device, using_threads
    from renco.testsets import open_data, open_sets
    from renco.training import LOG, TrainConfig
    from renco.training import preset as find_preset
    from renco.training import train as run

    where = find_device(device)
    sets = [one for source in data for one in open_sets(source)]
    if config is not None:
        settings = TrainConfig.from_toml(config)
    else:
        try:
            settings = find_preset(preset or "cpu", stage)
        except ValueError as error:
            raise usage(str(error), "--preset") from None
    if minutes is not None:
        settings = replace(settings, minutes=minutes, steps=0)
    if steps is not None:
        settings = replace(settings, steps=steps, minutes=0.0)
    if seed is not None:
        settings = replace(settings, seed=seed)
    with using_threads(threads):
        run(
            stage,
            settings,
            data=sets,
            out=out,
            val=None if val is None else open_data(val),
            base=base,
            init=init,
            corrections=corrections or (),
            regrets=regrets or (),
            resume=resume,
            device=where,
            tensorboard=tensorboard,
        )
    if int(os.environ.get("RANK", "0")) > 0:  # one of several processes speaks
        return
    plot_curves({Path(out).name: Path(out) / LOG}, Path(out) / "curves.png")
    write_text(f"{out}: trained, seed {settings.seed}; its curves are in curves.png")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(train)
