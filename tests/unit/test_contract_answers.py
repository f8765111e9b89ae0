import asyncio
import json
import logging
import pickle
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from fakes.openai_endpoint import (
    CUT,
    HANG,
    Endpoint,
    ScriptedHttpResponse,
    error_response,
    piece,
    run_endpoint,
    stream_response,
)

from rag_core.answering.pipeline import ABSTENTION
from rag_core.contract import (
    Citation,
    GeneratedResponse,
    RetrievedChunk,
    expand_query,
    generate_answer,
    generation,
    pre_retrieval,
    preprocess_query,
    rerank_chunks,
)
from rag_core.contract.chunk import CHUNK_KEYS
from rag_core.contract.equal_rarities import EqualRarities
from rag_core.retrieval.query.expansion import MAX_QUESTION_CHARS
from rag_core.types import Prompt, Query

QUESTION = "When are SAEs reported?"
KEYS = "Keys are kept in a safe. Keys are rotated every week by Ada."
LOCKS = "Locks are oiled in spring."
KEYS_ID, LOCKS_ID = UUID(int=1), UUID(int=2)
NOT_EXPANDED = "the question is not expanded: "


class WritingGenerator:
    """Writes its `text`, and records its prompts."""

    def __init__(self) -> None:
        self.text: str | Exception = ""
        self.prompts: list[Prompt] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.prompts.append(prompt)
        if isinstance(self.text, Exception):
            raise self.text
        for letter in self.text:
            yield letter


GENERATOR = WritingGenerator()


def build_generator() -> WritingGenerator:
    return GENERATOR


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> WritingGenerator:
    generate_by(monkeypatch, type="python", object=f"{__name__}:build_generator")
    GENERATOR.prompts.clear()
    return GENERATOR


def generate_by(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"RAG_GENERATION__{name.upper()}", json.dumps(value))


@contextmanager
def profile_with(monkeypatch: pytest.MonkeyPatch, *plays: ScriptedHttpResponse, **settings: Any) -> Iterator[Endpoint]:
    """A profile whose generator is a language model that answers so."""
    with run_endpoint(*plays) as endpoint:
        generate_by(monkeypatch, type="openai", model="llama", base_url=endpoint.url, attempts=1, **settings)
        yield endpoint


def chunk(text: str, id: UUID | None = None, **metadata: str) -> RetrievedChunk:
    return RetrievedChunk(
        chunk_id=id or uuid4(),
        text=text,
        similarity_score=0.5,
        source="vector",
        metadata=metadata or {"uri": "x.md"},
        scores={},
    )


def chunks() -> list[RetrievedChunk]:
    return [chunk(LOCKS, LOCKS_ID, filename="locks.pdf"), chunk(KEYS, KEYS_ID, uri="file:///all/the%20keys.md")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("rag_core.contract")]


def test_a_question_is_expanded_by_terms_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = ["serious adverse ev", "ents, SAEs, safety reports,\n- reported, Serious adverse events, filed when."]
    with profile_with(monkeypatch, stream_response(*pieces)) as endpoint:
        assert expand_query(QUESTION) == f"{QUESTION} serious adverse events safety reports filed when"
    [request] = endpoint.requests
    assert request.body["temperature"] == 0.1
    assert QUESTION in request.body["messages"][-1]["content"]


def test_at_most_eight_terms_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    with profile_with(monkeypatch, stream_response(", ".join(f"term{n}" for n in range(20)))):
        assert expand_query("which?").split() == ["which?", *(f"term{n}" for n in range(8))]


@pytest.mark.parametrize("reply", ["none", "NONE.", "", "SAEs, reported", "So it is. " * 7])
def test_without_new_terms_a_question_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reply: str
) -> None:
    with profile_with(monkeypatch, stream_response(reply)):
        assert expand_query(QUESTION) == QUESTION
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("play", "reason"),
    [
        (error_response(401, {"error": {"message": "who are you?"}}), "refused with 401: who are you?"),
        (ScriptedHttpResponse(steps=[piece("serious "), CUT]), "broke off"),
        (ScriptedHttpResponse(steps=[b"data: {]\n\n"]), "an invalid chat completion chunk"),
    ],
    ids=["refused", "cut", "malformed"],
)
def test_a_question_whose_expansion_fails_stays_as_it_is_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, play: ScriptedHttpResponse, reason: str
) -> None:
    with profile_with(monkeypatch, play):
        assert expand_query(QUESTION) == QUESTION
        [warning] = warnings(caplog)
        assert warning.startswith(NOT_EXPANDED)
        assert reason in warning
        with pytest.raises(RuntimeError, match="the question cannot be expanded: "):
            expand_query(QUESTION, strict=True)


