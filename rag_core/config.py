"""What a configuration may say: strict, frozen models.

Every section with a `type` is a union: another type is another object. Which types a profile uses stands in its
YAML; what a type's own settings default to stands here. How YAML, environment and command line become one
`Settings` is `settings.py`; how settings become objects is `build/`.
"""

import re
from hashlib import blake2b
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rag_core.types import DEFAULT_TENANT


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PythonObject(Section):
    """The escape hatch: an object of your own, called with the arguments."""

    type: Literal["python"]
    object: str = Field(pattern=r"^[\w.]+:\w+$", examples=["acme.embedding:Mine"])
    arguments: dict[str, Any] = {}


class StoreSettings(Section):
    url: str = Field("embedded", description="`embedded`, or a Postgres DSN whose server has pgvector")
    patience_s: float = Field(60.0, ge=0, description="for how long a job waits for a store that is away")


class FilesSettings(Section):
    """Which files of a source count, as glob patterns on the path below its root; empty includes everything."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = (".git/**", "**/.git/**", "**/.DS_Store", "**/~$*")
    recursive: bool = True


class ParsingSettings(Section):
    detect_language: bool = True
    sandbox: bool = Field(True, description="parse in a child process with limits; false trusts every document")
    timeout_s: float = Field(30.0, gt=0, description="a document that takes longer fails")
    memory_mb: float = Field(1024.0, ge=64, description="a document that needs more fails")


class ScanSettings(Section):
    """What is done with documents that hold programs, hidden text or orders to a model."""

    mode: Literal["off", "flag", "quarantine"] = Field(
        "quarantine", description="`flag` only notes it in the metadata; `quarantine` also keeps the worst out"
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _off_is_false_in_yaml(cls, value: object) -> object:
        return "off" if value is False else value


class MetadataSettings(Section):
    """What becomes of documents' metadata once it has been normalised: renamed, dropped, read from the uri, set."""

    rename: dict[str, str] = {}
    drop: tuple[str, ...] = ()
    from_path: str = Field("", description="a regular expression: its named groups, found in the uri, become metadata")
    set: dict[str, str | int | float | bool | tuple[str, ...]] = {}

    @field_validator("from_path")
    @classmethod
    def _with_named_groups(cls, pattern: str) -> str:
        try:
            named = re.compile(pattern).groupindex
        except re.error as error:
            raise ValueError(f"from_path must be a regular expression: {error}") from None
        if pattern and not named:
            raise ValueError("from_path must have named groups, such as (?P<year>[0-9]{4})")
        return pattern


class _PackedChunker(Section):
    tokens: int = Field(200, ge=16)
    overlap: int = Field(40, ge=0)
    prefix_tokens: int = Field(
        48, ge=0, description="title and headings before each chunk; a longer prefix is shortened"
    )

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Self:
        if self.overlap >= self.tokens:
            raise ValueError(f"overlap must be in [0, tokens), got {self.overlap} of {self.tokens}")
        return self


class SectionsChunker(_PackedChunker):
    """Whole sentences, packed within a section up to `tokens`, the last `overlap` tokens of them repeated."""

    type: Literal["sections"]


class SentencesChunker(_PackedChunker):
    """Whole sentences, packed as by `sections`, but wherever sections begin."""

    type: Literal["sentences"]


class ClinicalChunker(_PackedChunker):
    """As `sections`, but no chunk holds text of two clinical roles (eligibility, outcomes, dosage ...)."""

    type: Literal["clinical"]


class SemanticChunker(Section):
    """Whole sentences, cut where their embeddings change most. The embedder's work doubles at the most."""

    type: Literal["semantic"]
    tokens: int = Field(200, ge=16)
    prefix_tokens: int = Field(48, ge=0)


class FixedChunker(Section):
    """`size` tokens or characters, the last `overlap` of them repeated. Where characters are counted, a chunk ends
    before its size if it fills the embedder's window."""

    type: Literal["fixed"]
    unit: Literal["tokens", "chars"] = "tokens"
    size: int = Field(200, ge=16)
    overlap: int = Field(40, ge=0)
    prefix_tokens: int = Field(48, ge=0)

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap must be in [0, size), got {self.overlap} of {self.size}")
        return self


class BertEmbedder(Section):
    """BERT-family encoders (MiniLM, bge, e5, gte) by a forward pass of our own: starts fast, needs no padding."""

    type: Literal["bert"]
    model: str = Field(description="a folder, or a name on the model hub")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: str = "cpu"
    query_prompt: str = ""
    document_prompt: str = ""


class SentenceTransformersEmbedder(Section):
    """Any model that sentence-transformers can load."""

    type: Literal["sentence_transformers"]
    model: str
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: str = "cpu"
    batch_size: int = Field(8, ge=1)
    query_prompt: str = ""
    document_prompt: str = ""


class HashingEmbedder(Section):
    """Words hashed into buckets: no model, no meaning. For tests and benchmarks."""

    type: Literal["hashing"]
    dimension: int = Field(384, ge=8)
    window: int = Field(512, ge=16)


class DenseRetriever(Section):
    type: Literal["dense"]


class IngestionSettings(Section):
    group: int = Field(128, ge=1, description="documents a transaction publishes at the most")
    inline_documents: int = Field(4000, ge=0, description="`--runner auto` starts Ray from this many documents on,")
    inline_mb: float = Field(32.0, ge=0, description="or from this many megabytes")
    delete_share: float = Field(0.5, gt=0, le=1, description="deleting more of a source than this share wants a yes")


class Limits(Section):
    file_mb: float = Field(200.0, gt=0, description="a larger file is refused unread")
    text_mb: float = Field(20.0, gt=0, description="a document with more text fails")


ChunkingSettings = Annotated[
    SectionsChunker | SentencesChunker | FixedChunker | SemanticChunker | ClinicalChunker | PythonObject,
    Field(discriminator="type"),
]
EmbeddingSettings = Annotated[
    BertEmbedder | SentenceTransformersEmbedder | HashingEmbedder | PythonObject, Field(discriminator="type")
]
RetrievalSettings = Annotated[DenseRetriever | PythonObject, Field(discriminator="type")]


CONFIG_VERSION = 1
"""Raised when the same settings come to mean something else."""


class Settings(Section):
    profile: str = "default"
    tenant: str = Field(DEFAULT_TENANT, pattern=r"^[a-z0-9-]{8,64}$")
    chunking: ChunkingSettings
    embedding: EmbeddingSettings
    retrieval: RetrievalSettings
    store: StoreSettings = StoreSettings()
    files: FilesSettings = FilesSettings()
    parsing: ParsingSettings = ParsingSettings()
    scan: ScanSettings = ScanSettings()
    metadata: MetadataSettings = MetadataSettings()
    ingestion: IngestionSettings = IngestionSettings()
    limits: Limits = Limits()

    @property
    def pipeline_version(self) -> str:
        """`profile:vN+hash`: equal for pipelines that are configured alike, wherever their store is."""
        content = self.model_dump_json(exclude={"profile", "tenant", "store"})
        return f"{self.profile}:v{CONFIG_VERSION}+{blake2b(content.encode(), digest_size=4).hexdigest()}"
