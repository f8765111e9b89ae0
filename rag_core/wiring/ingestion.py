"""The ingest path: sources, stages, and the sync that drives them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, assert_never
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from rag_core.config import EmbeddingSettings, Limits, ParsingSettings, SentenceTransformersSplade, Settings
from rag_core.errors import ConfigError, SourceError
from rag_core.ingestion.inline import InlineRunner
from rag_core.ingestion.recipe import Recipe
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.pushed import PushedSource, described, fingerprint, named
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.ingestion.sync import DEFAULT_OPTIONS, Options, Sync
from rag_core.models.loading import refuse_missing_gpu
from rag_core.parsing import scan
from rag_core.parsing.document import parse
from rag_core.parsing.formats import recipe_part
from rag_core.parsing.metadata import Rules, mapped
from rag_core.parsing.sandbox import Bounds, Sandbox
from rag_core.protocols import Source
from rag_core.storage.graph import extraction
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CorpusWriter
from rag_core.storage.queue import PUSHED, Lease, Pushed
from rag_core.types import DEFAULT_COLLECTION, Document
from rag_core.wiring import splade
from rag_core.wiring.chunking import chunker
from rag_core.wiring.embedding import Encoder, embedding_space, encoder, refuse_missing_device
from rag_core.wiring.splade import weigher

NOT_RECORDED = {"store", "tenant", "telemetry"}
"""Settings that say where and who, not how: a job's record has no use for them, and a DSN may hold a password."""
SANDBOX = {"sandbox", "timeout_s", "memory_mb"}
"""Settings of parsing that decide whether a document can be read, not how."""
SAMPLE = ("file:///sample.txt", b"So many letters that the model which tells languages apart is loaded by this.")
MEGABYTE = 1_000_000


def sync(
    settings: Settings,
    postgres: Postgres,
    locations: Sequence[str],
    collection: str = DEFAULT_COLLECTION,
    options: Options = DEFAULT_OPTIONS,
) -> Sync:
    """SourceError for a location that is not there, ConfigError for settings that do not fit together."""
    chunker(settings)
    sources = {each.uri: each for each in (source(settings, location) for location in locations)}
    return Sync(
        postgres=postgres,
        tenant=settings.tenant,
        collection=collection,
        sources=list(sources.values()),
        recipe=recipe(settings),
        profile=settings.profile,
        settings=settings.model_dump(mode="json", exclude=NOT_RECORDED),
        delete_share=settings.ingestion.delete_share,
        patience=settings.store.patience_s,
        graph=settings.graph is not None,
        splade=_splade(settings),
        options=options,
    )


def leased_settings(settings: Settings, lease: Lease) -> Settings:
    """The configuration that a job was queued with. Otherwise as `settings_of`."""
    return _today(lease.job, lease.request.settings, lease.tenant, settings)


def leased_sync(settings: Settings, postgres: Postgres, lease: Lease) -> Sync:
    """A job of the queue, with the settings that are its own. Raises what `sync` raises."""
    asked = lease.request
    options = Options(prune=asked.prune, confirmed=asked.confirmed, checksum=asked.checksum, only=frozenset(asked.only))
    found = sync(settings, postgres, asked.locations, asked.collection, options)
    leased = replace(found, job=lease.job, fence=lease.fence)
    if not lease.pushes:
        return leased
    pushed = PushedSource.open(postgres, lease.tenant, lease.job, settings.limits.file_mb)
    parsing = partial(_pushed_recipe_part, pushed.documents)
    return replace(
        leased,
        sources=[pushed, *leased.sources],
        recipe=replace(leased.recipe, parsing=parsing),
        partial=frozenset({pushed.uri}),
    )


def _pushed_recipe_part(documents: Mapping[str, Pushed], uri: str) -> str:
    pushed = documents.get(uri)
    return f"{recipe_part(named(pushed))}, pushed {fingerprint(pushed)}" if pushed else recipe_part(uri)


def settings_of(job: Mapping[str, Any], settings: Settings) -> Settings:
    """The configuration that a job had, in today's store; sections that it did not know yet are today's, too.

    ConfigError if today's rules no longer allow it.
    """
    return _today(job["id"], job["settings"], settings.tenant, settings)


def _today(job: UUID, recorded: Mapping[str, Any], tenant: str, settings: Settings) -> Settings:
    own = {"tenant": tenant, "store": settings.store, "telemetry": settings.telemetry}
    try:
        return Settings.model_validate({**settings.model_dump(mode="json"), **recorded, **own})
    except ValidationError as error:
        raise ConfigError(f"the settings of job {job} break today's rules: {error}") from error


