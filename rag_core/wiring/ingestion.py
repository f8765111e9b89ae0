"""Builders for the ingest path: sources, stages, and the sync that drives them."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, assert_never
from urllib.parse import unquote
from uuid import UUID

from pydantic import ValidationError

from rag_core.chunking.given import sort_given
from rag_core.config import HIDE_SECRETS, LocalModel, Settings
from rag_core.detection import DetectPatterns, detect_document_profile
from rag_core.errors import ConfigError, SourceError, validation_lines
from rag_core.ingestion import given_documents
from rag_core.ingestion.access import AccessRule, AccessRules
from rag_core.ingestion.given_documents import parse_given
from rag_core.ingestion.inline import InlineRunner
from rag_core.ingestion.recipe import Recipe, make_label
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.format_uri import brings_chunks, format_uri
from rag_core.ingestion.sources.given import GivenSource
from rag_core.ingestion.sources.globs import compile_pattern
from rag_core.ingestion.sources.json_lines import JsonLinesSource
from rag_core.ingestion.sources.location_rules import LocationRules, refuse_password
from rag_core.ingestion.sources.pushed import PushedSource, pushed_fingerprint, with_pushed_metadata
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.ingestion.sync import DEFAULT_OPTIONS, Sync, SyncOptions
from rag_core.models.loading import check_gpu
from rag_core.parsing import scan
from rag_core.parsing.document import replace_unstorable
from rag_core.parsing.formats import ParserChoice, recipe_part
from rag_core.parsing.metadata import MetadataRules, apply_rules, complete_metadata
from rag_core.protocols import Source
from rag_core.storage.graph import extraction
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CorpusWriter
from rag_core.storage.queue import JSON_LINES_SCHEME, PUSHED_URI, Lease, pushed_uri
from rag_core.types import DEFAULT_COLLECTION, Document
from rag_core.wiring.chunking import build_chunker, build_given_chunker
from rag_core.wiring.embedding import Encoder, check_device, embedding_space, encoder_from_json
from rag_core.wiring.parsing import check_parsers, choose_parsers, open_parser
from rag_core.wiring.splade import build_weigher, weigher_fingerprint

ACCESS_SETTINGS = {"allowed_locations", "allowed_locations_by_tenant", "private_networks", "bulk_documents"}
"""Settings of section ingestion that limit what requests can do."""
READING_RULES = ("access", "access_default")
"""Settings of section metadata that say who can read documents."""
UNRECORDED_SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(("api", "auth", "store", "tenant", "telemetry", "retention", "encryption", "rate_limits"), True),
    "ingestion": ACCESS_SETTINGS,
}
"""Settings that a job does not record: they do not change how documents are read, and a DSN can hold a password."""
OMITTED_IF_EMPTY = {name for name, field in Settings.model_fields.items() if field.exclude_if}
"""Settings that a record does not hold if they are empty: they are empty then, whatever they are now."""
SANDBOX_SETTINGS = {"sandbox", "timeout_s", "memory_mb"}
"""Settings of section parsing that decide if a document can be read, but not how."""
GIVEN_RECIPE_PART = f"given {given_documents.VERSION}"
"""The recipe part of documents that bring their chunks."""
PARSER_SETTINGS = {"type", "strategy", "formats", "ocr"}
"""Settings of section parsing that are part of the recipe of those documents which they concern."""


def build_sync(
    settings: Settings,
    postgres: Postgres,
    locations: Sequence[str],
    collection: str = DEFAULT_COLLECTION,
    options: SyncOptions = DEFAULT_OPTIONS,
    rules: LocationRules | None = None,
) -> Sync:
    """Builds the sync of these locations into the collection; locations with equal URIs count once.

    `rules` limit the locations of a request; None is for the operator's own. Raises SourceError if a location does not
    exist or breaks the rules. Raises ConfigError if settings do not fit together, for example if chunks are larger than
    the window of the embedding model.
    """
    build_chunker(settings)
    check_parsers(settings.parsing)
    opened = [open_source(settings, location, rules) for location in locations]
    sources = {source.uri: source for source in opened}
    return Sync(
        postgres=postgres,
        tenant=settings.tenant,
        collection=collection,
        sources=list(sources.values()),
        recipe=build_recipe(settings),
        profile=settings.profile,
        settings=record_settings(settings),
        delete_share=settings.ingestion.delete_share,
        store_timeout=settings.store.patience_s,
        graph=settings.graph is not None,
        splade=_splade_fingerprint(settings),
        access=build_access_rules(settings),
        options=options,
    )


def record_settings(settings: Settings) -> dict[str, Any]:
    """The settings that a job records. Secrets are hidden: ingestion needs none of them."""
    return settings.model_dump(mode="json", exclude=UNRECORDED_SETTINGS, context=HIDE_SECRETS)


def settings_from_lease(settings: Settings, lease: Lease) -> Settings:
    """The settings that a job was queued with, completed and checked as by `settings_from_job`."""
    return _restore_settings(lease.job, lease.request.settings, lease.tenant, settings)


def build_lease_sync(settings: Settings, postgres: Postgres, lease: Lease) -> Sync:
    """The sync of a queued job. `settings` are those of `settings_from_lease`. Raises the errors of `build_sync`."""
    request = lease.request
    options = SyncOptions(
        prune=request.prune, confirmed=request.confirmed, checksum=request.checksum, only=frozenset(request.only)
    )
    rules = None if request.from_operator else location_rules(settings, lease.tenant)
    sync = build_sync(settings, postgres, request.locations, request.collection, options, rules)
    sync = replace(sync, job=lease.job, fence=lease.fence)
    if not lease.pushes:
        return sync
    pushed = PushedSource.open(postgres, lease.tenant, lease.job, settings.limits.file_mb)
    return replace(
        sync,
        sources=[pushed, *sync.sources],
        recipe=replace(
            sync.recipe, describe_parsing=partial(_pushed_recipe_part, sync.recipe.describe_parsing, pushed)
        ),
        partial_uris=frozenset({pushed.uri}),
    )


def build_given_sync(
    settings: Settings, postgres: Postgres, source: GivenSource, collection: str, is_partial: bool
) -> Sync:
    """The sync of a program's documents. `is_partial`: the collection can have other documents of this source."""
    sync = build_sync(settings, postgres, [], collection, SyncOptions(checksum=True))
    return replace(
        sync,
        sources=[source],
        recipe=replace(sync.recipe, describe_parsing=lambda _: GIVEN_RECIPE_PART),
        partial_uris=frozenset({source.uri} if is_partial else ()),
    )


