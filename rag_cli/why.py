"""`rag why`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rag_cli.question_options import CollectionOption, FilterOption, GroupOption, HitsOption, print_unknown_keys
from rag_cli.search import parse_filter_option
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.retrieval.why import UNRANKED, ChunkRank, Facts, Verdict, verdict
from rag_core.types import DEFAULT_COLLECTION

KEPT_MARK, LOST_MARK = ("✔", "green"), ("✘", "bold red")


@command
def why(
    question: Annotated[str, typer.Argument(help="The question.")],
    uri: Annotated[str, typer.Argument(help="The document: its uri, or a path.")],
    options: GlobalOptions,
    k: HitsOption = 10,
    collection: CollectionOption = DEFAULT_COLLECTION,
    filter: FilterOption = None,
    group: GroupOption = None,
    span: Annotated[
        str, typer.Option(metavar="TEXT", help="Words of the document that should be found.", show_default=False)
    ] = "",
) -> None:
    """Explain why a document is a hit of a question, or which step lost it and what would have kept it.

    A document that only other groups can read appears as never stored.

    Example: rag why "how do I rotate the keys?" docs/keys.md
    """
    from rag_core.knowledge_base import KnowledgeBase

    document_uri = uri if "://" in uri else Path(uri).resolve().as_uri()
    filters = parse_filter_option(filter)
    with KnowledgeBase(options.settings) as knowledge:
        print_unknown_keys(knowledge, filters, collection, options)
        facts = knowledge.why(question, document_uri, k, collection, filters, groups=tuple(group or ()), span=span)
    print_facts(facts, question, options)


def print_facts(facts: Facts, question: str, options: GlobalOptions) -> None:
    """Prints each step's rank of the document, the conclusion, and what would have kept the document."""
    conclusion = verdict(facts)
    if options.json:
        print_json(_explanation_json(question, facts, conclusion))
        return
    console = stdout_console()
    console.print(Text(facts.stored.uri, style="bold"), soft_wrap=True)
    console.print(_steps_table(facts, conclusion))
    heading = ("Found:", "bold green") if conclusion.step == "found" else (f"Lost at {conclusion.step}:", "bold red")
    console.print(Text.assemble("\n", heading, " ", conclusion.reason))
    for remedy in conclusion.remedies:
        console.print(Text(f"  would have kept it: {remedy}"))


def _steps_table(facts: Facts, conclusion: Verdict) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for is_kept, step, chunk_rank, remark in _list_steps(facts, conclusion):
        rank = f"rank {chunk_rank.rank}" if chunk_rank.rank else ""
        score = f"{chunk_rank.score:.4f}" if chunk_rank.rank else ""
        mark = KEPT_MARK if is_kept else LOST_MARK
        table.add_row(Text(*mark), step, rank, Text.assemble((score, "dim"), "  ", remark))
    return table


def _list_steps(facts: Facts, conclusion: Verdict) -> Iterator[tuple[bool, str, ChunkRank, str]]:
    """Yields the steps in order: True if a step kept the document, its name, the document's rank, and a remark."""
    stored = facts.stored
    job = f" by job {str(stored.job)[:8]}" if stored.job and stored.status else ""
    state = f"{stored.status}{job}, {len(stored.chunks)} chunks" if stored.status else "not in this collection"
    yield bool(stored.chunks), "stored", UNRANKED, state
    if stored.chunks:
        yield True, "access", UNRANKED, ", ".join(stored.groups) or "everyone"
        passing = f"{len(stored.passing_chunks)} of {len(stored.chunks)} chunks pass"
        yield bool(stored.passing_chunks), "filter", UNRANKED, passing
    if stored.chunks and facts.span:
        chunks = ", ".join(map(str, facts.span.whole)) or "none"
        yield conclusion.step != "span", "span", UNRANKED, f"chunks with the entire span: {chunks}"
    for leg in facts.legs:
        rank = f"chunk {leg.place.chunk}; the leg returns {leg.depth}" if leg.place.rank else "not ranked"
        yield leg.handed_on, leg.leg, leg.place, f"{rank}; {leg.error}" if leg.error else rank
    for step in facts.steps[len(facts.legs) == 1 :]:
        limit = f"{step.passes} requested" if step.reader == "k" else f"{step.passes} read by {step.reader}"
        yield step.kept, step.step, step.place, f"chunk {step.place.chunk}, {limit}" if step.place.rank else "dropped"
    if facts.legs:
        yield bool(facts.hit.rank), "hits", facts.hit, f"of {facts.k}"


def _explanation_json(question: str, facts: Facts, conclusion: Verdict) -> dict[str, Any]:
    stored = facts.stored
    return {
        "object": "why",
        "query": question,
        "verdict": asdict(conclusion),
        "document": {
            "uri": stored.uri,
            "collection": stored.collection,
            "status": stored.status or None,
            "stage": stored.stage or None,
            "reason": stored.reason or None,
            "job": stored.job,
            "deleted": stored.deleted,
            "elsewhere": stored.other_collections,
            "groups": stored.groups,
            "chunks": len(stored.chunks),
            "chunks_passing": len(stored.passing_chunks),
        },
        "span": asdict(facts.span) if facts.span else None,
        "legs": [{**asdict(leg), "place": _rank_json(leg.place)} for leg in facts.legs],
        "steps": [{**asdict(step), "place": _rank_json(step.place)} for step in facts.steps],
        "hit": _rank_json(facts.hit),
        "k": facts.k,
    }


def _rank_json(chunk_rank: ChunkRank) -> dict[str, Any] | None:
    return asdict(chunk_rank) if chunk_rank.rank else None
