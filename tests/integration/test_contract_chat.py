import json
import logging
from collections.abc import AsyncGenerator
from uuid import UUID

import pytest
from fakes.openai_endpoint import run_endpoint, stream_response
from targets import superuser

from rag_core.answering.pipeline import ABSTENTION
from rag_core.contract import (
    Engine,
    QueryOptions,
    chat_with_documents,
    embed_chunks,
    generate_answer,
    orchestration,
    search_documents,
    store_document,
)
from rag_core.contract.engine import hash_email
from rag_core.contract.indexing import collection_name
from rag_core.contract.orchestration import NOTHING_FOUND
from rag_core.storage.postgres import Postgres
from rag_core.types import Prompt

pytestmark = pytest.mark.postgres

TEXTS = ["Keys are rotated every week.", "Locks are oiled in spring by Ada.", "Doors are painted by Ada and Bob."]
ABOUT = {"filename": "keys.pdf", "file_path": "/nowhere/keys.pdf", "file_size": 10}
QUESTION = "who  oils\nlocks in spring?"


class Noting:
    """A generator that records its prompts, and answers from the first passage."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.prompts.append(prompt)
        yield "So it is [1]."


NOTING = Noting()


def noting() -> Noting:
    return NOTING


@pytest.fixture
def shop(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Three chunks under the name `shop`."""
    environment = {"STORE__URL": store.dsn, "EMBEDDING__TYPE": "hashing", "EMBEDDING__DIMENSION": "64"}
    for name, value in environment.items():
        monkeypatch.setenv(f"RAG_{name}", value)
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return store_document("shop", embed_chunks(TEXTS), ABOUT)


def generate_by(monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"RAG_GENERATION__{name.upper()}", json.dumps(value))


def test_what_is_stored_answers_in_its_own_words(shop: UUID) -> None:
    response = chat_with_documents("shop", QUESTION)
    best = search_documents("shop", QUESTION)[0]
    assert response.answer_text.startswith(f"{TEXTS[1]} [1]")
    assert response.confidence == 1.0
    first = response.citations[0]
    assert (first.n, first.chunk_id, first.text_excerpt, first.filename) == (1, best.chunk_id, TEXTS[1], "keys.pdf")


def test_the_generator_is_asked_the_original_question_of_what_the_processed_one_finds(
    shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_by(monkeypatch, type="python", object=f"{__name__}:noting")
    searched: list[str] = []
    hybrid = orchestration.hybrid_search
    monkeypatch.setattr(
        orchestration,
        "hybrid_search",
        lambda name, text, options: [searched.append(text), hybrid(name, text, options)][1],
    )
    response = chat_with_documents("shop", QUESTION, QueryOptions(top_k=2))
    prompt = NOTING.prompts[-1]
    assert (searched, prompt.query.text) == (["who oils locks in spring?"], QUESTION)
    assert len(prompt.passages) == 2
    assert response.answer_text == "So it is [1]."


def test_an_expanded_question_is_searched_and_the_original_one_answered(
    shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    words_only = QueryOptions(expand_query=True, enable_vector_search=False)
    with run_endpoint(stream_response("locks, oiled"), stream_response("Ada does [1].")) as endpoint:
        generate_by(monkeypatch, type="openai", model="llama", base_url=endpoint.url)
        response = chat_with_documents("shop", "Who lubricates bolts?", words_only)
    assert response.answer_text == "Ada does [1]."
    assert [citation.text_excerpt for citation in response.citations] == [TEXTS[1]]
    prompt = endpoint.prompts[1][-1]["content"]
    assert "Question: Who lubricates bolts?" in prompt
    assert TEXTS[1] in prompt
    assert "oiled\n" not in prompt.partition("Question:")[2]


def test_where_nothing_is_found_the_answer_says_so(shop: UUID) -> None:
    response = chat_with_documents("shop", "zebras", QueryOptions(enable_vector_search=False))
    assert (response.answer_text, response.citations, response.confidence) == (NOTHING_FOUND, [], 0.0)


def test_what_the_documents_do_not_mention_is_not_answered(shop: UUID) -> None:
    response = chat_with_documents("shop", "Which zebra won the regatta of Lisbon?")
    assert (response.answer_text, response.citations, response.confidence) == (ABSTENTION, [], 0.0)


def test_chunks_that_are_found_can_be_answered_from_later(shop: UUID) -> None:
    hits = search_documents("shop", QUESTION)
    assert generate_answer(QUESTION, hits) == chat_with_documents("shop", QUESTION)


def test_a_name_under_which_nothing_is_stored_is_a_value_error(shop: UUID) -> None:
    with pytest.raises(ValueError, match="no collection 'docs_none'"):
        chat_with_documents("none", QUESTION)
    with pytest.raises(ValueError, match="name must be a word"):
        chat_with_documents("two words", QUESTION)
    with pytest.raises(ValueError, match="question must not be empty, got ''"):
        chat_with_documents("shop", " \x00")
    with pytest.raises(ValueError, match="top_k must be >= 1, got 0"):
        chat_with_documents("shop", QUESTION, QueryOptions(top_k=0))


def test_a_store_that_is_away_is_a_runtime_error(shop: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_STORE__URL", "host=/nonexistent user=nobody dbname=none")
    with pytest.raises(RuntimeError, match="shop cannot be searched"):
        chat_with_documents("shop", QUESTION)


@pytest.mark.model
def test_a_sentence_is_found_by_what_it_means(shop: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAG_EMBEDDING__DIMENSION")
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "bert")
    monkeypatch.setenv("RAG_EMBEDDING__MODEL", "all-MiniLM-L6-v2")
    store_document("meant", embed_chunks(TEXTS), ABOUT)
    response = chat_with_documents("meant", "How often are the keys changed?")
    assert response.answer_text.startswith(f"{TEXTS[0]} [")
    assert response.citations[0].text_excerpt == TEXTS[0]


def test_a_question_that_cannot_be_expanded_is_still_answered(shop: UUID, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rag_core.contract"):
        response = chat_with_documents("shop", QUESTION, QueryOptions(expand_query=True))
    assert response.answer_text.startswith(TEXTS[1])
    assert "the question is not expanded: " in caplog.text


def test_an_engine_answers_in_a_conversation_and_knows_users_by_a_hash(
    shop: UUID, store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_by(monkeypatch, type="python", object=f"{__name__}:noting")
    with Engine(collection_name("shop")) as engine:
        first = engine.answer("Who oils the locks?", "c", "Ada@example.org ")
        again = engine.answer("And the doors?", "c", "ada@example.org")
        alone = engine.answer("And the doors?")
        with pytest.raises(ValueError, match="question must not be empty"):
            engine.answer(" ")
        with pytest.raises(ValueError, match="session_id must not contain NUL"):
            engine.answer("Who oils the locks?", "c\0")
    assert (first["answer"], first["conversation_id"], alone["conversation_id"]) == ("So it is [1].", "c", "")
    assert again["citations"][0]["n"] == 1
    assert [message.text for message in NOTING.prompts[-2].history] == ["Who oils the locks?", "So it is [1]."]
    assert NOTING.prompts[-1].history == ()
    with superuser(store) as connection:
        (conversation,) = connection.execute("select user_id, n_turns from conversations").fetchall()
        participants = connection.execute("select name from participants").fetchall()
        answers = connection.execute("select id from messages where role = 'assistant' order by n").fetchall()
    assert answers == [(first["id"],), (again["id"],)]
    assert conversation == (hash_email("default-tenant", "ada@example.org"), 2)
    assert participants == [(conversation[0],)]
    assert "@" not in conversation[0]