def build_given_source(settings: Settings, documents: Iterable[Document]) -> GivenSource:
    """The documents with the metadata that every document has, by uris of pushed documents."""
    complete = {}
    for document in documents:
        url = {"url": document.uri} if "://" in document.uri else {}
        parsed = complete_metadata(replace_unstorable(document), settings.parsing.detect_language)
        parsed = replace(parsed, uri=pushed_uri(document.uri), metadata={**parsed.metadata, **url})
        complete[parsed.uri] = sort_given(parsed)
    return GivenSource(PUSHED_URI, complete, {})


def _describe_parsing(choice: ParserChoice, uri: str) -> str:
    """The recipe part of the document's parser."""
    return GIVEN_RECIPE_PART if uri.startswith(JSON_LINES_SCHEME) else recipe_part(uri, choice)


def _pushed_recipe_part(describe_parsing: Callable[[str], str], pushed: PushedSource, uri: str) -> str:
    """The recipe part of the document's parser, with the fingerprint of its push request if it was pushed."""
    record = pushed.documents.get(uri)
    if record is None:
        return describe_parsing(uri)
    part = GIVEN_RECIPE_PART if brings_chunks(pushed, uri) else describe_parsing(format_uri(pushed, uri))
    return f"{part}, pushed {pushed_fingerprint(record)}"


def settings_from_job(job: Mapping[str, Any], settings: Settings) -> Settings:
    """The settings that a job recorded; store and telemetry, and sections newer than the record, are the current ones.

    So are the rules for who can read. The recorded rules are added if the job has another profile, or if there are no
    rules now.

    Raises ConfigError if the current rules no longer allow the recorded settings.
    """
    return _restore_settings(job["id"], job["settings"], settings.tenant, settings)


