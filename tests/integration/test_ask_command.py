import json
import signal
import subprocess
from typing import Any

import pytest
from commands import Rag, rag_in_process
from fakes.openai_endpoint import HANG, ScriptedHttpResponse, error_response, piece, run_endpoint, stream_response
from hosts import RAG
from trees import write

from rag_core import open_knowledge_base
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.model]

FILES = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days. The harbour master keeps a copy in the red box.",
    "locks.md": "# Locks\n\nThe sea lock opens two hours before high water. Boats wait at the pontoon.",
    "canteen.md": "# Canteen\n\nSoup is served at noon. On Fridays there is fish.",
}


@pytest.fixture(scope="module")
def corpus(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Postgres:
    with open_knowledge_base(module_store.dsn) as knowledge:
        knowledge.ingest(write(tmp_path_factory.mktemp("documents"), FILES))
    return module_store


@pytest.fixture
def rag(corpus: Postgres, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    monkeypatch.setenv("RAG_STORE__URL", corpus.dsn)
    monkeypatch.setenv("RAG_ANSWERING__BUDGET", "none")
    return rag_in_process(capfd)


def run(rag: Rag, *arguments: str, code: int = 0) -> str:
    ran = rag(*arguments)
    assert ran.code == code, ran.err
    return ran.out


def ask_json(rag: Rag, *arguments: str, code: int = 0) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(run(rag, "ask", *arguments, "--json", code=code))
    return reply


def test_every_citation_is_verbatim_in_its_stored_document(rag: Rag) -> None:
    reply = ask_json(rag, "How often are the signing keys replaced?")
    assert reply["answer"].startswith("Signing keys are replaced every 45 days. [")
    assert reply["verdict"]["verdict"] == "supported"
    assert reply["verdict"]["method"] == "verbatim"
    assert reply["confidence"] > 0.5
    assert reply["coverage"] == 1.0
    for citation in reply["citations"]:
        text = run(rag, "documents", "text", citation["origin_url"]).removesuffix("\n")
        assert text[citation["start"] : citation["end"]] == citation["quote"]
        for span in citation["spans"]:
            assert reply["answer"][span["start"] : span["end"]] == f"[{citation['n']}]"


def test_a_reply_reports_its_stages_and_what_they_did_not_do(rag: Rag) -> None:
    reply = ask_json(rag, "How often are the signing keys replaced?", "--explain")
    stages = {stage["stage"]: stage for stage in reply["stages"]}
    assert next(iter(stages)) == "history"
    assert stages["history"]["skipped"] == "no session"
    assert {"retrieve", "select", "generate", "judge"} <= stages.keys()
    assert stages["rerank"]["skipped"] == "the profile has no reranker"
    assert stages["dense"]["parent"] == stages["bm25"]["parent"] == "retrieve"
    assert reply["degraded"] == []
    assert reply["passages"][0]["n"] == 1


def test_a_pipe_gets_plain_text_with_its_sources_and_its_verdict(rag: Rag) -> None:
    printed = run(rag, "ask", "When does the sea lock open?")
    answer, _, footer = printed.partition("\n\n")
    assert answer == "The sea lock opens two hours before high water. [1]"
    assert "[1] Locks · today" in footer
    assert "✓ “The sea lock opens two hours before high water.”" in footer
    assert "✓ supported by verbatim" in footer
    assert "\x1b" not in printed


def test_what_the_sources_do_not_say_is_not_made_up(rag: Rag) -> None:
    reply = ask_json(rag, "Which enzyme does ribavirin inhibit?")
    assert reply["finish"] == "abstained"
    assert reply["answer"].startswith("The sources do not answer this. Closest to the question: ")
    assert reply["citations"] == []


def test_verbose_shows_every_stage_as_a_bar(rag: Rag) -> None:
    printed = run(rag, "ask", "When does the sea lock open?", "-v")
    for stage in ("retrieve", "select", "generate", "judge"):
        assert f"\n{stage}" in printed
    assert "█" in printed


def test_a_collection_that_is_not_there_is_a_usage_error(rag: Rag) -> None:
    reply = ask_json(rag, "anything", "--collection", "nowhere", code=2)
    assert "no collection 'nowhere'" in reply["error"]["message"]


def test_a_setting_that_contradicts_itself_is_refused_by_name(rag: Rag) -> None:
    settings = ["--set", "guard.mode=regenerate", "--set", "guard.stream=sentence"]
    reply = ask_json(rag, "anything", *settings, code=2)
    assert "stream must be after or buffer, got sentence" in reply["error"]["message"]


def openai(url: str, **settings: str) -> list[str]:
    options = {"type": "openai", "model": "m", "base_url": url, **settings}
    return [part for key, value in options.items() for part in ("--set", f"generation.{key}={value}")]


def test_a_language_model_is_held_to_its_sources(rag: Rag) -> None:
    written = stream_response("Signing keys are replaced every 45 days [1", "]. They cost 900 crowns [1]. More [7].")
    with run_endpoint(written) as endpoint:
        reply = ask_json(rag, "How often are the signing keys replaced?", *openai(endpoint.url))
    text = "Signing keys are replaced every 45 days [1]. They cost 900 crowns [1]. More."
    assert reply["answer"] == text
    grades = [(text[claim["start"] : claim["end"]], claim["verdict"]) for claim in reply["verdict"]["claims"]]
    assert [grade for _, grade in grades][:2] == ["supported", "unsupported"]
    assert "900" in reply["verdict"]["claims"][1]["reason"]
    assert reply["verdict"]["method"] == "lexical proxy"
    generated = next(stage for stage in reply["stages"] if stage["stage"] == "generate")
    assert generated["figures"]["prompt_tokens"] == 40


def test_if_the_endpoint_is_away_sentences_are_quoted_and_the_answer_says_so(rag: Rag) -> None:
    settings = openai("http://127.0.0.1:9/v1", attempts="1")
    reply = ask_json(rag, "How often are the signing keys replaced?", *settings)
    assert reply["answer"].startswith("Signing keys are replaced every 45 days. [")
    assert reply["degraded"] == ["model"]


def test_a_command_has_no_time_limit_for_a_leg(rag: Rag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAG_ANSWERING__BUDGET")
    stages = {stage["stage"]: stage for stage in ask_json(rag, "When does the sea lock open?")["stages"]}
    assert stages["bm25"]["limit_ms"] > 30_000  # the whole answer's


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (
            error_response(401, {"error": {"message": "bad key"}}),
            "refused with 401: bad key (no key was sent: set api_key",
        ),
        (stream_response(), "the language model sent an empty answer"),
        (stream_response(" ", "\n"), "the language model sent an empty answer"),
        (ScriptedHttpResponse(slow=True), "sent no answer within 0.3 s"),
    ],
)
def test_why_the_model_did_not_answer_is_on_stderr_and_in_the_reply(
    rag: Rag, response: ScriptedHttpResponse, reason: str
) -> None:
    with run_endpoint(response) as endpoint:
        # only the slow endpoint may run into the limit, however busy this machine is
        limit = "300" if response.slow else "60000"
        settings = openai(endpoint.url, attempts="1", **{"first_token_timeout_ms": limit})
        ran = rag("ask", "How often are the signing keys replaced?", *settings, "--json")
        printed = rag("ask", "How often are the signing keys replaced?", *settings)
    assert ran.code == printed.code == 0
    assert ran.json["answer"].startswith("Signing keys are replaced every 45 days. [")
    assert ran.json["degraded"] == ["model"]
    assert reason in ran.json["degraded_reasons"]["model"]
    assert "left out model: " in printed.err
    assert reason in ran.err
    assert reason in printed.err


def test_an_empty_answer_without_a_fallback_is_an_error(rag: Rag) -> None:
    with run_endpoint(stream_response()) as endpoint:
        ran = rag("ask", "How often are keys replaced?", *openai(endpoint.url, fallback="none"))
    assert (ran.code, ran.err) == (3, "error: the language model sent an empty answer\n")


def test_an_endpoint_that_refuses_without_a_fallback_is_a_named_error_without_the_key(
    rag: Rag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "sk-canary-1234")
    with run_endpoint(error_response(401, {"error": {"message": "bad key"}})) as endpoint:
        settings = [*openai(endpoint.url, fallback="none", api_key_env="SECRET"), "-v"]
        ran = rag("ask", "How often are keys replaced?", *settings, "--json")
    assert ran.code == 3
    assert "401" in ran.json["error"]["message"]
    assert "canary" not in ran.out + ran.err


@pytest.mark.usefixtures("rag")
def test_an_interrupt_ends_the_answer_and_the_request_below_it() -> None:
    """A shell that runs the tests in the background ignores interrupts, and its children inherit this until
    `preexec_fn` undoes it."""
    with run_endpoint(ScriptedHttpResponse(steps=[piece("Signing keys are replaced "), HANG])) as endpoint:
        command = [*RAG, "ask", "How often are the signing keys replaced?", *openai(endpoint.url)]
        heed = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **heed}
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdout is not None
            assert process.stdout.read(8) == "Signing "
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=20)
        assert process.returncode == 130
        assert complaint.splitlines()[-1] == "interrupted"
        assert "Traceback" not in complaint
        assert endpoint.client_left.wait(60)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (" ", "question must not be empty, got ' '"),
        ("x" * 10_001, "question must have at most 10000 characters, got 10001"),
    ],
)
def test_what_is_no_question_is_refused(rag: Rag, question: str, complaint: str) -> None:
    assert ask_json(rag, question, code=2)["error"]["message"] == complaint


def test_half_a_character_in_a_question_harms_nobody(rag: Rag) -> None:
    assert ask_json(rag, "When does the sea lock open? \udcff")["finish"] == "stop"
