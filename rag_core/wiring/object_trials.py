"""Trials of users' own objects: one small call of each method of the role, and a check of what it returns.

`rag config check` runs them, so that a wrong object is reported before the first document or question meets it.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np

from rag_core.chunking.checked import find_broken_promises
from rag_core.config import PythonObject, RerankedRetriever, Settings, walk
from rag_core.errors import ConfigError, NotFoundError, RagError
from rag_core.types import (
    Answer,
    Chunk,
    Document,
    Hit,
    Origin,
    Passage,
    Prompt,
    Query,
    Space,
    TermWeights,
    Verdict,
    chunk_id,
)
from rag_core.wiring.python_objects import Role, build_python_object, describe_failure

_MEMBERS: Mapping[Role, tuple[str, ...]] = {
    "chunking": ("split",),
    "embedding": ("embed", "embed_questions", "space", "tokenizer"),
    "splade": ("weigh", "weigh_questions", "fingerprint"),
    "retrieval": ("retrieve",),
    "reranker": ("score",),
    "generation": ("stream",),
    "guard.judge": ("judge",),
}
"""The methods and attributes of each role's object."""
_TEXTS = ("Signing keys are rotated every 90 days.", "A key is replaced at once when its holder leaves.")
_QUESTION = "How often are keys rotated?"
_DOCUMENT_ID = UUID(int=1)
_DOCUMENT = Document(uri="file:///sample.md", text="\n\n".join(_TEXTS), title="Sample")
_K = 2
_LENGTH_TOLERANCE = 0.01


def try_python_objects(settings: Settings) -> None:
    """Builds and tries every own object of the profile.

    Raises ConfigError with the role, the method, and the value that was expected and got. The object's own RagErrors
    pass, except that a retriever may report that the collection does not exist.
    """
    retrieval = list(walk(settings.retrieval))
    rerankers = [section.reranker for section in retrieval if isinstance(section, RerankedRetriever)]
    trials: list[tuple[Role, object, Callable[[_Trial], None]]] = [
        ("chunking", settings.chunking, _try_chunker),
        ("embedding", settings.embedding, _try_embedder),
        ("splade", settings.splade, _try_weigher),
        *(("retrieval", section, _try_retriever) for section in retrieval),
        *(("reranker", section, _try_reranker) for section in rerankers),
        ("generation", settings.generation, _try_generator),
        ("guard.judge", settings.guard.judge, _try_judge),
    ]
    for role, section, try_object in trials:
        if isinstance(section, PythonObject):
            try_object(_Trial(role, section))


