"""Shapes of the wire: what is written as JSON is read back as the same values."""

import json
from datetime import UTC, datetime

import pytest
from fakes.answering import passage

from rag_core import events, types
from rag_core.errors import ResponseError
from rag_core.wire.answer import Citation, Verdict
from rag_core.wire.events import decode_event, describe_event, event_name
from rag_core.wire.jobs import Links
from rag_core.wire.retrieval import Hit
from rag_core.wire.shape import json_bytes, json_text
from rag_core.wire.stages import Stage

NOW = datetime(2026, 5, 2, tzinfo=UTC)
PASSAGE = passage(1, "Keys are replaced every 45 days.", title="Keys")
CITATION = types.Citation(
    n=1,
    chunk_id=PASSAGE.hit.chunk.id,
    document_id=PASSAGE.hit.chunk.document_id,
    collection="docs",
    title="Keys",
    uri="file:///keys.md",
    quote="Keys are replaced",
    start=0,
    end=17,
    spans=((33, 36), (40, 43)),
    claim=(0, 33),
    score=0.875,
    page=3,
    section="Rotation",
    updated_at=NOW,
    grade="supported",
)
CLAIM = types.Claim(start=0, end=33, grade="supported", score=0.5, reason="verbatim")
EVENTS = [
    events.Sources((PASSAGE,)),
    events.ClarificationAsked(types.Clarification(question="Which one?", options=("Keys", "Locks"))),
    events.TextDelta("Keys [1]"),
    events.CitationAdded(CITATION),
    events.TextRetracted("unsupported"),
    events.Grounding(types.Verdict(grade="partial", score=0.5, claims=(CLAIM,), method="lexical")),
    events.StageFinished(types.StageReport(stage="dense", seconds=0.25, started=0.5, figures={"rows": 3})),
    events.RunFinished("stop", 0.5, 1.0, 1.5),
    events.RunFinished("passages", None, 0.75, 1.5),
]


@pytest.mark.parametrize("event", EVENTS, ids=event_name)
def test_an_event_is_read_back_as_it_was(event: events.Event) -> None:
    data = json.loads(json_text(describe_event(event, 1, NOW)))
    assert decode_event(event_name(event), data) == event


def test_events_that_only_show_progress_are_not_read() -> None:
    assert decode_event("stage_started", {"stage": "dense"}) is None


def test_members_of_a_newer_gateway_are_ignored_and_missing_ones_are_named() -> None:
    body = json.loads(json_bytes(Citation.describe(1, CITATION, NOW)))
    assert Citation.decode({**body, "mood": "calm"}).to_citation() == CITATION
    del body["claim"]
    with pytest.raises(ResponseError, match=r"invalid: Citation\.claim: Field required"):
        Citation.decode(body)


def test_members_that_were_not_set_are_left_out_and_null_ones_are_written() -> None:
    hit = Hit.describe(1, PASSAGE.hit, "keys")
    body = json.loads(json_bytes(hit))
    assert "explain" not in body
    assert body["page"] is None
    assert "explain" in json.loads(json_bytes(Hit.describe(1, PASSAGE.hit, "keys", ranks={})))


def test_numbers_keep_their_kind() -> None:
    report = types.StageReport(stage="generate", seconds=1.0, figures={"prompt_tokens": 3, "share": 0.5})
    assert '"figures":{"prompt_tokens":3,"share":0.5}' in json_text(Stage.describe(report))


def test_a_member_whose_name_is_a_word_of_python_has_its_own_name_in_json() -> None:
    assert json_text({"links": Links(self="/a", events="/b")}) == '{"links":{"self":"/a","events":"/b"}}'


def test_a_verdict_has_four_digits() -> None:
    assert Verdict.describe(types.Verdict(score=1 / 3)).score == 0.3333
