"""What a configuration may say: strict, frozen models.

Every section with a `type` is a union: another type is another object. Which types a profile uses stands in its
YAML; what a type's own settings default to stands here. How YAML, environment and command line become one
`Settings` is `settings.py`; how settings become objects is `build/`.
"""

import json
import re
from hashlib import blake2b
from typing import Annotated, Any, Literal, Self, assert_never

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rag_core.types import DEFAULT_TENANT

Device = Annotated[str, Field(pattern=r"^(?:cpu|cuda(?::[0-9]+)?|mps)$", examples=["cuda:1"])]
"""As PyTorch names it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PythonObject(Section):
    """The escape hatch: an object of your own, called with the arguments."""

    type: Literal["python"]
    object: str = Field(pattern=r"^[\w.]+:\w+$", examples=["acme.embedding:Mine"])
    arguments: dict[str, Any] = {}


class StoreSettings(Section):
    url: str = Field("embedded", min_length=1, description="`embedded`, or a Postgres DSN whose server has pgvector")
    patience_s: float = Field(60.0, ge=0, description="for how long a job waits for a store that is away")


class TelemetrySettings(Section):
    """What servers and jobs tell of their work. Traces are configured by OpenTelemetry's own variables, OTEL_*."""

    log_queries: Literal["hash", "full"] = Field("hash", description="`full` writes what was asked into the logs")
    metric_tenants: tuple[str, ...] = Field(
        (DEFAULT_TENANT,), description="tenants that metrics name; all others are `other` there"
    )


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
    """Encoders of BERT's and RoBERTa's architecture (MiniLM, bge, e5, gte, bge-m3) by a forward pass of our own, which
    starts fast and needs no padding."""

    type: Literal["bert"]
    model: str = Field(description="a folder, or a name on the model hub")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    query_prompt: str = ""
    document_prompt: str = ""


class SentenceTransformersEmbedder(Section):
    """Any model that sentence-transformers can load."""

    type: Literal["sentence_transformers"]
    model: str
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    batch_size: int = Field(8, ge=1)
    query_prompt: str = ""
    document_prompt: str = ""


class HashingEmbedder(Section):
    """Words hashed into buckets: no model, no meaning. For tests and benchmarks."""

    type: Literal["hashing"]
    dimension: int = Field(384, ge=8)
    window: int = Field(512, ge=16)


class SentenceTransformersSplade(Section):
    """Any model that sentence-transformers can load as a SPLADE encoder, also one that only looks the question up."""

    type: Literal["sentence_transformers"]
    model: str = Field(description="a folder, or a name on the model hub")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    batch_size: int = Field(8, ge=1)


class DenseRetriever(Section):
    """Vectors nearest to the question's."""

    type: Literal["dense"]


class Bm25Retriever(Section):
    """Exact BM25 over stemmed words."""

    type: Literal["bm25"]
    k1: float = Field(1.5, ge=0, description="how soon more of the same word in a chunk stops counting")
    b: float = Field(0.75, ge=0, le=1, description="how much a long chunk is held back")


class SpladeRetriever(Section):
    """Learned term weights: the words of question and text, and those that a model adds to them. Needs `splade`."""

    type: Literal["splade"]


class GraphRetriever(Section):
    """What mentions the question's entities, or others within two relations. Needs `graph`, and finds nothing in a
    collection that was ingested without it."""

    type: Literal["graph"]


class CrossEncoderReranker(Section):
    """Question and text read together: the most exact, and too slow for a CPU with more than a few candidates."""

    type: Literal["cross_encoder"]
    model: str = Field(description="a folder, or a name on the model hub")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    batch_size: int = Field(16, ge=1)


class LateInteractionReranker(Section):
    """MaxSim over the vectors of tokens: of a model trained for it (ColBERT), or of any other text encoder."""

    type: Literal["late_interaction"]
    model: str = Field(description="a folder, or a name on the model hub")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    batch_size: int = Field(16, ge=1)


class LexicalReranker(Section):
    """BM25 over the candidates alone: no model."""

    type: Literal["lexical"]
    language: str = Field("en", description="of stemmer and stop words, ISO 639-1; of an unknown one words stay whole")


class Endpoint(Section):
    """Of a model that is asked over HTTP as OpenAI's are: vLLM, Ollama, or OpenAI itself."""

    model: str = Field(min_length=1)
    base_url: str = Field("https://api.openai.com/v1", pattern=r"^https?://")
    api_key_env: str = Field(
        "",
        pattern=r"^(?:[A-Za-z_][A-Za-z0-9_]*)?$",
        description="the environment variable that holds the key; without one, api.openai.com and no other host is sent"
        " OPENAI_API_KEY",
    )
    first_token_timeout_ms: float = Field(20_000, gt=0, description="until the first word of an answer")
    stall_timeout_ms: float = Field(10_000, gt=0, description="between two pieces of it")
    attempts: int = Field(3, ge=1, description="as long as no word of an answer came")


