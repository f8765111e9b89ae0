"""The `rag` command. Each subcommand is a small file that imports heavy modules only when it runs."""

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand

from rag_cli import audit, cluster, collections, config, dataset, documents, feedback, jobs, keys, sources, store
from rag_cli.ask import ask
from rag_cli.chat import chat
from rag_cli.compare import compare
from rag_cli.doctor import doctor
from rag_cli.evaluate import evaluate
from rag_cli.experiment import experiment
from rag_cli.fsck import fsck
from rag_cli.gate import gate
from rag_cli.ingest import ingest
from rag_cli.promote import promote
from rag_cli.purge import purge
from rag_cli.push import add_server_option
from rag_cli.report import report
from rag_cli.schedule import add_every_option
from rag_cli.search import search
from rag_cli.serve import serve
from rag_cli.train_fusion import train_fusion
from rag_cli.why import why
from rag_core import __version__


class ValueNamingCommand(TyperCommand):
    """A command whose usage errors name the value, too."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = error.message.replace("Value error, ", "")
                value = repr(error.__cause__.errors()[0]["input"])
                if value not in error.message:
                    error.message += f", got {value:.60}"
            raise


app = typer.Typer(
    help="Keeps a knowledge base in sync with its sources, searches it, and answers from it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"rag-on-ray {__version__}")
        raise typer.Exit


@app.callback()
def rag(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(add_every_option(add_server_option(ingest)))
app.command()(search)
app.command()(ask)
app.command()(chat)
app.command()(why)
app.command()(serve)
app.command()(evaluate)
app.command()(compare)
app.command()(gate)
app.command()(promote)
app.command()(report)
app.command()(experiment)
app.command()(train_fusion)
app.add_typer(dataset.app, name="dataset")
app.add_typer(feedback.app, name="feedback")
app.add_typer(documents.app, name="documents")
app.add_typer(collections.app, name="collections")
app.add_typer(sources.app, name="sources")
app.add_typer(jobs.app, name="jobs")
app.add_typer(cluster.app, name="cluster")
app.add_typer(store.app, name="store")
app.add_typer(keys.app, name="keys")
app.add_typer(audit.app, name="audit")
app.command()(fsck)
app.command()(purge)
app.add_typer(config.app, name="config")
app.command()(doctor)
for commands in (app, *(group.typer_instance for group in app.registered_groups)):
    for command in commands.registered_commands if commands else ():
        command.cls = ValueNamingCommand
