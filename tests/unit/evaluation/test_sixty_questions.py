"""The sixty questions agree with the folder that answers them."""

from collections import Counter

from benchmarks.sixty_questions import DOCUMENTS, read_questions

QUESTIONS = read_questions()


def test_each_language_has_twelve_questions_and_eight_of_all_are_unanswerable() -> None:
    assert Counter(question.language for question in QUESTIONS) == dict.fromkeys(("en", "de", "fr", "es", "zh"), 12)
    assert sum(question.kind == "unanswerable" for question in QUESTIONS) == 8


def test_a_question_is_asked_once() -> None:
    assert len({question.question for question in QUESTIONS}) == 60


def test_each_named_document_exists() -> None:
    named = {name for question in QUESTIONS for name in question.documents}
    assert named <= {file.name for file in DOCUMENTS.iterdir()}


def test_the_literal_facts_of_a_key_occur_in_its_documents() -> None:
    for question in QUESTIONS:
        text = "\n".join((DOCUMENTS / name).read_text(encoding="utf-8") for name in question.documents)
        assert [fact for fact in question.literal if fact not in text] == []


def test_only_an_answerable_question_has_literal_facts() -> None:
    assert all(bool(question.literal) != (question.kind == "unanswerable") for question in QUESTIONS)
