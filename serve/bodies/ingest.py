"""What `/v1/ingest` takes, as JSON and as an upload, and what it answers."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from rag_core.types import DEFAULT_COLLECTION
from serve.bodies.requests import Text, few_members
from serve.bodies.responses import Body, Problem

MEGABYTE = 1_000_000
MOST_DOCUMENTS = 1_000
MOST_LOCATIONS = 100
LARGEST_TEXT = 8 * MEGABYTE
"""Bytes of UTF-8."""
LONGEST_ID = 2_000
"""Bytes of UTF-8: an index holds it."""
MOST_KEYS = 64
LONGEST_KEY = 128
LONGEST_VALUE = 2_000
MOST_VALUES = 100

_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:\S+")
_RUN_BY_BROWSERS = re.compile(r"(?:javascript|data|vbscript):", re.IGNORECASE)
_LOCATION = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://\S+")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("it must be one line, without control characters")
    return text


def _indexable(id: str) -> str:
    size = len(id.encode())
    if size > LONGEST_ID:
        raise ValueError(f"an id, and a uri that may be one, must have at most {LONGEST_ID} bytes, got {size}")
    return id


def _uri(text: str) -> str:
    if text and not _URI.fullmatch(text):
        raise ValueError(f"a uri must have a scheme and no spaces, as https://example.org/a does, got {text!r:.80}")
    if _RUN_BY_BROWSERS.match(text):
        raise ValueError(f"a uri must lead to a document, and not be a program or hold one, got {text!r:.40}")
    return text


def _location(text: str) -> str:
    if not _LOCATION.fullmatch(text):
        raise ValueError(
            f"a location must be a URI that the gateway can list, such as s3://bucket/docs or file:///srv/docs, "
            f"got {text!r:.80}"
        )
    return text


def _files_only(kind: object) -> object:
    if kind != "files":
        raise ValueError(f"type must be 'files', the one kind of source so far, got {kind!r:.40}")
    return kind


def _not_fetched(_url: object) -> object:
    raise ValueError("the gateway fetches no url: give the document's text, or upload its bytes")


def _small_enough(text: str) -> str:
    size = len(text.encode(errors="surrogatepass"))
    if size > LARGEST_TEXT:
        message = (
            f"a text must be at most {LARGEST_TEXT / MEGABYTE:g} MB, got {size / MEGABYTE:.1f}; upload it as a file"
        )
        raise PydanticCustomError("too_large", "{message}", {"message": message})
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("a text must not be blank")
    return text


def _metadata(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(given) > MOST_KEYS:
        raise ValueError(f"metadata must have at most {MOST_KEYS} keys, got {len(given)}")
    for key, value in given.items():
        _check_metadata(key, value)
    return given


def _check_metadata(key: str, value: object) -> None:
    if not 0 < len(key) <= LONGEST_KEY:
        raise ValueError(f"a key of metadata must have 1 to {LONGEST_KEY} characters, got {len(key)}")
    if key == "url":  # citations lead there
        raise ValueError("url of metadata is where the document stands: give it as uri")
    if not (_flat(value) and _storable(key) and all(map(_storable, _strings(value)))):
        raise ValueError(
            f"{key[:40]!r} of metadata must be a text of at most {LONGEST_VALUE} characters, a finite number, true, "
            f"false, or a list of at most {MOST_VALUES} such texts, without NUL and lone surrogates"
        )


def _flat(value: object) -> bool:
    match value:
        case bool():
            return True
        case int() | float():
            return _finite(value)
        case str():
            return len(value) <= LONGEST_VALUE
        case list():
            return len(value) <= MOST_VALUES and all(isinstance(each, str) and _flat(each) for each in value)
        case _:
            return False


def _finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an integer beyond every double
        return False


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return [value] if isinstance(value, str) else []


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


_FLAT = {
    "type": "object",
    "maxProperties": MOST_KEYS,
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": LONGEST_VALUE},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "array", "items": {"type": "string", "maxLength": LONGEST_VALUE}, "maxItems": MOST_VALUES},
        ]
    },
}
Id = Annotated[Text, AfterValidator(_one_line), AfterValidator(_indexable)]
Uri = Annotated[
    Text,
    StringConstraints(max_length=2048),
    AfterValidator(_one_line),
    AfterValidator(_indexable),
    AfterValidator(_uri),
]
Title = Annotated[Text, StringConstraints(max_length=1000), AfterValidator(_one_line)]
DocumentText = Annotated[Text, AfterValidator(_small_enough), AfterValidator(_not_blank)]
Metadata = Annotated[dict[str, Any], AfterValidator(_metadata), WithJsonSchema(_FLAT)]
Name = Annotated[Text, StringConstraints(min_length=1, max_length=200), AfterValidator(_one_line)]
Location = Annotated[Text, StringConstraints(max_length=2048), AfterValidator(_location)]
NotFetched = Annotated[Any, AfterValidator(_not_fetched), SkipJsonSchema()]
Kind = Annotated[Any, AfterValidator(_files_only), WithJsonSchema({"const": "files"})]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    _few_members = few_members


class DocumentBody(Strict):
    """The same `id` again is a new version of that document. Without one its `uri` is its id, else what its text
    hashes to, so that the same text twice is the same document."""

    id: Id = ""
    uri: Uri = Field("", description="where the document stands: what citations of it lead to")
    title: Title = ""
    url: NotFetched = None
    text: DocumentText
    metadata: Metadata = {}


class SourceBody(Strict):
    """Files that the gateway can list, read as `rag ingest LOCATIONS...` reads them."""

    type: Kind
    locations: list[Location] = Field(min_length=1, max_length=MOST_LOCATIONS)
    prune: bool = Field(True, description="delete what is no longer there")
    confirmed: bool = Field(False, description="delete also a large share of a source")
    checksum: bool = Field(False, description="read and compare everything")


class IngestBody(Strict):
    collection: Name = DEFAULT_COLLECTION
    profile: Name | None = None
    documents: Annotated[
        list[Any],
        Field(max_length=MOST_DOCUMENTS),
        WithJsonSchema({"type": "array", "maxItems": MOST_DOCUMENTS, "items": DocumentBody.model_json_schema()}),
    ] = []
    source: Annotated[
        SourceBody | None, WithJsonSchema({"anyOf": [SourceBody.model_json_schema(), {"type": "null"}]})
    ] = None

    @model_validator(mode="after")
    def _with_work(self) -> Self:
        if not self.documents and self.source is None:
            raise ValueError("there must be documents, or a source")
        return self


class UploadBody(Strict):
    """The fields beside the files. `metadata` is a JSON object, and that of every file."""

    collection: Name = DEFAULT_COLLECTION
    profile: Name | None = None
    metadata: Metadata = {}


class Links(Body):
    self_: str = Field(alias="self")
    events: str


class Row(Body):
    """What became of a document, or of a file of a source, which has no index."""

    index: int | None = Field(None, description="which of the documents, or files, of the request")
    id: str
    status: int
    problem: Problem | None = None


class Ingested(Body):
    """`documents` came with the request and were taken."""

    job_id: UUID
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    documents: int
    counts: dict[str, int] | None = Field(None, description="of a job that was waited for")
    links: Links
    items: list[Row] | None = Field(None, description="if any was refused, or is not in")
