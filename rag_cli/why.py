"""`rag why`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from jobs.options import Globals, command, output, print_json
from rag_cli.question_options import Collection, Filter, Hits
from rag_cli.search import parsed_option
from rag_core.retrieval.why import NOWHERE, Facts, LegFacts, Place, StepFacts, Verdict, verdict
from rag_core.types import DEFAULT_COLLECTION

KEPT, LOST = ("✔", "green"), ("✘", "bold red")


@command
def why(
    question: Annotated[str, typer.Argument(help="What is asked.")],
    uri: Annotated[str, typer.Argument(help="The document: its uri, or a path to it.")],
    options: Globals,
    k: Hits = 10,
    collection: Collection = DEFAULT_COLLECTION,
    filter: Filter = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Asked as a member of this group; several times.", show_default=False)
    ] = None,
    span: Annotated[
        str, typer.Option(metavar="TEXT", help="Words of the document that should be found.", show_default=False)
    ] = "",
) -> None:
    """Why a document is among a question's hits or not: the step that lost it, and what would have kept it.

    Of a document that only other groups may read it shows what it shows of one that was never stored.

    Example: rag why "how do I rotate the keys?" docs/keys.md
    """
    from rag_core.knowledge_base import KnowledgeBase

    with KnowledgeBase(options.settings) as knowledge:
        facts = knowledge.why(
            question, _uri(uri), k, collection, parsed_option(filter), groups=tuple(group or ()), span=span
        )
    found = verdict(facts)
    if options.json:
        print_json(_json(question, facts, found))
        return
    console = output()
    console.print(Text(facts.stored.uri, style="bold"), soft_wrap=True)
    console.print(_steps(facts, found))
    console.print(Text.assemble("\n", _headline(found), " ", found.reason))
    for remedy in found.remedies:
        console.print(Text(f"  would have kept it: {remedy}"))


def _uri(text: str) -> str:
    return text if "://" in text else Path(text).resolve().as_uri()


def _headline(found: Verdict) -> tuple[str, str]:
    return ("Found:", "bold green") if found.step == "found" else (f"Lost at {found.step}:", "bold red")


def _steps(facts: Facts, found: Verdict) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for kept, step, place, remark in (*_stored(facts, found), *_ranked(facts)):
        rank = f"rank {place.rank}" if place.rank else ""
        score = f"{place.score:.4f}" if place.rank else ""
        table.add_row(Text(*(KEPT if kept else LOST)), step, rank, Text.assemble((score, "dim"), "  ", remark))
    return table


def _stored(facts: Facts, found: Verdict) -> Iterator[tuple[bool, str, Place, str]]:
    stored = facts.stored
    job = f" by job {str(stored.job)[:8]}" if stored.job and stored.status else ""
    state = f"{stored.status}{job}, {len(stored.chunks)} chunks" if stored.status else "not in this collection"
    yield bool(stored.chunks), "stored", NOWHERE, state
    if not stored.chunks:
        return
    yield True, "access", NOWHERE, ", ".join(stored.groups) or "everyone"
    yield bool(stored.passing), "filter", NOWHERE, f"{len(stored.passing)} of {len(stored.chunks)} chunks pass"
    if facts.span:
        whole = ", ".join(map(str, facts.span.whole))
        yield found.step != "span", "span", NOWHERE, f"whole in chunk {whole}" if whole else "whole in no chunk"


def _ranked(facts: Facts) -> Iterator[tuple[bool, str, Place, str]]:
    for leg in facts.legs:
        yield leg.handed_on, leg.leg, leg.place, _leg_remark(leg)
    for step in facts.steps[len(facts.legs) == 1 :]:
        yield step.kept, step.step, step.place, _step_remark(step)
    if facts.legs:
        yield bool(facts.hit.rank), "hits", facts.hit, f"of {facts.k}"


def _step_remark(step: StepFacts) -> str:
    reader = "asked for" if step.reader == "k" else f"read by {step.reader}"
    return f"chunk {step.place.chunk}, {step.passes} {reader}" if step.place.rank else "dropped"


def _leg_remark(leg: LegFacts) -> str:
    where = f"chunk {leg.place.chunk}, hands on {leg.depth}" if leg.place.rank else "not ranked at all"
    return f"{where}; {leg.error}" if leg.error else where


def _json(question: str, facts: Facts, found: Verdict) -> dict[str, Any]:
    stored = facts.stored
    return {
        "object": "why",
        "query": question,
        "verdict": asdict(found),
        "document": {
            "uri": stored.uri,
            "collection": stored.collection,
            "status": stored.status or None,
            "stage": stored.stage or None,
            "reason": stored.reason or None,
            "job": stored.job,
            "deleted": stored.deleted,
            "elsewhere": stored.elsewhere,
            "groups": stored.groups,
            "chunks": len(stored.chunks),
            "chunks_passing": len(stored.passing),
        },
        "span": asdict(facts.span) if facts.span else None,
        "legs": [{**asdict(leg), "place": _place(leg.place)} for leg in facts.legs],
        "steps": [{**asdict(step), "place": _place(step.place)} for step in facts.steps],
        "hit": _place(facts.hit),
        "k": facts.k,
    }


def _place(place: Place) -> dict[str, Any] | None:
    return asdict(place) if place.rank else None