def retry(settings: Settings, postgres: Postgres, job: Mapping[str, Any], failed: Sequence[str]) -> Sync:
    """Those documents of a job once more, from its sources. SourceError if they came with a request."""
    if PUSHED in job["sources"]:
        raise SourceError(f"job {job['id']} has documents that came with a request: POST /v1/jobs/{job['id']}/retry")
    return sync(settings, postgres, job["sources"], job["collection"], Options(only=frozenset(failed)))


def source(settings: Settings, location: str) -> FilesSource:
    files = settings.files
    return FilesSource.open(location, files.include, files.exclude, files.recursive, settings.limits.file_mb)


def recipe(settings: Settings) -> Recipe:
    reading = settings.model_dump_json(
        include={"parsing": True, "metadata": True, "scan": True, "limits": {"text_mb"}}, exclude={"parsing": SANDBOX}
    )
    chunking = settings.chunking.model_dump_json() + _graph(settings) + _splade(settings)
    limits = f"file_mb {settings.limits.file_mb:g}"
    return Recipe(recipe_part, f"scan {scan.VERSION}" + reading + chunking, embedding_space(settings.embedding), limits)


def _graph(settings: Settings) -> str:
    return f"graph {extraction.VERSION}" + settings.graph.model_dump_json() if settings.graph else ""


def _splade(settings: Settings) -> str:
    return splade.fingerprint(settings.splade) if settings.splade else ""


def preparation(settings: Settings, sources: Mapping[int, Source]) -> Preparation:
    parsing = partial(_mapped, _parse_of(settings, sources), _rules(settings))
    return Preparation(sources, parsing, chunker(settings), _scan(settings))


def _parse_of(settings: Settings, sources: Mapping[int, Source]) -> Callable[[str, bytes], Document]:
    parsing = _parse(settings.parsing, settings.limits)
    pushed = next((each.documents for each in sources.values() if isinstance(each, PushedSource)), None)
    return partial(_pushed_document, pushed, parsing) if pushed else parsing


def _pushed_document(
    documents: Mapping[str, Pushed], parsing: Callable[[str, bytes], Document], uri: str, body: bytes
) -> Document:
    pushed = documents.get(uri)
    return described(pushed, parsing(named(pushed), body)) if pushed else parsing(uri, body)


@lru_cache(maxsize=1)
def _parse(parsing: ParsingSettings, limits: Limits) -> Callable[[str, bytes], Document]:
    """One sandbox a process, also for the next job with the same settings: its start takes half a second."""
    trusting = partial(parse, detect_language=parsing.detect_language, file_mb=limits.file_mb, text_mb=limits.text_mb)
    if not parsing.sandbox:
        return trusting
    bounds = Bounds(
        seconds=parsing.timeout_s,
        memory_mb=parsing.memory_mb,
        output_bytes=int(limits.text_mb * 4 * MEGABYTE) + MEGABYTE,
    )
    return Sandbox(trusting, bounds, [SAMPLE])


def _scan(settings: Settings) -> scan.Scan:
    match settings.scan.mode:
        case "off":
            return scan.unscanned
        case "flag":
            return partial(scan.flagging, file_mb=settings.limits.file_mb)
        case "quarantine":
            return partial(scan.scan, file_mb=settings.limits.file_mb)
        case _:
            assert_never(settings.scan.mode)


def _mapped(parsing: Callable[[str, bytes], Document], rules: Rules, uri: str, body: bytes) -> Document:
    return mapped(parsing(uri, body), rules)


def _rules(settings: Settings) -> Rules:
    chosen = settings.metadata
    return Rules(rename=chosen.rename, drop=chosen.drop, from_path=chosen.from_path, set=chosen.set)


def embedding(settings: Settings, writer: CorpusWriter, threads: int = 1) -> Embedding:
    open_weigher = partial(weigher, settings.splade, threads) if settings.splade else None
    open_embedder = partial(_encoder, settings.embedding.model_dump_json(), threads)
    return Embedding(open_embedder, writer.known_vectors, open_weigher)


@lru_cache(maxsize=1)
def _encoder(embedding: str, threads: int) -> Encoder:
    """One a process, also for the next job with the same settings, which come as text: arguments have no hash."""
    return encoder(TypeAdapter[EmbeddingSettings](EmbeddingSettings).validate_json(embedding), threads)


def refuse_missing_devices(settings: Settings) -> None:
    """ModelError if a model is to compute on a GPU that this process cannot use."""
    refuse_missing_device(settings.embedding)
    if isinstance(settings.splade, SentenceTransformersSplade):
        refuse_missing_gpu("splade", settings.splade.device)


def inline_runner(settings: Settings) -> InlineRunner:
    return InlineRunner(
        preparation=partial(preparation, settings),
        embedding=partial(embedding, settings, threads=_cpus()),
        group=settings.ingestion.group,
        readers=_cpus(),
    )


def _cpus() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
