"""Own objects are tried by `rag config check`: what they return is compared with what their role promises."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.wiring.object_trials import try_python_objects

OWN = """
import numpy as np
from rag_core.errors import NotFoundError
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Chunk, Space, TermWeights, Verdict, chunk_id

SPACE = Space(model="m", dimension=4, window=512, fingerprint="f")

class Chunker:
    def __init__(self, text=None, start=0, ordinal=0, count=1, fails=False):
        self.text, self.start, self.ordinal, self.count, self.fails = text, start, ordinal, count, fails
    def split(self, document_id, document):
        if self.fails:
            return document.txt
        text = self.text or document.text[:10]
        chunk = Chunk(id=chunk_id(document_id, text, 0), document_id=document_id, ordinal=self.ordinal, text=text,
                      start=self.start, end=self.start + len(text))
        return (chunk,) * self.count

class Strings:
    def split(self, document_id, document):
        return document.text.split()

class Embedder:
    def __init__(self, dimension=4, length=1.0, space=SPACE):
        self.dimension, self.length, self.space, self.tokenizer = dimension, length, space, WordTokenizer()
    def embed(self, texts):
        return np.full((len(texts), self.dimension), self.length / self.dimension ** 0.5, dtype=np.float32)
    def embed_questions(self, texts):
        return self.embed(texts)

class Weigher:
    fingerprint = "f"
    def __init__(self, wrong=False):
        self.wrong = wrong
    def weigh(self, texts):
        return [TermWeights(("a",), np.ones(1, dtype=np.float32)) for _ in texts]
    def weigh_questions(self, texts):
        return [{"a": 1.0} for _ in texts] if self.wrong else self.weigh(texts)

class Retriever:
    def __init__(self, returned=()):
        self.returned = returned
    async def retrieve(self, query, k):
        if self.returned == "nowhere":
            raise NotFoundError("no collection")
        return list(self.returned)

class Reranker:
    def __init__(self, scores=(1, 2.5)):
        self.scores = scores
    async def score(self, question, texts):
        return list(self.scores)

class SyncReranker:
    def score(self, question, texts):
        return [1.0, 2.0]

class Generator:
    def __init__(self, piece="At once. [1]"):
        self.piece = piece
    async def stream(self, prompt):
        for passage in prompt.passages:
            yield self.piece

class NoStream:
    async def stream(self, prompt):
        return "At once."

class Judge:
    def __init__(self, verdict=True):
        self.verdict = verdict
    async def judge(self, answer, passages):
        return Verdict(grade="supported", method="mine") if self.verdict else True
"""

RERANKED = "{type: reranked, retriever: {type: bm25}, reranker: %s}"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_trials.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def try_object(section: str, name: str, arguments: Mapping[str, object]) -> None:
    python_object = f"{{type: python, object: 'acme_trials:{name}', arguments: {dict(arguments)}}}"
    override = f"retrieval={RERANKED % python_object}" if section == "reranker" else f"{section}={python_object}"
    try_python_objects(load_settings(overrides=[override], environment={}))


@pytest.mark.parametrize(
    ("section", "name", "arguments"),
    [
        ("chunking", "Chunker", {}),
        ("embedding", "Embedder", {}),
        ("splade", "Weigher", {}),
        ("retrieval", "Retriever", {}),
        ("retrieval", "Retriever", {"returned": "nowhere"}),
        ("reranker", "Reranker", {}),
        ("generation", "Generator", {}),
        ("guard.judge", "Judge", {}),
    ],
)
def test_an_object_that_keeps_its_promises_passes(section: str, name: str, arguments: Mapping[str, object]) -> None:
    try_object(section, name, arguments)


@pytest.mark.parametrize(
    ("section", "name", "arguments", "message"),
    [
        ("chunking", "Strings", {}, "Strings.split must return a tuple of Chunk, got list of 17 (str)"),
        ("chunking", "Chunker", {"count": 0}, "Chunker.split must return at least one Chunk of a text with two"),
        ("chunking", "Chunker", {"count": 2, "ordinal": 0}, "split: ordinals must count from 0: that of chunk 1 is 0"),
        (
            *("chunking", "Chunker", {"text": "Keys"}),
            "split: chunk 0 must be document.text[0:4], 'Sign', got 'Keys'",
        ),
        (
            *("chunking", "Chunker", {"fails": True}),
            "split failed: AttributeError: 'Document' object has no attribute 'txt' (acme_trials.py, line 14)",
        ),
        (
            *("embedding", "Embedder", {"dimension": 3}),
            "embed must return an array of shape (2, 4) (texts, space.dimension), got ndarray of shape (2, 3)",
        ),
        ("embedding", "Embedder", {"length": 2.0}, "embed must return rows of length 1, got list of 2 (float)"),
        ("embedding", "Embedder", {"space": 384}, "space must return a Space, got int 384"),
        (
            "splade",
            "Weigher",
            {"wrong": True},
            "weigh_questions must return a list of TermWeights, got list of 2 (dict)",
        ),
        ("retrieval", "Retriever", {"returned": [1, 2]}, "retrieve must return a list of Hit, got list of 2 (int)"),
        ("reranker", "Reranker", {"scores": [1.0]}, "score must return 2 numbers, one per text, got list of 1 (float)"),
        ("reranker", "SyncReranker", {}, "score must return an awaitable (async def), got list of 2 (float)"),
        ("generation", "NoStream", {}, "stream must return an async generator (async def with yield), got coroutine"),
        ("generation", "Generator", {"piece": 7}, "stream must return pieces of text (str), got list of 1 (int)"),
        ("guard.judge", "Judge", {"verdict": False}, "judge must return a Verdict, got bool True"),
    ],
)
def test_one_that_breaks_a_promise_is_refused_with_its_role_its_method_and_what_it_returned(
    section: str, name: str, arguments: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        try_object(section, name, arguments)
    assert str(raised.value).startswith(f"{section}: acme_trials:{name}.")
    assert message in str(raised.value)