def test_an_expansion_that_is_late_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(pre_retrieval, "EXPANSION_TIMEOUT", 2.0)
    with profile_with(monkeypatch, ScriptedHttpResponse(steps=[piece("serious"), HANG])) as endpoint:
        assert expand_query(QUESTION) == QUESTION
        assert endpoint.client_left.wait(60)
    assert warnings(caplog) == [f"{NOT_EXPANDED}expand took longer than 2.000 s"]


def test_terms_that_reach_their_limit_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cut = {"choices": [{"index": 0, "delta": {"content": "serious"}, "finish_reason": "length"}]}
    steps = [f"data: {json.dumps(cut)}\n\n".encode(), b"data: [DONE]\n\n"]
    with profile_with(monkeypatch, ScriptedHttpResponse(steps=steps)):
        assert expand_query(QUESTION) == QUESTION
    assert warnings(caplog) == [
        f"{NOT_EXPANDED}the model must finish the terms of an expansion, got finish reason length"
    ]


def test_a_profile_without_a_language_model_expands_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert expand_query(QUESTION) == QUESTION
    assert warnings(caplog) == [f"{NOT_EXPANDED}generation.type must be openai (a language model), got extractive"]
    with pytest.raises(RuntimeError, match="got extractive"):
        expand_query(QUESTION, strict=True)


def test_a_question_that_is_very_long_is_not_sent_to_be_expanded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with profile_with(monkeypatch, stream_response("more")) as endpoint:
        assert expand_query("x" * MAX_QUESTION_CHARS) == f"{'x' * MAX_QUESTION_CHARS} more"
        assert expand_query("x" * (MAX_QUESTION_CHARS + 1)) == "x" * (MAX_QUESTION_CHARS + 1)
    assert len(endpoint.requests) == 1
    assert warnings(caplog)[0].endswith("must have 1 to 1000 characters, got 1001")


def test_a_question_is_expanded_inside_a_running_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> str:
        return expand_query(QUESTION)

    with profile_with(monkeypatch, stream_response("serious adverse events")):
        assert asyncio.run(ask()) == f"{QUESTION} serious adverse events"