class LlmReranker(Endpoint):
    """A language model grades each candidate: exact, slow, and as dear as its tokens."""

    type: Literal["llm"]
    concurrency: int = Field(8, ge=1, description="candidates that are graded side by side")


class RuleGraph(Section):
    """Entities and what stands together, by rules: capitalised names, acronyms, quoted terms, identifiers."""

    type: Literal["rules"]


class IngestionSettings(Section):
    group: int = Field(128, ge=1, description="documents a transaction publishes at the most")
    inline_documents: int = Field(10_000, ge=0, description="`--runner auto` starts Ray from this many documents on,")
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
SpladeSettings = Annotated[SentenceTransformersSplade | PythonObject, Field(discriminator="type")]
RerankerSettings = Annotated[
    CrossEncoderReranker | LateInteractionReranker | LexicalReranker | LlmReranker | PythonObject,
    Field(discriminator="type"),
]


class ExtractiveGenerator(Section):
    """The sentences that answer, as they stand in their documents, each cited: no model writes."""

    type: Literal["extractive"]
    sentences: int = Field(3, ge=1, description="of an answer, at the most")
    passages: int = Field(5, ge=1, description="that they are chosen from")
    threshold: float = Field(0.55, ge=0, le=2, description="below this confidence it says that it does not know")


class OpenAIGenerator(Endpoint):
    """A language model behind an OpenAI-compatible endpoint."""

    type: Literal["openai"]
    temperature: float = Field(0.1, ge=0, le=2)
    max_tokens: int = Field(1024, ge=1)
    tokenizer: str = Field("", description="a folder, or a name on the model hub; without it tokens are estimated")
    fallback: Literal["extractive", "none"] = Field(
        "extractive", description="what answers where the endpoint did not give a word"
    )


GenerationSettings = Annotated[ExtractiveGenerator | OpenAIGenerator | PythonObject, Field(discriminator="type")]


class PromptSettings(Section):
    pack: str = Field("conversational", description="conversational, qa, research, code, technical_writing, or a file")
    citations: Literal["inline", "footnote", "endnote"] = "inline"


class PackingSettings(Section):
    """Which of the hits a generator reads, and how they are laid before it."""

    strategy: Literal["concatenate", "weighted", "recency", "template"] = "concatenate"
    order: Literal["relevance", "document"] = "relevance"
    passages: int = Field(8, ge=1, description="at the most")
    tokens: int = Field(3000, ge=64, description="of the generator's, of all passages together")
    near_duplicate: float = Field(0.9, gt=0, le=1, description="share of equal word triples from which one is left out")
    template: str = Field(
        "{section} ({age})\n{text}", description="of the strategy template, up to {text}; also {title}, {uri} and {n}"
    )


class LexicalJudge(Section):
    """Words, numbers, names and negations of a sentence against the passages: a proxy, and no detector of subtle
    errors."""

    type: Literal["lexical"]
    supported: float = Field(0.6, ge=0, le=1, description="score from which a sentence is supported")
    partial: float = Field(0.45, ge=0, le=1, description="score from which it is so in part")


class CrossEncoderJudge(Section):
    """A sequence classifier that reads passage and sentence together: NLI, or a hallucination model."""

    type: Literal["cross_encoder"]
    model: str = Field(description="a folder, or a name on the model hub")
    label: str = Field("entailment", description="the class that means supported, of a model with several")
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    device: Device = "cpu"
    batch_size: int = Field(16, ge=1)
    supported: float = Field(0.5, ge=0, le=1)
    partial: float = Field(0.3, ge=0, le=1)


class LlmJudge(Endpoint):
    """A language model is asked about each sentence."""

    type: Literal["llm"]
    concurrency: int = Field(8, ge=1, description="sentences that are judged side by side")
    supported: float = Field(0.7, ge=0, le=1)
    partial: float = Field(0.4, ge=0, le=1)


JudgeSettings = Annotated[LexicalJudge | CrossEncoderJudge | LlmJudge | PythonObject, Field(discriminator="type")]


Host = Annotated[str, AfterValidator(str.lower), Field(pattern=r"^[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$")]


