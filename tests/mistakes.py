"""Mistakes of users, and the messages that they get: `python tests/mistakes.py` prints the table.

Each is made on a small store, with the real command or the real HTTP application. `test_mistakes.py` requires that the
message names the rule, the value and the remedy, that the exit code or the status is right, and that there is no
traceback.
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import httpx2
from commands import Rag, rag_in_process

from rag_core.storage import embedded

FILES = {
    "docs/keys.md": "---\nlanguage: en\nteam: harbour\n---\n# Keys\n\nSigning keys are replaced every 90 days.\n",
    "docs/sub/locks.md": "# Locks\n\nThe sea lock opens two hours before high water.\n",
    "broken.yaml": "chunking: {tokens: 3\n",
    "list.yaml": "- chunking\n",
    "circle.yaml": "profiles: {a: {extends: b}, b: {extends: a}}\n",
    "harbour.yaml": "profiles: {harbour: {extends: defualt}}\n",
    "pipeline.yaml": "query_pipeline: {timeouts: {retreival_ms: 50}}\n",
    "serve.yaml": "applications:\n- {name: rag, import_path: 'serve.app:build', args: {}, deplyments: []}\n",
    "acme_mistakes.py": "class Answers:\n    async def stream(self, prompt):\n        return 'At once. [1]'\n",
    "beir/readme.txt": "no dataset\n",
}
ENDPOINT = "generation={type: openai, model: m, base_url: 'http://127.0.0.1:1/v1', attempts: 1, fallback: none}"
NOWHERE_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command or an HTTP request, its exit code or status, and parts of the message."""

    arguments: Sequence[str]
    code: int
    rule: str
    value: str
    remedy: str

    @property
    def is_request(self) -> bool:
        return self.arguments[0] in ("GET", "POST", "DELETE")


def _command(*arguments: str, code: int = 2, rule: str, value: str, remedy: str) -> Mistake:
    return Mistake(arguments, code, rule, value, remedy)


def _search(*options: str, code: int = 2, rule: str, value: str, remedy: str) -> Mistake:
    return Mistake(("search", "keys", *options), code, rule, value, remedy)


def _set(setting: str, *, code: int = 2, rule: str, value: str, remedy: str) -> Mistake:
    return Mistake(("search", "keys", "--set", setting), code, rule, value, remedy)


def _request(method: str, path: str, body: str = "", *, code: int = 422, rule: str, value: str, remedy: str) -> Mistake:
    return Mistake((method, path, body), code, rule, value, remedy)


