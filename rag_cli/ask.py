"""`rag ask`."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from rag_cli.answer_view import AnswerPrinter, render_sources, render_verdict
from rag_cli.answerers import ShowEvent, open_answerer
from rag_cli.question_options import CollectionOption, FilterOption, GroupOption, ServerOption, SessionOption
from rag_cli.ranking_view import hits_table, print_failures, waterfall
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.types import DEFAULT_COLLECTION, Reply
from rag_core.wire.answer import Asked


@command
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    options: GlobalOptions,
    collection: CollectionOption = DEFAULT_COLLECTION,
    filter: FilterOption = None,
    session: SessionOption = "",
    group: GroupOption = None,
    server: ServerOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the passages, how they were found, and the time of each stage.")
    ] = False,
) -> None:
    """Answer a question from the stored documents and cite a source for each sentence, or report that none answers it.

    Example: rag ask "how do I rotate the keys?" --collection docs
    """
    console = stdout_console()
    show_event: ShowEvent = (lambda _event: None) if options.json else AnswerPrinter(console).print_event
    with open_answerer(options, collection, filter, server, tuple(group or ())) as answerer:
        reply, id = answerer.ask(question, session, show_event)
    if not options.quiet:
        print_failures(reply.stages)
    if options.json:
        print_json(Asked.describe(reply, datetime.now(UTC), explain, id))
        return
    print_details(console, reply, options.verbose, explain)
    if id and not options.quiet:
        typer.echo(f"to rate this answer: rag feedback {id} --thumbs up|down --server {server}", err=True)


def print_details(console: Console, reply: Reply, stages: bool, explain: bool) -> None:
    """Prints the sources and the verdict, and on request the hits and the stages."""
    console.print()
    console.print(render_sources(reply, console.is_terminal, datetime.now(UTC)))
    console.print(render_verdict(reply))
    if explain and reply.passages:
        console.print()
        console.print(hits_table([passage.hit for passage in reply.passages], reply.stages, console.width))
    if stages or explain:
        console.print()
        console.print(waterfall(reply.stages))
