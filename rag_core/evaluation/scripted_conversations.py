"""Scripted conversations: what a user writes, turn by turn, and what each reply must be. They measure follow-ups.

    DIR/scripted_conversations.jsonl   one {"_id", "turns": [...]} per line
    DIR/corpus/                        the documents, in any folders and formats

A turn is {"question", "expect", "documents", "contains", "follow_up"}; all but the question are optional. `expect` is
`answer` unless it names another outcome. An answer must cite one of `documents`, which are paths below corpus/, and
contain each text of `contains`. `follow_up` is true if the question has no meaning without the turns before it.

The conversations of a split other than `test` are in `scripted_conversations_SPLIT.jsonl`.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset_lines import Row, list_field, read_unique_rows, string_field

SCRIPTED_CONVERSATIONS, CORPUS = "scripted_conversations.jsonl", "corpus"

Expectation: TypeAlias = Literal["answer", "abstained", "clarification", "conversational", "repeated"]
"""The outcome of a turn: `abstained` if no document answers, `clarification` if the question must be asked back,
`conversational` if it needs no documents, `repeated` if nothing may be said again that was said before."""
EXPECTATIONS: tuple[Expectation, ...] = get_args(Expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """What a user writes, and what the reply must be; the module describes the fields."""

    question: str
    expect: Expectation = "answer"
    documents: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    is_follow_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedConversation:
    id: str
    turns: tuple[ScriptedTurn, ...]


def has_scripts(folder: Path) -> bool:
    return (folder / SCRIPTED_CONVERSATIONS).is_file()


def scripts_path(folder: Path, split: str) -> Path:
    path = folder / SCRIPTED_CONVERSATIONS
    return path if split == "test" else path.with_stem(f"{path.stem}_{split}")


def read_scripts(folder: Path, split: str = "test", limit: int | None = None) -> list[ScriptedConversation]:
    """The first `limit` conversations, or all.

    Raises DatasetError for a line that breaks a rule, and for a document that corpus/ does not have.
    """
    corpus = folder / CORPUS
    documents = {path.relative_to(corpus).as_posix() for path in corpus.rglob("*") if path.is_file()}
    path, conversations = scripts_path(folder, split), []
    for location, row in read_unique_rows(path):
        conversation = parse_script(location, row)
        _check_documents(location, conversation, documents)
        conversations.append(conversation)
    if not conversations:
        raise DatasetError(f"{path} must have at least one conversation")
    return conversations[:limit]


def parse_script(location: str, row: Row) -> ScriptedConversation:
    turns = tuple(_parse_turn(location, turn) for turn in list_field(location, row, "turns", dict))
    if not turns:
        raise DatasetError(f"{location}: a conversation must have at least one turn")
    if turns[0].is_follow_up:
        raise DatasetError(f"{location}: the first turn cannot be a follow-up")
    return ScriptedConversation(id=string_field(location, row, "_id"), turns=turns)


def hash_scripts(scripts: Iterable[ScriptedConversation]) -> str:
    """The SHA-256 of the conversations, in hexadecimal digits. Their order does not matter."""
    return sha256("\n".join(sorted(f"{script!r}" for script in scripts)).encode()).hexdigest()


def _parse_turn(location: str, row: Row) -> ScriptedTurn:
    expect, follow_up = row.get("expect", "answer"), row.get("follow_up", False)
    if expect not in EXPECTATIONS:
        raise DatasetError(f"{location}: 'expect' must be one of {', '.join(EXPECTATIONS)}, got {expect!r:.60}")
    if not isinstance(follow_up, bool):
        raise DatasetError(f"{location}: 'follow_up' must be true or false, got {follow_up!r:.60}")
    turn = ScriptedTurn(
        question=string_field(location, row, "question"),
        expect=expect,
        documents=tuple(list_field(location, row, "documents", str)),
        facts=tuple(list_field(location, row, "contains", str)),
        is_follow_up=follow_up,
    )
    if (expect == "answer") != bool(turn.documents):
        raise DatasetError(f"{location}: a turn must have 'documents' if and only if it expects an answer")
    if turn.facts and not turn.documents:
        raise DatasetError(f"{location}: 'contains' requires 'documents'")
    return turn


def _check_documents(location: str, conversation: ScriptedConversation, documents: Set[str]) -> None:
    for turn in conversation.turns:
        if missing := [document for document in turn.documents if document not in documents]:
            raise DatasetError(f"{location}: {CORPUS}/ must have the document, got {missing[0]!r}")