MISTAKES = (
    # the command line
    _command("serch", "keys", rule="No such command", value="'serch'", remedy="Did you mean 'search'"),
    _command("search", rule="Missing argument", value="'question'", remedy="--help' for help"),
    _command("search", "", rule="question must not be empty", value="got ''", remedy="must not be empty"),
    _search("--colection", "x", rule="No such option", value="--colection", remedy="--collection"),
    _search("-k", "0", rule="greater than or equal to 1", value="got '0'", remedy="greater than or equal to 1"),
    _search("-k", "many", rule="valid integer", value="got 'many'", remedy="valid integer"),
    _search("--collection", "handbok", rule="no collection", value="'handbok'", remedy="did you mean handbook?"),
    _search(
        "--tenant", "harbour-team", rule="no collection", value="'default'", remedy="`rag ingest FOLDER` creates one"
    ),
    _search("--profile", "defualt", rule="there is no profile", value="defualt", remedy="did you mean default?"),
    _search("--compare", "pcm", rule="there is no profile", value="pcm", remedy="did you mean pmc?"),
    _search(
        "--server", "localhost", rule="--server must be a URL", value="'localhost'", remedy="http://127.0.0.1:8000"
    ),
    _search(
        *("--server", "http://127.0.0.1:1"),
        code=3,
        rule="cannot reach the server",
        value="http://127.0.0.1:1",
        remedy="`rag serve` starts one",
    ),
    _search(
        *("--server", "http://127.0.0.1:1", "--set", "chunking.tokens=100"),
        rule="cannot be used with --server",
        value="--set",
        remedy="the server has its own store and settings",
    ),
    _command(
        "ask", "keys", "--set", ENDPOINT, code=3, rule="cannot be reached", value="127.0.0.1:1", remedy="check base_url"
    ),
    _command("why", "keys", rule="Missing argument", value="'uri'", remedy="--help' for help"),
    # filters
    _search(
        "--filter", "{key: language}", rule="--filter must be JSON", value="{key: language}", remedy="double quotes"
    ),
    _search("--filter", '"language"', rule="must be an object with `type`", value="'language'", remedy="`type`"),
    _search(
        *("--filter", '{"key": "language", "type": "equals", "value": "en"}'),
        rule="type must be one of",
        value="'equals'",
        remedy="eq, ne, in",
    ),
    _search(
        *("--filter", '{"key": "langauge", "type": "eq", "value": "en"}'),
        code=0,
        rule="no document of 'default' has the metadata key",
        value="'langauge'",
        remedy="did you mean language?",
    ),
    # configuration files
    _search("--config", "nowhere.yaml", rule="there is no file", value="nowhere.yaml", remedy="give an existing one"),
    _search("--config", "broken.yaml", rule="must be YAML", value="broken.yaml", remedy="line 2: expected ',' or '}'"),
    _search("--config", "list.yaml", rule="must be a mapping of sections", value="['chunking']", remedy="sections"),
    _command(
        *("config", "import", "pipeline.yaml"),
        rule="unknown key",
        value="query_pipeline.timeouts.retreival_ms",
        remedy="did you mean retrieval_ms?",
    ),
    _search("--config", "docs", rule="cannot read docs", value="docs", remedy="Is a directory"),
    _command(
        *("config", "check", "circle.yaml", "--profile", "a"),
        rule="profiles extend each other in a circle",
        value="a -> b -> a",
        remedy="remove one `extends`",
    ),
    _command(
        *("config", "check", "harbour.yaml", "--profile", "harbour"),
        rule="there is no profile",
        value="defualt",
        remedy="did you mean default?",
    ),
    _command(
        *("config", "check", "--set", "prompt.pack=conversatonal"),
        rule="prompt.pack must be",
        value="'conversatonal'",
        remedy="did you mean conversational?",
    ),
    # settings
    _set(
        "chunking.tokens", rule="--set takes SECTION.KEY=VALUE", value="'chunking.tokens'", remedy="SECTION.KEY=VALUE"
    ),
    _set("chunkng.tokens=100", rule="unknown setting", value="chunkng", remedy="did you mean chunking?"),
    _set("chunking.tokns=100", rule="unknown setting", value="chunking.tokns", remedy="did you mean chunking.tokens?"),
    _set("generation.api_key=sk-1", rule="unknown setting", value="generation.api_key", remedy="the settings of gener"),
    _set("chunking.tokens=many", rule="valid integer", value="got 'many'", remedy="set by command line"),
    _set("chunking.tokens=3", rule="greater than or equal to 16", value="got 3", remedy="set by command line"),
    _set(
        "guard.mode=blok", rule="'off', 'flag', 'block' or 'regenerate'", value="'blok'", remedy="did you mean block?"
    ),
    _set("retrieval.type=hybird", rule="must be one of dense", value="'hybird'", remedy="did you mean hybrid?"),
    _set("retrieval.fusion={type: ltr}", rule="must have coefficients", value="got none", remedy="`rag train-fusion`"),
    _set("retrieval.fusion.weights.dnse=1", rule="must name retrievers", value="got dnse", remedy="(dense, bm25)"),
    _set("retrieval={type: splade}", rule="requires this section", value="splade", remedy="set it to {type: "),
    _set("generation={type: openai}", rule="is required", value="generation.model", remedy="is required"),
    _set(
        "generation={type: openai, model: m, base_url: localhost:8000}",
        rule="should match pattern",
        value="'localhost:8000'",
        remedy="example: http://localhost:8000/v1",
    ),
    _set("tenant=Me", rule="should match pattern", value="'Me'", remedy="example: harbour-team"),
    _set("metadata.from_path=[0-9]+", rule="must have named groups", value="'[0-9]+'", remedy="such as (?P<year>"),
    _set(
        "embedding.dimension=64",
        rule="holds vectors",
        value="in 64 dimensions, not 384",
        remedy="ingest the collection",
    ),
    _set(
        "embedding={type: bert, model: no/such-model}",
        code=3,
        rule="is not a folder and cannot be downloaded",
        value="no/such-model",
        remedy="give a folder with its files",
    ),
    _set(
        "store.url=mysql://me:hunter2@host/rag",
        rule="or a DSN such as postgresql://",
        value="'mysql'",
        remedy="embedded",
    ),
    _set(
        "store.url=postgresql://me:hunter2@127.0.0.1:1/rag",
        code=3,
        rule="cannot use the store",
        value="host=127.0.0.1 port=1",
        remedy="Is the server running",
    ),
    # own objects
    _set(
        "embedding={type: python, object: acme.Mine}",
        rule="should match pattern",
        value="'acme.Mine'",
        remedy="example: acme.embedding:Mine",
    ),
    _set(
        "embedding={type: python, object: 'acme_mistakes:Mine'}",
        rule="embedding: cannot build the object",
        value="acme_mistakes:Mine",
        remedy="has no attribute 'Mine'",
    ),
    _set(
        "embedding={type: python, object: 'acme_nowhere:Mine'}",
        rule="embedding: cannot build the object",
        value="acme_nowhere:Mine",
        remedy="start the command in the folder of the module, or install it",
    ),
    _set(
        "retrieval={type: python, object: 'acme_mistakes:Answers'}",
        rule="must have retrieve",
        value="got Answers",
        remedy="without retrieve",
    ),
    _command(
        *("config", "check", "--set", "generation={type: python, object: 'acme_mistakes:Answers'}"),
        rule="generation: acme_mistakes:Answers.stream must return an async generator",
        value="got coroutine",
        remedy="async def with yield",
    ),
    # ingestion and what is stored
    _command(
        "ingest", "/nowhere", rule="cannot be used as a source", value="'/nowhere'", remedy="give an existing file"
    ),
    _command(
        "ingest",
        "foo://b/x",
        rule="cannot be used as a source",
        value="foo://b/x",
        remedy="whose fsspec driver is installed",
    ),
    _command("ingest", "docs/sub", rule="overlaps source", value="docs/sub", remedy="choose another collection"),
    _command("ingest", "docs", "--runner", "spark", rule="is not one of", value="'spark'", remedy="'inline'"),
    _command(
        "documents", "show", "file:///x.md", rule="has no document", value="file:///x.md", remedy="documents list"
    ),
    _command("documents", "list", "--status", "done", rule="is not one of", value="'done'", remedy="'completed'"),
    _command("jobs", "show", "0000", rule="there is no job", value="0000", remedy="`rag jobs list`"),
    _command(
        "collections", "drop", "handbok", rule="no collection", value="'handbok'", remedy="did you mean handbook?"
    ),
    _command("sources", "drop", "file:///x", rule="Delete source", value="file:///x", remedy="Pass --yes to confirm"),
    _command(
        "evaluate", "beir", rule="cannot be read", value="beir/queries.jsonl", remedy="a dataset is a folder with"
    ),
    _command(
        "serve", "--port", "0", rule="greater than or equal to 1", value="got '0'", remedy="greater than or equal"
    ),
    _command("serve", "--host", "0.0.0.0", rule="on loopback only", value="0.0.0.0", remedy="must be 127.0.0.1"),  # noqa: S104
    _command(
        "serve", "--config", "serve.yaml", rule="unknown key", value="deplyments", remedy="did you mean deployments?"
    ),
    # HTTP
    _request("GET", "/v1/answers", code=404, rule="there is no route", value="/v1/answers", remedy="/openapi.json"),
    _request(
        "GET", "/v1/answer", code=405, rule="does not allow this method", value="/v1/answer", remedy="header Allow"
    ),
    _request(
        "POST", "/v1/answer", "{q: x}", code=400, rule="must be JSON", value="character 1", remedy="double quotes"
    ),
    _request("POST", "/v1/answer", '{"question": ""}', rule="at least 1 char", value="got ''", remedy="question"),
    _request(
        *("POST", "/v1/answer", '{"quesion": "keys"}'),
        rule="Extra inputs are not permitted",
        value="quesion",
        remedy="did you mean question?",
    ),
    _request(
        *("POST", "/v1/answer", '{"question": "keys", "guard": "blok"}'),
        rule="should be 'off', 'flag'",
        value="got 'blok'",
        remedy="'block'",
    ),
    _request(
        *("POST", "/v1/answer", '{"question": "keys", "collection": "handbok"}'),
        code=404,
        rule="no collection",
        value="'handbok'",
        remedy="did you mean handbook?",
    ),
    _request(
        *("POST", "/v1/answer", '{"question": "keys", "profile": "gpu"}'),
        rule="profile gpu is not served here",
        value="device is cuda, but PyTorch",
        remedy="default, pmc-cpu, splade",
    ),
    _request(
        *("POST", "/v1/retrieve", '{"query": "keys", "top_k": 1000}'),
        rule="less than or equal to 100",
        value="got 1000",
        remedy="top_k",
    ),
    _request(
        *("POST", "/v1/retrieve", '{"query": "keys", "fusion_method": "ltr"}'),
        rule="the profile has no learned weights",
        value="ltr",
        remedy="`rag train-fusion`",
    ),
    _request(
        *("POST", "/v1/retrieve", '{"query": "keys", "strategies": ["splade"]}'),
        rule="must be legs of the profile",
        value="got splade",
        remedy="(dense, bm25)",
    ),
    _request("POST", "/v1/retrieve", '["keys"]', rule="valid dictionary", value="the body", remedy="object"),
    _request(
        *("POST", "/v1/chat/completions", '{"model": "default", "messages": []}'),
        code=400,
        rule="at least one message",
        value="messages",
        remedy="must have the role user",
    ),
    _request(
        "POST", "/v1/ingest", '{"collection": "x"}', rule="must have documents", value="the body", remedy="a source"
    ),
    _request("GET", "/v1/documents?cursor=abc", rule="cursor must be", value="cursor", remedy="next_cursor of a page"),
    _request("GET", "/v1/documents?limit=999", rule="less than or equal to 200", value="got '999'", remedy="limit"),
    _request("GET", f"/v1/jobs/{NOWHERE_ID}", code=404, rule="there is no job", value=NOWHERE_ID, remedy="jobs list"),
    _request(
        *("GET", f"/v1/documents/{NOWHERE_ID}"),
        code=404,
        rule="there is no document",
        value=NOWHERE_ID,
        remedy="/v1/documents lists",
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a user sees: the exit code or the status, and everything that is printed or sent."""

    code: int
    text: str

    @property
    def message(self) -> str:
        """The text without frames and without line breaks: a terminal's width must not matter."""
        return " ".join(re.sub(r"[╭╮╰╯│─]", " ", self.text).split())


def prepare(rag: Rag) -> None:
    """Writes the files into the working directory, and ingests the documents. The environment names the store."""
    for name, text in FILES.items():
        file = Path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for collection in ("default", "handbook"):
        assert rag("ingest", "docs", "--quiet", "--collection", collection).code == 0


def make(mistake: Mistake, rag: Rag) -> Outcome:
    if mistake.is_request:
        return asyncio.run(_send(*mistake.arguments))
    ran = rag(*mistake.arguments)
    return Outcome(ran.code, ran.err + ran.out)


async def _send(method: str, path: str, body: str) -> Outcome:
    from serve.gateway import build_fastapi
    from serve.gateway_settings import SettingsSource, load_gateway_settings
    from serve.profiles import build_profiles
    from serve.services import open_shared_resources

    settings = load_gateway_settings(SettingsSource())
    profiles = build_profiles(settings, open_shared_resources(settings.own))
    transport = httpx2.ASGITransport(app=build_fastapi(profiles), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {"Content-Type": "application/json"} if body else {}
        response = await client.request(method, path, content=body, headers=headers)
    await profiles.own.services.close()
    problem = response.json()
    return Outcome(response.status_code, "; ".join(rule["detail"] for rule in problem.get("errors", [problem])))


def main() -> None:
    from _pytest.capture import FDCapture, MultiCapture

    home = Path(tempfile.mkdtemp(prefix="rag-mistakes-"))
    home.chmod(0o755)
    os.environ |= {"RAG_HOME": str(home), "RAG_EMBEDDING__TYPE": "hashing"}
    capture = MultiCapture(in_=None, out=FDCapture(1), err=FDCapture(2))
    capture.start_capturing()
    rag = rag_in_process(capture)  # type: ignore[arg-type]
    try:
        (home / "work").mkdir()
        with chdir(home / "work"):
            prepare(rag)
            rows = [(mistake, make(mistake, rag)) for mistake in MISTAKES]
    finally:
        capture.stop_capturing()
        embedded.stop(home / "postgres")
        shutil.rmtree(home)
    print("| mistake | code | message | remedy |\n|---|---|---|---|")
    for mistake, outcome in rows:
        message = outcome.message.partition("Error")[2] if "Usage:" in outcome.message else outcome.message
        command = " ".join(mistake.arguments if mistake.is_request else ("rag", *mistake.arguments))
        cells = (f"`{command.strip()}`", str(outcome.code), message.strip()[:240], mistake.remedy)
        sys.stdout.write(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n")


if __name__ == "__main__":
    main()