class GuardSettings(Section):
    """What is done with an answer that its sources do not support."""

    judge: JudgeSettings
    mode: Literal["off", "flag", "block", "regenerate"] = "flag"
    stream: Literal["after", "sentence", "buffer"] = Field(
        "after", description="what is shown unjudged: all of it, no sentence, or nothing"
    )
    on_judge_error: Literal["allow_flagged", "block"] = "allow_flagged"
    timeout_ms: float = Field(10_000, gt=0)
    link_hosts: tuple[Host, ...] = Field((), description="an answer may link to, beside those of its cited sources")

    @field_validator("mode", mode="before")
    @classmethod
    def _off_is_false_in_yaml(cls, value: object) -> object:
        return "off" if value is False else value

    @model_validator(mode="after")
    def _regenerates_whole_answers(self) -> Self:
        if (self.mode, self.stream) == ("regenerate", "sentence"):
            raise ValueError("mode regenerate writes whole answers: stream must be after or buffer, got sentence")
        return self


class AnsweringSettings(Section):
    budget: Literal["standard", "realtime", "none"] = Field(
        "standard", description="of the search: a leg 500 ms and all of it 1 s, or 50 and 120 ms"
    )
    depth: int = Field(40, ge=1, description="hits that the passages are chosen from")
    timeout_ms: float = Field(60_000, gt=0, description="of a whole answer")
    history: int = Field(10, ge=0, description="messages of the conversation that a generator reads,")
    history_tokens: int = Field(3000, ge=0, description="of as many tokens of the generator's at the most")


FusionWeight = Annotated[FiniteFloat, Field(ge=0)]


class DistributionFusion(Section):
    """Z-scores over all candidates, each with every leg's exact score, weighted."""

    type: Literal["distribution"]
    weights: dict[str, FusionWeight] = Field({}, description="by retriever; equal ones if there are none")


class WeightedFusion(Section):
    """Scores scaled to [0, 1] over all candidates, weighted."""

    type: Literal["weighted"]
    weights: dict[str, FusionWeight] = Field({}, description="by retriever; equal ones if there are none")
    alpha: float | None = Field(None, ge=0, le=1, description="of two retrievers the first one's weight")

    @model_validator(mode="after")
    def _one_way_of_weighing(self) -> Self:
        if self.alpha is not None and self.weights:
            raise ValueError("give alpha or weights, not both")
        return self


class RrfFusion(Section):
    """Reciprocal rank fusion: scores do not count."""

    type: Literal["rrf"]
    k: int = Field(60, ge=0)


class LtrFusion(Section):
    """Learned to rank: a logistic regression over each leg's z-score and reciprocal rank, trained on a dataset."""

    type: Literal["ltr"]
    intercept: FiniteFloat = 0.0
    scores: dict[str, FiniteFloat] = Field({}, description="coefficients of the z-scores, by retriever")
    ranks: dict[str, FiniteFloat] = Field({}, description="coefficients of 1 / rank, by retriever")


FusionSettings = Annotated[DistributionFusion | WeightedFusion | RrfFusion | LtrFusion, Field(discriminator="type")]


class HybridRetriever(Section):
    """Several retrievers, fused. One that is late or fails is left out, and reported."""

    type: Literal["hybrid"]
    retrievers: dict[str, "RetrievalSettings"] = Field(min_length=1)
    fusion: FusionSettings
    depth: int = Field(100, ge=1, description="candidates of each retriever")
    timeout_ms: float = Field(5000, gt=0, description="for each retriever that has none in timeouts_ms")
    timeouts_ms: dict[str, Annotated[float, Field(gt=0)]] = {}

    @model_validator(mode="after")
    def _names_are_retrievers(self) -> Self:
        for setting, names in self._named().items():
            if unknown := sorted(names - self.retrievers.keys()):
                known = ", ".join(self.retrievers)
                raise ValueError(f"{setting} must be of retrievers ({known}), got {', '.join(unknown)}")
        if isinstance(self.fusion, WeightedFusion) and self.fusion.alpha is not None and len(self.retrievers) != 2:
            raise ValueError(f"fusion.alpha weighs two retrievers, got {len(self.retrievers)}: give fusion.weights")
        return self

    def _named(self) -> dict[str, set[str]]:
        match self.fusion:
            case DistributionFusion() | WeightedFusion():
                of_fusion = {"fusion.weights": set(self.fusion.weights)}
            case LtrFusion():
                of_fusion = {"fusion.scores": set(self.fusion.scores), "fusion.ranks": set(self.fusion.ranks)}
            case RrfFusion():
                of_fusion = {}
            case _:
                assert_never(self.fusion)
        return {"timeouts_ms": set(self.timeouts_ms), **of_fusion}