@pytest.mark.parametrize(
    ("question", "plain"),
    [
        (None, ""),
        ("", ""),
        (" \n\t\u3000", ""),
        ("\x00\x1b\x7f\x85", ""),
        ("who  oils\r\nlocks?", "who oils locks?"),
        ("\x07who\x00oils\ud800locks?", "who oils locks?"),
        ("Was kostet ½ Ｘ²?", "Was kostet ½ Ｘ²?"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("word \x01" * 150_000, " ".join(["word"] * 150_000)),
    ],
    ids=["none", "empty", "blank", "controls", "lines", "dirty", "signs", "joiners", "a megabyte"],
)
@pytest.mark.parametrize("enable_expansion", [False, True])
def test_a_question_is_put_on_one_line_whatever_it_is(question: str | None, plain: str, enable_expansion: bool) -> None:
    assert preprocess_query(question, enable_expansion) == plain


def test_a_question_is_expanded_only_if_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with profile_with(monkeypatch, stream_response("serious adverse events")) as endpoint:
        assert preprocess_query(f" {QUESTION}\n") == QUESTION
        assert preprocess_query("\x00", enable_expansion=True) == ""
        assert endpoint.requests == []
        assert preprocess_query(f" {QUESTION}\n", enable_expansion=True) == f"{QUESTION} serious adverse events"


@pytest.mark.parametrize("url", ["http://[", "http://", "http://me:secret@localhost/v1"])
def test_an_endpoint_that_cannot_be_asked_does_not_keep_a_question_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    generate_by(monkeypatch, type="openai", model="llama", base_url=url, attempts=1)
    assert preprocess_query(QUESTION, enable_expansion=True) == QUESTION
    [warning] = warnings(caplog)
    assert warning.startswith(NOT_EXPANDED)


def test_a_question_that_no_request_can_hold_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with profile_with(monkeypatch, stream_response("more")) as endpoint:
        assert expand_query("which\ud800?") == "which\ud800?"
    assert endpoint.requests == []


def test_settings_that_break_a_rule_do_not_keep_a_question_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAG_GENERATION__TYPE", "nobody")
    assert preprocess_query(QUESTION, enable_expansion=True) == QUESTION
    assert "nobody" in caplog.text


def test_an_answer_cites_the_chunks_by_their_places(generator: WritingGenerator) -> None:
    generator.text = "Keys are rotated every week [2]. Locks are oiled in spring [1]."
    assert generate_answer("What is done?", chunks()) == GeneratedResponse(
        answer_text=generator.text,
        citations=[
            Citation(n=2, chunk_id=KEYS_ID, text_excerpt="Keys are rotated every week by Ada.", filename="the keys.md"),
            Citation(n=1, chunk_id=LOCKS_ID, text_excerpt=LOCKS, filename="locks.pdf"),
        ],
        confidence=1.0,
    )


def test_the_generator_reads_all_chunks_in_their_order_and_the_question_as_it_was_asked(
    generator: WritingGenerator,
) -> None:
    generator.text = "So it is [1]."
    texts = [chunk(f"Text number {n}.") for n in range(40)]
    generate_answer("what  is\nit?", texts)
    [prompt] = generator.prompts
    assert prompt.query.text == "what  is\nit?"
    assert [(passage.n, passage.text) for passage in prompt.passages] == [
        (n, row.text) for n, row in enumerate(texts, 1)
    ]
    assert prompt.hits == ()


def test_confidence_is_the_share_of_sentences_that_are_cited(generator: WritingGenerator) -> None:
    generator.text = "Keys are rotated every week [2]. Nobody knows why."
    assert generate_answer("What is done?", chunks()).confidence == 0.5


def test_a_marker_of_no_chunk_is_not_shown(generator: WritingGenerator) -> None:
    generator.text = "Keys are rotated every week [2][7]."
    response = generate_answer("What is done?", chunks())
    assert response.answer_text == "Keys are rotated every week [2]."
    assert [citation.n for citation in response.citations] == [2]


def test_chunks_that_do_not_answer_are_not_cited(generator: WritingGenerator) -> None:
    generator.text = ""
    assert generate_answer("What is done?", chunks()) == GeneratedResponse(
        answer_text=ABSTENTION, citations=[], confidence=0.0
    )


def test_dictionaries_of_the_caller_are_answered_from_like_chunks(generator: WritingGenerator) -> None:
    generator.text = "Keys are rotated every week [2]. Locks are oiled in spring [1]."
    plain = [dict(row) for row in chunks()]
    as_read_from_json = [{**row, "chunk_id": str(row["chunk_id"])} for row in plain]
    answer = generate_answer("What is done?", chunks())
    assert generate_answer("What is done?", plain) == generate_answer("What is done?", as_read_from_json) == answer


@pytest.mark.parametrize("key", CHUNK_KEYS)
def test_a_chunk_that_lacks_a_key_is_a_value_error_that_names_it(key: str) -> None:
    plain = [dict(row) for row in chunks()]
    del plain[1][key]
    for take in (generate_answer, rerank_chunks):
        with pytest.raises(ValueError, match=rf"chunks\[1\] must have the keys .*; missing: {key}$"):
            take("What is done?", plain)


def test_an_id_that_is_not_a_uuid_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"chunks\[0\]: chunk_id must be a UUID, got 7"):
        generate_answer("What is done?", [{**chunk(KEYS), "chunk_id": 7}])


def test_the_values_of_a_chunk_are_its_attributes_too_and_survive_a_copy() -> None:
    retrieved = chunk(KEYS, KEYS_ID, kind="memo").rescored("rerank", 2.0, 0.9)
    assert retrieved == {
        **{"chunk_id": KEYS_ID, "text": KEYS, "similarity_score": 0.9},
        **{"source": "vector", "metadata": {"kind": "memo"}},
    }
    copy = pickle.loads(pickle.dumps(retrieved))  # noqa: S301 - our own bytes
    values = (copy.chunk_id, copy.text, copy.similarity_score, copy.source, copy.metadata, copy.scores)
    assert values == (KEYS_ID, KEYS, 0.9, "vector", {"kind": "memo"}, {"rerank": 2.0})


