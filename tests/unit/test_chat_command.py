"""`rag chat` with scripted answers."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from commands import Ran, rag_in_process
from fakes.answering import ScriptedGenerator, ScriptedRetriever, passage
from fakes.serving import scripted_graph, serve_graph

from rag_cli import chat
from rag_cli.answerers import ShowEvent
from rag_core.errors import UnavailableError
from rag_core.events import RunFinished, RunStarted, TextDelta, Understood
from rag_core.retrieval.why import Facts
from rag_core.types import Answer, Clarification, Query, Reply, Understanding

OPTIONS = Clarification(question="Which one?", options=("Oslo office", "Bergen office"))


class ScriptedAnswerer:
    """Answers with the question in capitals. `calls` holds the questions with their sessions.

    "ambiguous" is asked back, "interrupt" raises KeyboardInterrupt, and "fail" raises UnavailableError.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.traced: list[tuple[str, str]] = []

    def ask(self, question: str, session_id: str, show_event: ShowEvent) -> tuple[Reply, str]:
        self.calls.append((question, session_id))
        if question == "interrupt":
            raise KeyboardInterrupt
        if question == "fail":
            raise UnavailableError("the model is away")
        query = Query(text=question, session_id=session_id)
        if question == "ambiguous":
            answer = Answer(text="Which one?\n\n1. Oslo office\n2. Bergen office", finish="clarification")
            return Reply(query=query, standalone=question, answer=answer, clarification=OPTIONS), ""
        understanding = Understanding(standalone=f"{question} in Oslo", is_shift=question == "shift", method="rules")
        for event in (RunStarted(query), Understood(understanding), TextDelta(question.upper())):
            show_event(event)
        show_event(RunFinished("stop", None, 1.0, 0.1))
        passages = (passage(1, "Keys are replaced.", title="Keys", uri="file:///keys.md"),)
        reply = Reply(
            query=query, standalone=understanding.standalone, answer=Answer(text=question.upper()), passages=passages
        )
        return reply, ""

    def why(self, question: str, uri: str) -> Facts:
        self.traced.append((question, uri))
        raise UnavailableError("the store is away")


class Terminal:
    """Runs `rag chat` with lines of input."""

    def __init__(self, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.answerer = ScriptedAnswerer()
        self._rag, self._monkeypatch = rag_in_process(capture), monkeypatch

        @contextmanager
        def open_scripted(*_arguments: object) -> Iterator[ScriptedAnswerer]:
            yield self.answerer

        monkeypatch.setattr(chat, "open_answerer", open_scripted)

    def chat(self, *lines: str, options: Sequence[str] = ()) -> Ran:
        self._monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return self._rag("chat", *options)

    @property
    def questions(self) -> list[str]:
        return [question for question, _ in self.answerer.calls]


@pytest.fixture
def terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(capfd, monkeypatch)


def test_each_line_is_a_question_of_one_session_which_is_printed(terminal: Terminal) -> None:
    ran = terminal.chat("where?", "", "when?")
    assert ran.code == 0
    assert terminal.questions == ["where?", "when?"]
    (session,) = {session for _, session in terminal.answerer.calls}
    assert ran.err == f"session {session}; to continue it: rag chat --session {session}\n"
    assert "searched as: where? in Oslo\n\nWHERE?\n" in ran.out


def test_a_session_is_continued_and_new_begins_another(terminal: Terminal) -> None:
    terminal.chat("where?", "/new", "when?", options=["--session", "mine"])
    (_, first), (_, second) = terminal.answerer.calls
    assert first == "mine"
    assert second not in ("", "mine")


def test_a_new_subject_is_reported(terminal: Terminal) -> None:
    assert "new subject: the earlier messages count less" in terminal.chat("shift").out


def test_json_is_one_line_for_each_answer(terminal: Terminal) -> None:
    ran = terminal.chat("where?", "ambiguous", options=["--json", "--session", "mine"])
    first, second = map(json.loads, ran.out.splitlines())
    assert (first["answer"], first["standalone"], first["session_id"]) == ("WHERE?", "where? in Oslo", "mine")
    assert (first["clarification"], second["finish"]) == (None, "clarification")
    assert second["clarification"] == {"question": "Which one?", "options": ["Oslo office", "Bergen office"]}


def test_a_number_chooses_an_option_only_after_it_was_asked_back(terminal: Terminal) -> None:
    terminal.chat("2", "ambiguous", "2", "2")
    assert terminal.questions == ["2", "ambiguous", "Bergen office", "2"]


def test_an_interrupt_cancels_the_answer_and_not_the_chat(terminal: Terminal) -> None:
    ran = terminal.chat("interrupt", "where?")
    assert (ran.code, terminal.questions) == (0, ["interrupt", "where?"])
    assert "cancelled" in ran.err


def test_input_in_another_encoding_is_a_mistake_with_its_reason(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(capfd, monkeypatch)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("where?\ncafé?\n".encode("latin-1")), "utf-8"))
    ran = rag_in_process(capfd)("chat")
    assert ran.code == 2
    assert "error: standard input must be utf-8 text, got other bytes" in ran.err
    assert terminal.questions == []


