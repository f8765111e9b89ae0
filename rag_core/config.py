"""What a configuration may say: strict, frozen models.

Every section with a `type` is a union: another type is another object. Which types a profile uses stands in its
YAML; what a type's own settings default to stands here. How YAML, environment and command line become one
`Settings` is `settings.py`; how settings become objects is `build/`.
"""

from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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


class SectionsChunker(Section):
    """Whole sentences, packed within a section up to `tokens`, the last `overlap` tokens of them repeated."""

    type: Literal["sections"]
    tokens: int = Field(200, ge=16)
    overlap: int = Field(40, ge=0)
    prefix_tokens: int = Field(
        48, ge=0, description="title and headings before each chunk; a longer prefix is shortened"
    )

    @model_validator(mode="after")
    def _overlap_below_size(self) -> "SectionsChunker":
        if self.overlap >= self.tokens:
            raise ValueError(f"overlap must be in [0, tokens), got {self.overlap} of {self.tokens}")
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
    group: int = Field(256, ge=1, description="documents a transaction publishes at the most")
    inline_documents: int = Field(64, ge=0, description="`--runner auto` starts Ray from this many documents on,")
    inline_mb: float = Field(1.0, ge=0, description="or from this many megabytes")
    delete_share: float = Field(0.5, gt=0, le=1, description="deleting more of a source than this share wants a yes")


class Limits(Section):
    file_mb: float = Field(200.0, gt=0, description="a larger file is refused unread")
    text_mb: float = Field(20.0, gt=0, description="a document with more text fails")


ChunkingSettings = Annotated[SectionsChunker | PythonObject, Field(discriminator="type")]
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
    ingestion: IngestionSettings = IngestionSettings()
    limits: Limits = Limits()

    @property
    def pipeline_version(self) -> str:
        """`profile:vN+hash`: equal for pipelines that are configured alike, wherever their store is."""
        content = self.model_dump_json(exclude={"profile", "tenant", "store"})
        return f"{self.profile}:v{CONFIG_VERSION}+{blake2b(content.encode(), digest_size=4).hexdigest()}"
