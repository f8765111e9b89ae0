"""The intents of messages, by their words."""

from pathlib import Path

import pytest

from rag_core.errors import ConfigError
from rag_core.retrieval.query.intent import load_intents

INTENTS = load_intents()


@pytest.mark.parametrize(
    ("message", "intent"),
    [
        ("Thanks!", "conversational"),
        ("hello there", "conversational"),
        ("Thank you, that was very helpful", "conversational"),
        ("Vielen Dank, das ist alles.", "finalization"),
        ("Merci beaucoup, au revoir", "finalization"),
        ("¡Muchas gracias!", "conversational"),
        ("Thanks, that's all for now.", "finalization"),
        ("Can we proceed with the rotation?", "greenlight"),
        ("Whom must I call, and who is in charge of the gates?", "routing"),
    ],
)
def test_a_message_has_the_intent_of_its_words(message: str, intent: str) -> None:
    assert INTENTS.classify(message) == intent


@pytest.mark.parametrize(
    "message",
    [
        "Thanks, and who may do that?",
        "Hello, how often are the keys replaced",
        "ok, the second one",
        "thanks to the lock, boats pass",
        "Good morning, watch leader",
        "Is that all?",
        "",
    ],
)
def test_a_message_that_asks_or_names_something_is_searched(message: str) -> None:
    assert INTENTS.classify(message) == "search"


def test_a_question_cannot_have_an_intent_without_sources() -> None:
    assert INTENTS.check("conversational", "thanks, but why") == "search"
    assert INTENTS.check("unknown", "thanks") == "search"


def test_a_reply_is_in_the_language_of_the_message() -> None:
    assert INTENTS.get("conversational").reply("Danke!").startswith("Gern.")
    assert INTENTS.get("conversational").reply("takk").startswith("With pleasure.")


def test_a_file_adds_an_intent(tmp_path: Path) -> None:
    path = tmp_path / "complaint.yaml"
    path.write_text(
        "description: A complaint.\nneeds_sources: false\nphrases: {en: [this is bad]}\nreplies: {en: Sorry.}"
    )
    intents = load_intents((str(path),))
    assert intents.classify("This is bad.") == "complaint"
    assert intents.get("complaint").reply("this is bad") == "Sorry."


@pytest.mark.parametrize(("message", "language"), [("ok, danke", "de"), ("d'accord", "fr"), ("ok", "en")])
def test_the_longest_phrase_decides_the_language_of_the_reply(message: str, language: str) -> None:
    intent = INTENTS.get("conversational")
    assert intent.reply(message) == intent.replies[language]


def test_without_a_reply_in_english_the_first_one_is_given(tmp_path: Path) -> None:
    path = tmp_path / "complaint.yaml"
    path.write_text("description: A complaint.\nneeds_sources: false\nreplies: {de: Schade.}")
    assert load_intents((str(path),)).get("complaint").reply("this is bad") == "Schade."


def test_a_search_without_sources_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    path.write_text("description: x\nneeds_sources: false\nreplies: {en: No.}")
    with pytest.raises(ConfigError, match="the intent search must have needs_sources: true"):
        load_intents((str(path),))


@pytest.mark.parametrize(
    "text",
    ["description: x\nneeds_sources: false", "reply: x", "description: x\npatterns: {en: ['(']}", "description: ["],
)
def test_a_file_that_is_not_an_intent_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_intents((str(path),))