def _restore_settings(job: UUID, recorded: Mapping[str, Any], tenant: str, settings: Settings) -> Settings:
    current = settings.model_dump(mode="json", exclude=OMITTED_IF_EMPTY)
    merged = {**current, **recorded, **{name: current[name] for name in ("api", "auth", "store", "telemetry")}}
    merged["ingestion"] = {**merged["ingestion"], **{name: current["ingestion"][name] for name in ACCESS_SETTINGS}}
    for name in READING_RULES:
        rules, is_same_profile = current["metadata"][name], merged["profile"] == current["profile"]
        earlier = () if rules and is_same_profile else merged["metadata"].get(name, ())
        merged["metadata"] = {**merged["metadata"], name: [*earlier, *rules]}
    try:
        return Settings.model_validate({**merged, "tenant": tenant})
    except ValidationError as error:
        reasons = "; ".join(validation_lines(error, "settings"))
        raise ConfigError(f"the settings of job {job} break the current rules: {reasons}") from error


def build_retry_sync(settings: Settings, postgres: Postgres, job: Mapping[str, Any], failed: Sequence[str]) -> Sync:
    """The sync that reads the failed documents of a job again. Raises SourceError if the job has uploaded documents."""
    if PUSHED_URI in job["sources"]:
        raise SourceError(
            f"job {job['id']} has uploaded documents, which only the gateway retries: POST /v1/jobs/{job['id']}/retry"
        )
    options = SyncOptions(only=frozenset(failed))
    rules = location_rules(settings, settings.tenant) if job["requested"] else None
    return build_sync(settings, postgres, job["sources"], job["collection"], options, rules)


def location_rules(settings: Settings, tenant: str) -> LocationRules:
    """The rules for the locations of a tenant's requests."""
    section = settings.ingestion
    own = section.allowed_locations_by_tenant.get(tenant, ())
    return LocationRules((*section.allowed_locations, *own), section.private_networks)


def source_uri(settings: Settings, location: str) -> str:
    """The uri of the source of `open_source`, without reading it. Raises its errors."""
    scheme = JSON_LINES_SCHEME if location.startswith(JSON_LINES_SCHEME) else ""
    return scheme + open_files_source(settings, location.removeprefix(scheme)).uri


def open_source(settings: Settings, location: str, rules: LocationRules | None = None) -> Source:
    """Opens files, or the lines of a file if the location begins with `jsonl:`. Raises SourceError or ConfigError."""
    file = open_files_source(settings, location.removeprefix(JSON_LINES_SCHEME), rules)
    return JsonLinesSource.open(file) if location.startswith(JSON_LINES_SCHEME) else file


def open_files_source(settings: Settings, location: str, rules: LocationRules | None = None) -> FilesSource:
    refuse_password(location)
    files = settings.files
    return FilesSource.open(location, files.include, files.exclude, files.recursive, settings.limits.file_mb, rules)


def build_recipe(settings: Settings) -> Recipe:
    # This text is part of every stored fingerprint: with its parts in another order all documents would be read again
    reading = settings.model_dump_json(
        include={"parsing": True, "metadata": True, "scan": True, "limits": {"text_mb"}},
        exclude={"parsing": SANDBOX_SETTINGS | PARSER_SETTINGS, "metadata": {*READING_RULES}},
    )
    graph = f"graph {extraction.VERSION}" + settings.graph.model_dump_json() if settings.graph else ""
    chunking = settings.chunking.model_dump_json() + graph + _splade_fingerprint(settings)
    limits = f"file_mb {settings.limits.file_mb:g}"
    describe_parsing = partial(_describe_parsing, choose_parsers(settings.parsing))
    chunking = f"scan {scan.VERSION}" + reading + chunking
    space, labels = embedding_space(settings.embedding), _build_labels(settings)
    return Recipe(describe_parsing, chunking, space, limits, labels)