class RerankedRetriever(Section):
    """The first hits in the order of a reranker; if it is late or fails they keep theirs, which is reported."""

    type: Literal["reranked"]
    retriever: "RetrievalSettings"
    reranker: RerankerSettings
    depth: int = Field(100, ge=1, description="how many hits the reranker reads")
    timeout_ms: float = Field(30_000, gt=0)


class PerDocumentRetriever(Section):
    """At most so many hits of one document."""

    type: Literal["per_document"]
    retriever: "RetrievalSettings"
    max_chunks_per_document: int = Field(ge=1)
    depth: int = Field(100, ge=1, description="hits that they are chosen from")


class RecencySignal(Section):
    half_life_days: float = Field(gt=0)
    weight: FiniteFloat = Field(description="of a document of today, in standard deviations of the hits' scores")


class SignalsRetriever(Section):
    """What metadata says for a hit is added to its score, in standard deviations of the hits' scores."""

    type: Literal["signals"]
    retriever: "RetrievalSettings"
    recency: RecencySignal | None = None
    weights: dict[str, dict[str, FiniteFloat]] = Field({}, description="by metadata key and value")
    depth: int = Field(100, ge=1, description="hits that are reordered")


LegSettings = DenseRetriever | Bm25Retriever | SpladeRetriever | GraphRetriever
RetrievalSettings = Annotated[
    LegSettings | HybridRetriever | RerankedRetriever | PerDocumentRetriever | SignalsRetriever | PythonObject,
    Field(discriminator="type"),
]


def outer_reranked(retrieval: RetrievalSettings) -> RerankedRetriever | None:
    """The outermost one that reranks all that is found."""
    match retrieval:
        case RerankedRetriever():
            return retrieval
        case PerDocumentRetriever() | SignalsRetriever():
            return outer_reranked(retrieval.retriever)
        case _:
            return None


def _asks(leg: str, retrieval: RetrievalSettings) -> bool:
    match retrieval:
        case HybridRetriever():
            return any(_asks(leg, each) for each in retrieval.retrievers.values())
        case RerankedRetriever() | PerDocumentRetriever() | SignalsRetriever():
            return _asks(leg, retrieval.retriever)
        case _:
            return retrieval.type == leg


SectionOfLeg = SpladeSettings | RuleGraph | None
_SECTIONS_OF_LEGS = {"splade": "{type: sentence_transformers, model: ...}", "graph": "{type: rules}"}
"""By the leg that finds nothing without the section of its name, what it may be."""

CONFIG_VERSION = 1
"""Raised when the same settings come to mean something else."""


class Settings(Section):
    profile: str = "default"
    tenant: str = Field(DEFAULT_TENANT, pattern=r"^[a-z0-9-]{8,64}$")
    chunking: ChunkingSettings
    embedding: EmbeddingSettings
    retrieval: RetrievalSettings
    generation: GenerationSettings
    guard: GuardSettings
    splade: SpladeSettings | None = Field(
        None, validate_default=True, description="chunks get term weights for the splade retriever"
    )
    graph: RuleGraph | None = Field(
        None, validate_default=True, description="what documents speak of is stored for the graph retriever"
    )
    prompt: PromptSettings = PromptSettings()
    packing: PackingSettings = PackingSettings()
    answering: AnsweringSettings = AnsweringSettings()
    store: StoreSettings = StoreSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    files: FilesSettings = FilesSettings()
    parsing: ParsingSettings = ParsingSettings()
    scan: ScanSettings = ScanSettings()
    metadata: MetadataSettings = MetadataSettings()
    ingestion: IngestionSettings = IngestionSettings()
    limits: Limits = Limits()

    @field_validator(*_SECTIONS_OF_LEGS)
    @classmethod
    def _there_for_its_retriever(cls, section: SectionOfLeg, others: ValidationInfo) -> SectionOfLeg:
        leg = str(others.field_name)
        if section is None and "retrieval" in others.data and _asks(leg, others.data["retrieval"]):
            raise ValueError(f"a {leg} retriever needs it: give {_SECTIONS_OF_LEGS[leg]}")
        return section

    @model_validator(mode="after")
    def _notes_are_not_judged_by_sentence(self) -> Self:
        if self.guard.stream == "sentence" and self.prompt.citations != "inline":
            raise ValueError(f"guard.stream sentence needs prompt.citations inline, got {self.prompt.citations}")
        return self

    @property
    def pipeline_version(self) -> str:
        """`profile:vN+hash`: equal for pipelines that are configured alike, wherever their store is."""
        configured = self.model_dump(mode="json", exclude={"profile", "tenant", "store", "telemetry"})
        content = json.dumps(configured, sort_keys=True)
        return f"{self.profile}:v{CONFIG_VERSION}+{blake2b(content.encode(), digest_size=4).hexdigest()}"