class _Trial:
    """The object of one role, and the errors of its methods."""

    def __init__(self, role: Role, section: PythonObject) -> None:
        self.built = build_python_object(section, role, *_MEMBERS[role])
        self.place = f"{role}: {section.object}"

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Turns errors of the method into ConfigError; RagErrors pass."""
        try:
            yield
        except RagError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.place}.{method} failed: {describe_failure(error)}") from error

    def check(self, is_right: bool, method: str, expected: str, got: object) -> None:
        if not is_right:
            raise ConfigError(f"{self.place}.{method} must return {expected}, got {_describe(got)}")

    def check_list(self, value: object, method: str, kind: type, expected: str) -> None:
        """Checks that the value is a list or tuple of `kind`."""
        is_right = isinstance(value, list | tuple) and all(isinstance(element, kind) for element in value)
        self.check(is_right, method, expected, value)

    def call(self, method: str, *arguments: object) -> Any:
        with self.calling(method):
            return getattr(self.built, method)(*arguments)

    def await_call(self, method: str, *arguments: object) -> Any:
        with self.calling(method):
            returned = getattr(self.built, method)(*arguments)
            if inspect.isawaitable(returned):
                return asyncio.run(_wait_for(returned))
        self.check(False, method, "an awaitable (async def)", returned)
        return None


def _try_chunker(trial: _Trial) -> None:
    chunks = trial.call("split", _DOCUMENT_ID, _DOCUMENT)
    trial.check_list(chunks, "split", Chunk, "a tuple of Chunk")
    trial.check(len(chunks) > 0, "split", "at least one Chunk of a text with two paragraphs", chunks)
    for broken in find_broken_promises(_DOCUMENT_ID, _DOCUMENT, chunks):
        raise ConfigError(f"{trial.place}.split: {broken}")


def _try_embedder(trial: _Trial) -> None:
    space, tokenizer = trial.built.space, trial.built.tokenizer
    trial.check(isinstance(space, Space), "space", "a Space", space)
    with trial.calling("tokenizer.lengths"):
        lengths = tokenizer.lengths(list(_TEXTS))
    trial.check_list(lengths, "tokenizer.lengths", int, "a list with one int per text")
    trial.check(len(lengths) == len(_TEXTS), "tokenizer.lengths", f"{len(_TEXTS)} lengths", lengths)
    shape = (len(_TEXTS), space.dimension)
    for method in ("embed", "embed_questions"):
        rows = trial.call(method, list(_TEXTS))
        expected = f"an array of shape {shape} (texts, space.dimension)"
        trial.check(isinstance(rows, np.ndarray) and rows.shape == shape, method, expected, rows)
        norms = np.linalg.norm(rows, axis=1)
        is_normal = bool(np.all(np.abs(norms - 1) < _LENGTH_TOLERANCE))
        trial.check(is_normal, method, "rows of length 1", [round(float(norm), 3) for norm in norms])


def _try_weigher(trial: _Trial) -> None:
    fingerprint = trial.built.fingerprint
    trial.check(isinstance(fingerprint, str) and fingerprint != "", "fingerprint", "a text", fingerprint)
    for method in ("weigh", "weigh_questions"):
        weights = trial.call(method, list(_TEXTS))
        trial.check_list(weights, method, TermWeights, "a list of TermWeights")
        trial.check(len(weights) == len(_TEXTS), method, f"{len(_TEXTS)} TermWeights, one per text", weights)


def _try_retriever(trial: _Trial) -> None:
    try:
        hits = trial.await_call("retrieve", Query(text=_QUESTION), _K)
    except NotFoundError:  # there is no such collection yet
        return
    trial.check_list(hits, "retrieve", Hit, "a list of Hit")
    trial.check(len(hits) <= _K, "retrieve", f"at most k = {_K} hits", hits)


def _try_reranker(trial: _Trial) -> None:
    scores = trial.await_call("score", _QUESTION, list(_TEXTS))
    is_row = isinstance(scores, list | tuple | np.ndarray) and np.shape(scores) == (len(_TEXTS),)
    trial.check(is_row, "score", f"{len(_TEXTS)} numbers, one per text", scores)
    are_finite = all(isinstance(score, int | float | np.number) and isfinite(score) for score in scores)
    trial.check(are_finite, "score", "finite numbers", scores)


def _try_generator(trial: _Trial) -> None:
    passages = _sample_passages()
    prompt = Prompt(query=Query(text=_QUESTION), passages=passages, hits=tuple(passage.hit for passage in passages))
    stream = trial.call("stream", prompt)
    if inspect.iscoroutine(stream):
        stream.close()  # otherwise Python warns that nobody awaited it
    is_generator = inspect.isasyncgen(stream)
    trial.check(is_generator, "stream", "an async generator (async def with yield)", stream)
    with trial.calling("stream"):
        pieces = asyncio.run(_read_all(stream))
    trial.check_list(pieces, "stream", str, "pieces of text (str)")


def _try_judge(trial: _Trial) -> None:
    verdict = trial.await_call("judge", Answer(text=f"{_TEXTS[0]} [1]"), _sample_passages())
    trial.check(isinstance(verdict, Verdict), "judge", "a Verdict", verdict)


def _sample_passages() -> tuple[Passage, ...]:
    text = _TEXTS[0]
    id = chunk_id(_DOCUMENT_ID, text, 0)
    chunk = Chunk(id=id, document_id=_DOCUMENT_ID, ordinal=0, text=text, start=0, end=len(text))
    hit = Hit(chunk=chunk, origin=Origin(uri=_DOCUMENT.uri, title=_DOCUMENT.title), score=1.0)
    return (Passage(n=1, hit=hit, text=text, start=0, chunks=(chunk,)),)


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable


async def _read_all(stream: Any) -> list[object]:
    async with aclosing(stream) as pieces:
        return [piece async for piece in pieces]


def _describe(value: object) -> str:
    """The type, and the shape of an array, the length of a list or the beginning of another value."""
    name = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"{name} of shape {value.shape}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        kinds = ", ".join(sorted({type(element).__name__ for element in value}))
        return f"{name} of {len(value)} ({kinds})" if value else f"an empty {name}"
    return name if inspect.iscoroutine(value) else f"{name} {value!r:.60}"