def _build_labels(settings: Settings) -> dict[str, str]:
    """The labels of the profiles in recipes, by profile."""
    return {
        name: make_label(name, profile.model_dump_json() if profile.chunking else "")
        for name, profile in settings.document_profiles.items()
    }


def _splade_fingerprint(settings: Settings) -> str:
    return weigher_fingerprint(settings.splade) if settings.splade else ""


def build_preparation(settings: Settings, sources: Mapping[int, Source]) -> Preparation:
    section = settings.metadata
    rules = MetadataRules(rename=section.rename, drop=section.drop, from_path=section.from_path, set=section.set)
    parse_body, space = open_parser(settings.parsing, settings.limits), embedding_space(settings.embedding)
    parse_object = partial(
        parse_given, model=space.model, detect_language=settings.parsing.detect_language, parse_body=parse_body
    )
    return Preparation(
        sources,
        partial(_parse_document, parse_body, parse_object, rules),
        build_given_chunker(settings),
        _select_scanner(settings),
        settings.parsing.timeout_s,
        space.dimension,
        partial(_label_document, settings.detect_patterns, _build_labels(settings)),
        build_access_rules(settings),
    )


def build_access_rules(settings: Settings) -> AccessRules:
    """Raises ConfigError if a pattern is invalid."""
    section = settings.metadata
    rules = (
        AccessRule(pattern=compile_pattern(unquote(rule.uri) or "**"), key=rule.key, groups=rule.groups)
        for rule in section.access
    )
    return AccessRules(tuple(rules), tuple(sorted(set(section.access_default))))


def _label_document(patterns: Mapping[str, DetectPatterns], labels: Mapping[str, str], document: Document) -> str:
    return labels.get(detect_document_profile(document, patterns), "")


def _parse_document(
    parse_body: Callable[[str, bytes], Document],
    parse_object: Callable[[str, bytes], Document],
    rules: MetadataRules,
    source: Source,
    uri: str,
    body: bytes,
) -> Document:
    """Parses the document, adds the metadata of its push request, and applies the metadata rules."""
    if isinstance(source, GivenSource):
        document = source.documents[uri]
    elif brings_chunks(source, uri):
        document = parse_object(uri, body)
    else:
        document = parse_body(format_uri(source, uri), body)
    if isinstance(source, PushedSource):
        document = with_pushed_metadata(source.documents[uri], document)
    return apply_rules(document, rules)


def _select_scanner(settings: Settings) -> scan.Scanner:
    match settings.scan.mode:
        case "off":
            return scan.skip_scan
        case "flag":
            return partial(scan.scan_without_quarantine, file_mb=settings.limits.file_mb)
        case "quarantine":
            return partial(scan.scan, file_mb=settings.limits.file_mb)
        case _:
            assert_never(settings.scan.mode)


def build_embedding(settings: Settings, writer: CorpusWriter, threads: int = 1) -> Embedding:
    open_weigher = partial(build_weigher, settings.splade, threads) if settings.splade else None
    open_embedder = partial(_open_encoder, settings.embedding.model_dump_json(), threads)
    return Embedding(open_embedder, writer.find_vectors, open_weigher)


@lru_cache(maxsize=1)
def _open_encoder(embedding: str, threads: int) -> Encoder:
    """The encoder of this process, which jobs with equal settings share.

    The settings are text, because the arguments of a Python object cannot be hashed.
    """
    return encoder_from_json(embedding, threads)


def check_devices(settings: Settings) -> None:
    """Raises ModelError if a model is configured for a GPU that this process cannot use."""
    check_device(settings.embedding)
    if isinstance(settings.splade, LocalModel):
        check_gpu("splade", settings.splade.device)


def build_inline_runner(settings: Settings) -> InlineRunner:
    return InlineRunner(
        build_preparation=partial(build_preparation, settings),
        build_embedding=partial(build_embedding, settings, threads=count_cpus()),
        group_size=settings.ingestion.group,
        readers=count_cpus(),
    )


def count_cpus() -> int:
    """The CPUs that this process can use, or all CPUs on systems that do not report that."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
