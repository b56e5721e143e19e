"""Options of the commands that roll a policy out and ask an expert about it."""

from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option(metavar="NAME|PATH", help="The policy to roll out.")
]
Data = Annotated[
    str, typer.Option(metavar="DIR", help="Instances; labels are not needed.")
]
Out = Annotated[str, typer.Option(metavar="DIR", help="Folder to write.")]
K = Annotated[int, typer.Option(min=1, help="Steps between runs of the base encoder.")]
Expert = Annotated[
    str, typer.Option(metavar="NAME|auto", help="Who finishes the solutions.")
]
Seconds = Annotated[
    float | None, typer.Option(help="Time of the expert for a whole solution.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes.")]
