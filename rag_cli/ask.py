"""`rag ask`."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console

from jobs.options import Globals, command, output, print_json
from rag_cli.answer import Streamed, sources, verdict_line
from rag_cli.explain import waterfall, ways
from rag_cli.question_options import Collection, Filter, Server, asked_there
from rag_cli.search import parsed_option
from rag_core.config import Settings
from rag_core.events import Event, fold
from rag_core.types import DEFAULT_COLLECTION, Reply
from rag_core.wire import citations_json, source_json, stage_rows, verdict_json

Hear: TypeAlias = Callable[[Event], None]


@command
def ask(
    question: Annotated[str, typer.Argument(help="What is asked.")],
    options: Globals,
    collection: Collection = DEFAULT_COLLECTION,
    filter: Filter = None,
    server: Server = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="What was read for it, how that was found, and every stage's time.")
    ] = False,
) -> None:
    """An answer from what is stored, each sentence with its source; or that the sources do not say.

    Example: rag ask "how do I rotate the keys?" --collection docs
    """
    console = output()
    hear = _nothing if options.json else Streamed(console).hear
    answering = (
        partial(_asked_here, options.settings)
        if server is None
        else partial(_asked_there, server, asked_there(options))
    )
    reply = answering(question, collection, parsed_option(filter), hear)
    if options.json:
        print_json(reply_json(reply, explain))
        return
    _print(console, reply, options.verbose, explain)
    if reply.degraded:
        Console(stderr=True, quiet=options.quiet).print(f"left out: {', '.join(reply.degraded)}", markup=False)


def _asked_here(
    settings: Settings, question: str, collection: str, filters: Mapping[str, Any] | None, hear: Hear
) -> Reply:
    from rag_core.knowledge_base import KnowledgeBase

    with KnowledgeBase(settings) as knowledge:
        knowledge.load(answering=True)
        return knowledge.ask(question, collection, filters, tell=hear)


def _asked_there(
    server: str,
    heard: Mapping[str, Any],
    question: str,
    collection: str,
    filters: Mapping[str, Any] | None,
    hear: Hear,
) -> Reply:
    from rag_cli.remote import answered

    told: list[Event] = []
    for event in answered(server, {**heard, "question": question, "collection": collection, "filters": filters}):
        hear(event)
        told.append(event)
    return fold(told)


def reply_json(reply: Reply, explain: bool) -> dict[str, Any]:
    answer = reply.answer
    return {
        "answer": answer.text,
        "citations": citations_json(answer, datetime.now(UTC)),
        "verdict": verdict_json(answer.verdict),
        "confidence": round(answer.confidence, 4),
        "finish": answer.finish,
        "standalone": reply.standalone,
        "session_id": reply.query.session_id,
        "stages": stage_rows(reply.stages),
        "degraded": list(reply.degraded),
        **({"passages": [source_json(passage) for passage in reply.passages]} if explain else {}),
    }


def _nothing(_event: Event) -> None:
    """Hears nothing."""


def _print(console: Console, reply: Reply, stages: bool, explain: bool) -> None:
    console.print()
    console.print(sources(reply, console.is_terminal, datetime.now(UTC)))
    console.print(verdict_line(reply))
    if explain and reply.passages:
        console.print()
        console.print(ways([passage.hit for passage in reply.passages], reply.stages, console.width))
    if stages or explain:
        console.print()
        console.print(waterfall(reply.stages))
