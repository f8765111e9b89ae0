"""Options of every command that asks a question."""

from typing import Annotated

import typer

Hits = Annotated[int, typer.Option("-k", help="How many hits.", min=1, max=1000)]
Collection = Annotated[str, typer.Option(help="Where it is asked.")]
Filter = Annotated[str | None, typer.Option(metavar="JSON", help="A condition on metadata.", show_default=False)]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask a gateway there, and not this store.", show_default=False)
]