def test_nul_is_dropped(terminal: Terminal) -> None:
    assert terminal.chat("whe\0re?", "\0", "/why\0 docs/\0keys.md").code == 1
    assert terminal.questions == ["where?"]
    ((_, uri),) = terminal.answerer.traced
    assert uri.endswith("/docs/keys.md")


def test_a_failure_is_reported_and_the_chat_continues_and_ends_with_1(terminal: Terminal) -> None:
    ran = terminal.chat("fail", "where?")
    assert (ran.code, terminal.questions) == (1, ["fail", "where?"])
    assert "error: the model is away" in ran.err


def test_quit_ends_the_chat(terminal: Terminal) -> None:
    assert terminal.chat("/quit", "where?").code == 0
    assert terminal.questions == []


def test_sources_shows_the_passages_of_the_last_answer(terminal: Terminal) -> None:
    ran = terminal.chat("where?", "/sources")
    assert "[1] Keys\n  Keys are replaced.\n  file:///keys.md" in "\n".join(map(str.rstrip, ran.out.splitlines()))
    rows = json.loads(terminal.chat("where?", "/sources", options=["--json"]).out.splitlines()[1])
    assert [row["title"] for row in rows] == ["Keys"]


def test_why_traces_a_passage_by_number_or_a_document_by_uri(terminal: Terminal) -> None:
    terminal.chat("where?", "/why 1", "/why file:///locks.md")
    assert terminal.answerer.traced == [("where? in Oslo", uri) for uri in ("file:///keys.md", "file:///locks.md")]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("/sources", "no question has been answered yet"),
        ("/why 1", "no question has been answered yet"),
        ("/what", "unknown command /what; /help lists the commands"),
    ],
)
def test_a_wrong_command_is_a_failure_with_its_reason(terminal: Terminal, line: str, error: str) -> None:
    ran = terminal.chat(line)
    assert ran.code == 1
    assert error in ran.err


def test_help_lists_the_commands(terminal: Terminal) -> None:
    assert all(name in terminal.chat("/help").out for name in ("/sources", "/why", "/new", "/quit"))


def test_a_gateway_answers_each_line_in_one_conversation(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("How often are keys replaced?\nAnd why?\n/why 1\n"))
    generator = ScriptedGenerator(answers=[["Every 45 days [1]."], ["For safety [1]."]])
    hits = [passage(1, "Keys are replaced every 45 days for safety.").hit]
    with serve_graph(scripted_graph(ScriptedRetriever(hits=hits), generator)) as address:
        ran = rag_in_process(capfd)("chat", "--server", address, "--json", "--session", "mine", "--quiet")
    first, second, error = map(json.loads, ran.out.splitlines())
    assert (first["answer"], second["answer"]) == ("Every 45 days [1].", "For safety [1].")
    assert {first["session_id"], second["session_id"]} == {"mine"}
    assert [message.text for message in generator.prompts[1].history] == [
        "How often are keys replaced?",
        "Every 45 days [1].",
    ]
    assert error["error"]["message"] == "/why reads the store; it cannot be used with --server"
    assert ran.code == 1
