"""`rag search`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rag_cli.question_options import (
    CollectionOption,
    FilterOption,
    GroupOption,
    HitsOption,
    ServerOption,
    print_unknown_keys,
    refuse_groups,
    server_options,
)
from rag_cli.ranking_view import comparison_table, hits_table, list_moves, print_failures, waterfall
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.config import Settings
from rag_core.errors import FilterError, UsageError
from rag_core.types import DEFAULT_COLLECTION, Chunk, Hit, StageReport
from rag_core.wire.highlights import find_highlights
from rag_core.wire.retrieval import Profile
from rag_core.wire.retrieval import Retrieval as RetrievalShape

MAX_PASSAGE_CHARS = 600
"""The maximum number of characters shown of a passage without neighbours."""


@command
def search(
    question: Annotated[str, typer.Argument(help="The question.")],
    options: GlobalOptions,
    k: HitsOption = 10,
    collection: CollectionOption = DEFAULT_COLLECTION,
    filter: FilterOption = None,
    context: Annotated[
        int, typer.Option(help="The number of chunks to show before and after each hit.", min=0, max=100)
    ] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each hit's rank and score at every step, and each stage's time.")
    ] = False,
    compare: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Compare with the hits of this profile.", show_default=False)
    ] = None,
    group: GroupOption = None,
    server: ServerOption = None,
) -> None:
    """Find passages that answer a question, best first.

    Example: rag search "how do I rotate the keys?" -k 3 --filter '{"key": "language", "type": "eq", "value": "en"}'
    """
    request = SearchRequest(
        question=question,
        k=k,
        collection=collection,
        filter=parse_filter_option(filter),
        groups=tuple(group or ()),
        context=context,
    )
    if server is not None:
        _search_server(server, request, options, explain, compare)
        return
    retrieval = _search_store(options, request)
    if compare is not None:
        other = _search_store(replace(options, profile=compare, quiet=True), request)
        _print_comparison(retrieval, other, options, explain)
    elif options.json:
        print_json(_full_retrieval_json(retrieval, explain))
    else:
        _print_retrieval(retrieval, explain, options.quiet)
    if not retrieval.hits:
        Console(stderr=True, quiet=options.quiet).print(f"no hits in {collection}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The parameters of a search. `context` is the number of chunks to fetch before and after each hit."""

    question: str
    k: int
    collection: str
    filter: Mapping[str, Any] | None
    groups: tuple[str, ...]
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The hits of a search. `neighbours` has one list per hit; `seconds` does not include the loading of models."""

    request: SearchRequest
    settings: Settings
    hits: Sequence[Hit]
    neighbours: Sequence[Sequence[Chunk]]
    stages: Sequence[StageReport]
    seconds: float


def _search_server(
    server: str, request: SearchRequest, options: GlobalOptions, explain: bool, compare: str | None
) -> None:
    from rag_cli.server_client import request_retrieval

    if request.context or compare is not None or (explain and not options.json):
        raise UsageError(
            "--context, --compare, and --explain without --json need direct access to the store; they cannot be used "
            "with --server"
        )
    refuse_groups(request.groups)
    body = {"query": request.question, "collection": request.collection, "top_k": request.k, "filters": request.filter}
    retrieval = request_retrieval(server, {**body, **server_options(options), "explain": explain})
    if options.json:
        print_json(retrieval)
    else:
        for hit in retrieval.results:
            _print_hit(stdout_console(), hit.rank, hit.to_hit(), [], request.question)
    for stage, reason in retrieval.degraded_reasons.items():
        if not options.quiet:
            typer.echo(f"left out {stage}: {reason}", err=True)
    if not retrieval.results:
        Console(stderr=True, quiet=options.quiet).print(f"no hits in {request.collection}")


def _search_store(options: GlobalOptions, request: SearchRequest) -> Retrieval:
    from rag_core.knowledge_base import KnowledgeBase

    settings = options.settings
    arguments = (request.question, request.k, request.collection, request.filter)
    groups = request.groups
    with KnowledgeBase(settings) as knowledge:
        print_unknown_keys(knowledge, request.filter, request.collection, options)
        knowledge.load()
        started = time.perf_counter()
        if request.context:
            hits, neighbours, stages = knowledge.search_around(*arguments, request.context, groups)
        else:
            hits, stages = knowledge.explain(*arguments, groups=groups)
            neighbours = [[] for _ in hits]
        seconds = time.perf_counter() - started
    return Retrieval(
        request=request, settings=settings, hits=hits, neighbours=neighbours, stages=stages, seconds=seconds
    )


def _full_retrieval_json(retrieval: Retrieval, explain: bool) -> dict[str, Any]:
    """The retrieval as the gateway returns it. With `--context`, each result also has the texts before and after it."""
    request, settings, hits = retrieval.request, retrieval.settings, retrieval.hits
    shape = RetrievalShape.describe(
        request.question,
        hits,
        retrieval.stages,
        seconds=retrieval.seconds,
        profile=Profile.describe(settings),
        pipeline_version=settings.pipeline_version,
        explain=explain,
    )
    body = shape.model_dump(exclude_unset=True)
    if request.context:
        for row, hit, neighbours in zip(body["results"], hits, retrieval.neighbours, strict=True):
            before, after = surrounding_text(hit.chunk, neighbours)
            row["context"] = {"before": before, "after": after}
    return body


def _print_retrieval(retrieval: Retrieval, explain: bool, quiet: bool) -> None:
    console = stdout_console()
    if not quiet:
        print_failures(retrieval.stages)
    for rank, (hit, neighbours) in enumerate(zip(retrieval.hits, retrieval.neighbours, strict=True), start=1):
        _print_hit(console, rank, hit, neighbours, retrieval.request.question)
    if explain:
        if retrieval.hits:
            console.print(hits_table(retrieval.hits, retrieval.stages, console.width))
            console.print()
        console.print(waterfall(retrieval.stages))


def _print_comparison(retrieval: Retrieval, other: Retrieval, options: GlobalOptions, explain: bool) -> None:
    names = (retrieval.settings.profile, other.settings.profile)
    if options.json:
        moves = [
            {
                "chunk_id": move.hit.chunk.id,
                "url": move.hit.origin.uri,
                "title": move.hit.origin.title,
                "ranks": [move.before or None, move.after or None],
            }
            for move in list_moves(retrieval.hits, other.hits)
        ]
        retrievals = [_full_retrieval_json(retrieval, explain), _full_retrieval_json(other, explain)]
        comparison = {"object": "comparison", "query": retrieval.request.question, "profiles": names}
        print_json({**comparison, "moves": moves, "retrievals": retrievals})
        return
    console = stdout_console()
    console.print(comparison_table(names, retrieval.hits, other.hits, console.width))
    if explain:
        for side in (retrieval, other):
            console.print(Text(f"\n{side.settings.profile}", style="bold"))
            console.print(hits_table(side.hits, side.stages, console.width))
            console.print()
            console.print(waterfall(side.stages))


def surrounding_text(chunk: Chunk, neighbours: Sequence[Chunk]) -> tuple[str, str]:
    """The text before and after the chunk. Text that chunks have in common is included only once."""
    chunks = sorted((chunk, *neighbours), key=lambda neighbour: neighbour.ordinal)
    index = chunks.index(chunk)
    before = [first.text[: max(0, second.start - first.start)] for first, second in pairwise(chunks[: index + 1])]
    after = [second.text[max(0, first.end - second.start) :] for first, second in pairwise(chunks[index:])]
    return "\n".join(map(str.strip, before)), "\n".join(map(str.strip, after))


def _print_hit(console: Console, rank: int, hit: Hit, neighbours: Sequence[Chunk], question: str) -> None:
    heading = Text.assemble((f"{rank}. ", "bold"), (hit.origin.title, "bold"), f"  {hit.score:.3f}")
    section = str(hit.chunk.metadata.get("section", ""))
    if section:
        heading.append(f"  {section}", style="cyan")
    if "page" in hit.chunk.metadata:
        heading.append(f"  page {hit.chunk.metadata['page']}", style="cyan")
    console.print(heading)
    console.print(Text(hit.origin.uri, style="dim"), soft_wrap=True)
    before, after = surrounding_text(hit.chunk, neighbours)
    if before:
        console.print(Text(before, style="dim"))
    text = hit.chunk.text
    if not neighbours and len(text) > MAX_PASSAGE_CHARS:
        text = text[:MAX_PASSAGE_CHARS].rsplit(" ", 1)[0] + " …"
    passage = Text(text)
    for start, end in find_highlights(question, passage.plain):
        passage.stylize("bold yellow", start, end)
    console.print(passage)
    if after:
        console.print(Text(after, style="dim"))
    console.print()


def parse_filter_option(text: str | None) -> Mapping[str, Any] | None:
    """The JSON value of the option `--filter`. Raises FilterError if it is null or not JSON."""
    if text is None:
        return None
    try:
        filter: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise FilterError(f"--filter must be JSON, got {text!r}: {error}") from None
    if filter is None:
        raise FilterError("--filter must be an object with `type`, got null")
    return filter
