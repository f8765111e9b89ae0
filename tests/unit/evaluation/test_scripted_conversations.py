"""The layout of scripted conversations, and the demo's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import DatasetError
from rag_core.evaluation.answers import contains_reference
from rag_core.evaluation.dataset_check import check_dataset
from rag_core.evaluation.scripted_conversations import ScriptedTurn, has_scripts, hash_scripts, read_scripts
from rag_core.parsing.document import parse

DEMO = Path(__file__).parents[3] / "demo"
KEYS = {"question": "How often are keys replaced?", "documents": ["keys.md"], "contains": ["every 90 days"]}


def write_turns(folder: Path, *turns: dict[str, Any], name: str = "scripted_conversations.jsonl") -> Path:
    (folder / "corpus").mkdir(exist_ok=True)
    (folder / "corpus" / "keys.md").write_text("Keys are replaced every 90 days.")
    (folder / name).write_text(json.dumps({"_id": "a", "turns": turns}))
    return folder


def test_a_turn_expects_an_answer_unless_it_names_another_outcome(tmp_path: Path) -> None:
    thanks = {"question": "Thanks.", "expect": "conversational"}
    (script,) = read_scripts(write_turns(tmp_path, KEYS, {**KEYS, "follow_up": True}, thanks))
    assert script.turns[0] == ScriptedTurn(
        question="How often are keys replaced?", documents=("keys.md",), facts=("every 90 days",)
    )
    assert [turn.is_follow_up for turn in script.turns] == [False, True, False]
    assert [turn.expect for turn in script.turns] == ["answer", "answer", "conversational"]


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({**KEYS, "expect": "silence"}, "'expect' must be one of"),
        ({**KEYS, "follow_up": 1}, "'follow_up' must be true or false, got 1"),
        ({**KEYS, "follow_up": True}, "the first turn cannot be a follow-up"),
        ({**KEYS, "documents": []}, "must have 'documents' if and only if it expects an answer"),
        ({**KEYS, "expect": "abstained"}, "must have 'documents' if and only if it expects an answer"),
        ({"question": "Hello!", "expect": "conversational", "contains": ["Hi"]}, "'contains' requires 'documents'"),
        ({**KEYS, "documents": ["locks.md"]}, "corpus/ must have the document, got 'locks.md'"),
    ],
)
def test_a_broken_rule_is_named_with_its_line(tmp_path: Path, turn: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=r"scripted_conversations\.jsonl:1: .*" + message.replace("(", r"\(")):
        read_scripts(write_turns(tmp_path, turn))


def test_a_conversation_needs_turns_and_a_file_needs_conversations(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="a conversation must have at least one turn"):
        read_scripts(write_turns(tmp_path))
    (tmp_path / "scripted_conversations.jsonl").write_text("\n")
    with pytest.raises(DatasetError, match="must have at least one conversation"):
        read_scripts(tmp_path)


def test_a_split_has_a_file_of_its_own(tmp_path: Path) -> None:
    write_turns(tmp_path, KEYS)
    assert has_scripts(tmp_path)
    write_turns(tmp_path, {**KEYS, "question": "When?"}, name="scripted_conversations_train.jsonl")
    assert [script.turns[0].question for script in read_scripts(tmp_path, "train")] == ["When?"]
    assert hash_scripts(read_scripts(tmp_path, "train")) != hash_scripts(read_scripts(tmp_path))


def test_the_check_counts_turns_by_what_they_expect_and_lists_broken_lines(tmp_path: Path) -> None:
    write_turns(tmp_path, KEYS, {"question": "Thanks.", "expect": "conversational"})
    facts = check_dataset(tmp_path).facts
    assert (facts["conversations"], facts["turns"], facts["answer"], facts["conversational"]) == (1, 2, 1, 1)
    broken = check_dataset(write_turns(tmp_path, {**KEYS, "follow_up": True}))
    assert broken.facts == {}
    assert len(broken.problems) == 1
    assert "the first turn cannot be a follow-up" in broken.problems[0]


def test_every_fact_of_the_demo_is_in_a_document_that_its_turn_expects() -> None:
    scripts = [*read_scripts(DEMO), *read_scripts(DEMO, "train")]
    turns = [turn for script in scripts for turn in script.turns if turn.facts]
    texts = {path: read_text(path) for path in {document for turn in turns for document in turn.documents}}
    wrong = [
        (turn.question, fact)
        for turn in turns
        for fact in turn.facts
        if not any(contains_reference(texts[document], [fact]) for document in turn.documents)
    ]
    assert wrong == []


def test_the_demo_has_a_hundred_conversations_of_3_to_8_turns_and_others_to_tune_on() -> None:
    test, train = read_scripts(DEMO), read_scripts(DEMO, "train")
    assert len(test) == 100
    assert {len(script.turns) for script in (*test, *train)} <= set(range(3, 9))
    assert not {script.id for script in test} & {script.id for script in train}
    questions = {turn.question for script in test for turn in script.turns if not turn.is_follow_up and turn.documents}
    assert not questions & {turn.question for script in train for turn in script.turns}


def read_text(path: str) -> str:
    return parse(f"file:///{path}", (DEMO / "corpus" / path).read_bytes(), True, 1.0, 1.0).text