def test_without_chunks_or_words_there_is_nothing_to_answer() -> None:
    with pytest.raises(ValueError, match="chunks must contain at least one chunk, got none"):
        generate_answer("What is done?", [])
    with pytest.raises(ValueError, match="question must not be empty"):
        generate_answer(" \n", chunks())


def test_a_generator_that_breaks_is_a_runtime_error(generator: WritingGenerator) -> None:
    generator.text = KeyError("bad")
    with pytest.raises(RuntimeError, match="the question cannot be answered: KeyError: 'bad'"):
        generate_answer("What is done?", chunks())


def test_a_language_model_answers_from_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    with profile_with(monkeypatch, stream_response("Every week ", "[", "2].")) as endpoint:
        response = generate_answer("How often are keys rotated?", chunks())
    assert response.answer_text == "Every week [2]."
    assert [citation.chunk_id for citation in response.citations] == [KEYS_ID]
    [[*_, message]] = endpoint.prompts
    assert LOCKS in message["content"]
    assert KEYS in message["content"]


def test_a_language_model_may_say_that_the_chunks_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with profile_with(monkeypatch, stream_response("NOT IN THE ", "PASSAGES.")):
        assert generate_answer("Who keeps zebras?", chunks()) == GeneratedResponse(answer_text=ABSTENTION)


@pytest.mark.parametrize(
    ("play", "reason"),
    [
        (error_response(500, {"error": {"message": "no memory"}}), "refused with 500: no memory"),
        (ScriptedHttpResponse(steps=[piece("Every week "), CUT]), "broke off"),
    ],
    ids=["refused", "cut"],
)
def test_a_language_model_that_fails_is_a_runtime_error(
    monkeypatch: pytest.MonkeyPatch, play: ScriptedHttpResponse, reason: str
) -> None:
    with (
        profile_with(monkeypatch, play, fallback="none"),
        pytest.raises(RuntimeError, match=f"the question cannot be answered: .*{reason}"),
    ):
        generate_answer("How often are keys rotated?", chunks())


def test_an_answer_that_is_late_is_a_runtime_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_ANSWERING__TIMEOUT_MS", "200")
    with (
        profile_with(monkeypatch, ScriptedHttpResponse(steps=[HANG]), fallback="none"),
        pytest.raises(RuntimeError, match="generate took longer than 0"),
    ):
        generate_answer("How often are keys rotated?", chunks())


def test_if_the_model_fails_at_once_sentences_answer_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        profile_with(monkeypatch, error_response(500, "no memory")),
        caplog.at_level(logging.WARNING, "rag_core.contract"),
    ):
        response = generate_answer("Who rotates keys every week?", chunks())
    assert "Keys are rotated every week by Ada." in response.answer_text
    [warning] = warnings(caplog)
    assert warning.startswith("answered without model: ")


def test_without_a_model_the_sentences_that_answer_are_quoted() -> None:
    response = generate_answer("Who rotates keys every week?", chunks())
    assert response.confidence == 1.0
    assert (
        Citation(n=2, chunk_id=KEYS_ID, text_excerpt="Keys are rotated every week by Ada.", filename="the keys.md")
        in response.citations
    )
    assert all(f"{citation.text_excerpt} [{citation.n}]" in response.answer_text for citation in response.citations)


def test_without_a_model_what_chunks_do_not_speak_of_is_not_answered() -> None:
    assert generate_answer("Which zebra won the regatta?", chunks()).answer_text == ABSTENTION


def test_few_chunks_weigh_all_words_of_the_question_alike_each_in_its_languages() -> None:
    texts: Sequence[RetrievedChunk] = [
        chunk("Die Schlüssel liegen dort.", language="de"),
        chunk("Keys lie there.", language="en"),
    ]
    rarities = EqualRarities([generation._passage_from_chunk(n, row) for n, row in enumerate(texts, 1)])
    idf = asyncio.run(rarities.idf(Query(text="Are the keys Schlüssel?")))
    assert {"key": 1.0, "schlussel": 1.0}.items() <= idf.items()
    assert set(idf.values()) == {1.0}
