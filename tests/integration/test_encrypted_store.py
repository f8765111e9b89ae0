"""Conversations and feedback that are stored encrypted."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gateways
import httpx2
import pytest
from commands import Rag, rag_in_process
from fakes.conversations import converse
from fakes.replies import stored_reply
from trees import hashing_settings, write

from rag_core.config import EncryptionSettings
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.errors import EncryptionError
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.memory_sessions import MemorySessions
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Feedback, Replies
from rag_core.types import DEFAULT_TENANT, Message, Query
from rag_core.wiring.encryption import build_cipher

pytestmark = pytest.mark.postgres

MARKER = "Zanzibarium"
KEYS = {id: b64encode(id.encode() * 16).decode() for id in ("k1", "k2")}
QUERY = Query(text=f"Who is {MARKER} Smith?", tenant=DEFAULT_TENANT, session_id="s")
TABLES = """
select relname from pg_class
where relnamespace = 'rag'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1"""


def cipher(active: str, *ids: str) -> TextCipher:
    keys = {id: KEYS[id] for id in (active, *ids)}
    return build_cipher(EncryptionSettings.model_validate({"keys": keys, "active": active}))


ONE, TWO, BOTH = cipher("k1"), cipher("k2"), cipher("k2", "k1")


def fill(store: Postgres, cipher: TextCipher) -> None:
    """Stores the marker in every column that is encrypted."""
    converse(store, QUERY, cipher=cipher)
    with store.connect() as connection:
        replies = Replies(connection, DEFAULT_TENANT, cipher)
        replies.add([stored_reply("ans_1", question=MARKER, standalone=MARKER)], timeout=60)
        replies.add_feedback(Feedback(answer_id="ans_1", comment=MARKER, corrected_answer=MARKER))
        metadata = {"intent": "search", "entities": [MARKER], "note": MARKER}
        turn = {"id": "t", "role": "user", "content": MARKER, "timestamp": "2026-01-01T00:00:00Z", "metadata": metadata}
        MemorySessions(connection, DEFAULT_TENANT, "postgres", cipher).save("m", turn, "user")


def read(store: Postgres, cipher: TextCipher) -> list[object]:
    """All texts that `fill` stores, read back."""
    with store.connect() as connection:
        (reply,) = Replies(connection, DEFAULT_TENANT, cipher).read()
        (turn,) = MemorySessions(connection, DEFAULT_TENANT, "postgres", cipher).history("m", 9)
        conversations = ConversationList(connection, DEFAULT_TENANT, (), cipher=cipher)
        (conversation,) = conversations.conversations(9, "infinity 00000000-0000-0000-0000-000000000000")
        answer, question = conversations.messages("s", 9, 99)
    feedback = [reply.question, reply.standalone, reply.corrected_answer, reply.comments]
    conversation_texts = [conversation["title"], question["text"], answer["text"], question["sources"]]
    return [*feedback, turn["content"], turn["metadata"], *conversation_texts, history(store, cipher)]


def history(store: Postgres, cipher: TextCipher) -> list[Message]:
    async def work() -> list[Message]:
        stored = StoredConversations(store, cipher=cipher)
        try:
            return await stored.history(QUERY, 9)
        finally:
            await stored.close()

    return asyncio.run(work())


def rows_with(store: Postgres, text: str) -> set[str]:
    """The tables that have a row with this text."""
    with store.connect("rag_worker") as connection:
        names = [name for (name,) in connection.execute(TABLES)]
        rows = {
            name: connection.execute(f"select t::text from rag.{name} t".encode()).fetchall()  # noqa: S608
            for name in names
            if name != "migrations"
        }
    return {name for name, texts in rows.items() if any(text in row for (row,) in texts)}


def test_no_table_has_a_word_of_a_conversation_and_everything_can_be_read(store: Postgres) -> None:
    fill(store, ONE)
    encrypted = read(store, ONE)
    assert rows_with(store, MARKER) == rows_with(store, MARKER.upper()) == set()
    assert rows_with(store, "enc:1:k1:") == {"messages", "conversations", "replies", "feedback"}
    with store.connect("rag_worker") as connection:
        connection.execute("delete from conversations")
        connection.execute("delete from replies")
    fill(store, PLAIN_TEXT)
    assert rows_with(store, MARKER) == {"messages", "conversations", "replies", "feedback"}
    assert read(store, PLAIN_TEXT) == encrypted


def test_texts_are_read_while_keys_are_replaced(store: Postgres) -> None:
    fill(store, ONE)
    before = read(store, ONE)
    assert read(store, BOTH) == before
    later = Query(text="And later?", tenant=DEFAULT_TENANT, session_id="s")
    converse(store, later, cipher=BOTH)
    assert [message.text for message in history(store, BOTH)][::2] == [QUERY.text, later.text]


@pytest.fixture
def rag(store: Postgres, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rag:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    for id, key in KEYS.items():
        monkeypatch.setenv(f"KEY_{id}", key)
    return rag_in_process(capfd)


def encryption(active: str, *ids: str) -> tuple[str, str]:
    keys = ", ".join(f"{id}: 'env:KEY_{id}'" for id in (active, *ids))
    return "--set", f"encryption={{keys: {{{keys}}}, active: {active}}}"


@pytest.mark.parametrize("earlier", [PLAIN_TEXT, ONE])
def test_stored_texts_are_encrypted_again_with_the_active_key(store: Postgres, rag: Rag, earlier: TextCipher) -> None:
    fill(store, earlier)
    before = read(store, BOTH)
    first = rag("store", "encrypt", "--json", *encryption("k2", "k1"))
    assert {row["table"]: row["encrypted"] for row in first.json} == {
        "messages": 3,
        "conversations": 2,
        "replies": 1,
        "feedback": 1,
    }
    assert rows_with(store, MARKER) == rows_with(store, "enc:1:k1:") == set()
    assert read(store, TWO) == before
    again = rag("store", "encrypt", "--json", *encryption("k2"))
    assert sum(row["encrypted"] + row["unreadable"] for row in again.json) == 0


def test_rows_without_a_key_are_counted_and_the_others_encrypted(store: Postgres, rag: Rag) -> None:
    fill(store, ONE)
    other = Query(text="Another one?", tenant=DEFAULT_TENANT, session_id="other")
    converse(store, other)
    ran = rag("store", "encrypt", *encryption("k2"))
    assert ran.code == 1
    assert "error: 7 rows have a key that encryption.keys lacks; add it and repeat" in ran.err
    assert rows_with(store, other.text) == set()


def test_an_interrupted_encryption_is_continued(store: Postgres, rag: Rag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.storage.reencryption.BATCH_ROWS", 2)
    queries = [Query(text=f"{MARKER} {n}", tenant=DEFAULT_TENANT, session_id=str(n % 3)) for n in range(7)]
    converse(store, *queries)
    monkeypatch.setattr(TextCipher, "encrypt", _fail_after(5, TextCipher.encrypt))
    assert rag("store", "encrypt", *encryption("k1")).code == 130
    monkeypatch.undo()
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    monkeypatch.setenv("KEY_k1", KEYS["k1"])
    assert rows_with(store, MARKER)
    assert rag("store", "encrypt", "--quiet", *encryption("k1")).code == 0
    assert rows_with(store, MARKER) == set()


def _fail_after(calls: int, function: Callable[..., str]) -> Callable[..., str]:
    counted = iter(range(calls))

    def run(*arguments: Any) -> str:
        if next(counted, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return run


def test_a_missing_key_affects_only_its_conversation(store: Postgres) -> None:
    converse(store, QUERY, cipher=ONE)
    other = Query(text="Another one?", tenant=DEFAULT_TENANT, session_id="other")
    converse(store, other, cipher=TWO)
    with store.connect() as connection:
        conversations = ConversationList(connection, DEFAULT_TENANT, (), cipher=TWO)
        listed = conversations.conversations(9, "infinity 00000000-0000-0000-0000-000000000000")
        assert {row["id"]: row["title"] for row in listed} == {"s": "", "other": other.text}
        assert len(conversations.messages("other", 9, 99)) == 2
        with pytest.raises(EncryptionError, match=r"encryption\.keys has no key k1"):
            conversations.messages("s", 9, 99)
    with pytest.raises(EncryptionError, match=r"encryption\.keys has no key k1"):
        history(store, TWO)


def test_a_message_that_is_swapped_with_another_is_noticed(store: Postgres) -> None:
    converse(store, QUERY, Query(text="no", tenant=DEFAULT_TENANT, session_id="s"), cipher=ONE)
    with store.connect("rag_worker") as connection:
        connection.execute("update rag.messages m set text = o.text from rag.messages o where m.n = 1 and o.n = 3")
    with pytest.raises(EncryptionError, match=r"cannot decrypt text of .* the value was changed"):
        history(store, ONE)


def test_an_undecryptable_question_stops_the_export_of_feedback_by_name(store: Postgres, rag: Rag) -> None:
    fill(store, ONE)
    assert rag("feedback", "export", "--out", "/nowhere", *encryption("k2")).code == 1


def test_a_gateway_stores_and_shows_conversations_and_feedback(store: Postgres, tmp_path: Path) -> None:
    keys = "encryption={keys: {k1: '" + KEYS["k1"] + "'}, active: k1}"
    settings = hashing_settings(f"store.url={store.dsn}", "answering.budget=none", keys)

    with KnowledgeBase(settings) as knowledge:
        knowledge.ingest(str(write(tmp_path, {"a.md": "# Gates\n\nThe gates open at noon."})))

    async def ask(client: httpx2.AsyncClient) -> list[str]:
        question = {"question": QUERY.text, "stream": False, "conversation_id": "s"}
        answer = (await client.post("/v1/answer", json=question)).json()
        feedback = {"answer_id": answer["id"], "comment": MARKER, "corrected_answer": MARKER}
        assert (await client.post("/v1/feedback", json=feedback)).status_code == 201
        return [(await client.get(f"/v1/conversations{path}")).text for path in ("", "/s/messages")]

    bodies = gateways.run_with_gateway(gateways.build_services(settings), ask)
    assert all(QUERY.text in text for text in bodies)
    assert rows_with(store, MARKER) == set()
    assert rows_with(store, "enc:1:k1:") == {"messages", "conversations", "replies", "feedback"}


def test_log_lines_that_quote_an_encrypted_text_are_erased(
    store: Postgres, tmp_path: Path, rag: Rag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    fill(store, ONE)
    question = {"query": f"{QUERY.text} {MARKER}"}
    log = tmp_path / "home" / "logs" / "gateway.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"{json.dumps(question)}\n{{}}\n")
    purge = ("purge", "--session", "s", "--yes", "--dry-run", "--json")
    ran = rag(*purge, *encryption("k2"))
    assert (ran.json["unreadable"], ran.json["files"]) == (4, [])
    assert "cannot be decrypted" in ran.err
    ran = rag(*purge, *encryption("k2", "k1"))
    assert ran.json["unreadable"] == 0
    assert [file["found"] for file in ran.json["files"]] == [1]
