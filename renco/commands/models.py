"""`renco models`: what is shipped."""

from collections import Counter
from typing import Annotated, Any

import typer

from renco.commands.console import say, write_json_to, write_table


def models(
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON instead.")
    ] = None,
) -> None:
    """List the shipped models: problem, size, training, measured gaps.

    `renco models`

    A `*` marks the one that `renco solve` takes unless told otherwise.
    """
    from renco.checkpoints import read_config, shipped
    from renco.solver import default_model

    configs = {name: read_config(name) for name in shipped()}
    if json is not None:
        write_json_to(json, [{**config, "name": n} for n, config in configs.items()])
        return
    if not configs:
        say("no models are shipped with this installation: train one, see renco train")
        return
    defaults = {default_model(c["policy"]["problem"]) for c in configs.values()}
    columns = ("model", "problem", "encoder", "trained on", "gaps", "parameters")
    rows = [_row(name, c, name in defaults) for name, c in configs.items()]
    write_table(columns, rows, left=5)


def _row(name: str, config: dict[str, Any], default: bool) -> tuple[str, ...]:
    policy = config["policy"]
    sizes = [policy["base"], policy.get("recurrent")]
    encoder = " + ".join(f"L{s['layers']}-d{s['d']}-h{s['heads']}" for s in sizes if s)
    return (
        f"{name} *" if default else name,
        policy["problem"],
        encoder,
        _training(config),
        _gaps(config),
        f"{config.get('parameters', 0):,}",
    )


def _training(config: dict[str, Any]) -> str:
    """Returns what a model was trained on."""
    if "trained_on" in config:
        return _short(config["trained_on"])
    data = config.get("training", {}).get("data", [])
    sets = data if isinstance(data, list) else [data]  # older ones name one set
    counts: Counter[str] = Counter()
    for one in {str(one): one for one in sets}.values():  # each once
        counts[f"{one['problem']}{one['n']}"] += one["count"]
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _gaps(config: dict[str, Any]) -> str:
    """Returns measured gaps in percent: on the first test set, else in validation.

    JSON has those of all sets.
    """
    if "gaps" in config:
        return _short(dict([*config["gaps"].items()][:1]))
    validation = config.get("validation", {})
    gaps = {k.removeprefix("val_gap"): v for k, v in validation.items() if "gap" in k}
    return _short({f"validation{k.replace('_', ' ')}": v for k, v in gaps.items()})


def _short(value: Any) -> str:
    """Returns what a config says about a model in a few words."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(models)
