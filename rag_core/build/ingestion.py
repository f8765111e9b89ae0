"""The ingest path: sources, stages, and the sync that drives them."""

from collections.abc import Mapping, Sequence
from functools import partial

from rag_core.build.chunking import chunker
from rag_core.build.embedding import embedding_space, encoder
from rag_core.config import Settings
from rag_core.ingestion.inline import InlineRunner
from rag_core.ingestion.parsing.document import parse
from rag_core.ingestion.parsing.formats import recipe_part
from rag_core.ingestion.recipe import Recipe
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.ingestion.sync import DEFAULT_OPTIONS, Options, Sync
from rag_core.protocols import Source
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CorpusWriter
from rag_core.types import DEFAULT_COLLECTION

NOT_RECORDED = {"store", "tenant"}
"""Settings that say where, not how: a job's record has no use for them, and a DSN may hold a password."""


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
        options=options,
    )


def source(settings: Settings, location: str) -> FilesSource:
    files = settings.files
    return FilesSource.open(location, files.include, files.exclude, files.recursive, settings.limits.file_mb)


def recipe(settings: Settings) -> Recipe:
    reading = settings.model_dump_json(include={"parsing": True, "limits": {"text_mb"}})
    chunking = settings.chunking.model_dump_json()
    return Recipe(recipe_part, reading + chunking, embedding_space(settings.embedding))


def preparation(settings: Settings, sources: Mapping[int, Source]) -> Preparation:
    limits = settings.limits
    parsing = partial(
        parse, detect_language=settings.parsing.detect_language, file_mb=limits.file_mb, text_mb=limits.text_mb
    )
    return Preparation(sources, parsing, chunker(settings))


def embedding(settings: Settings, writer: CorpusWriter) -> Embedding:
    return Embedding(partial(encoder, settings.embedding), writer.known_vectors)


def inline_runner(settings: Settings) -> InlineRunner:
    return InlineRunner(
        preparation=partial(preparation, settings),
        embedding=partial(embedding, settings),
        group=settings.ingestion.group,
    )
