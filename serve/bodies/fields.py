"""The types of the members of request bodies, with the checks that they share."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from rag_core.storage.queue import JSON_LINES_SCHEME
from rag_core.types import UNSTORABLE
from serve.services import MAX_QUERY_CHARS

MAX_FILTER_LEVELS = 16
"""The deepest nesting of a filter."""

MAX_CONDITIONS = 256
"""The maximum number of conditions in a filter. Postgres plans each as a subquery. A body has room for 29,000, which
would take seconds."""

MAX_FILTER_PARTS = 10_000
"""The maximum number of objects, lists, keys and values in a filter together."""

MAX_LEGS = 64
MAX_CONVERSATION_ID_CHARS = 200

MEGABYTE = 1_000_000
MAX_TEXT_BYTES = 8 * MEGABYTE
"""The longest text of a document in JSON, in UTF-8."""
MAX_ID_BYTES = 2_000
"""The longest id in UTF-8. A database index limits it."""
MAX_METADATA_KEYS = 64
MAX_KEY_CHARS = 128
MAX_VALUE_CHARS = 2_000
MAX_LIST_VALUES = 100
MAX_GROUPS = 100

MAX_MEMBERS = 1_000
"""The maximum number of members of an object. Each unknown one is reported, and a body has room for 100,000."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:\S+")
_EXECUTABLE_URI = re.compile(r"(?:javascript|data|vbscript):", re.IGNORECASE)
_LOCATION = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://\S+")


@model_validator(mode="before")
def limit_members(body: object) -> object:
    """A validator that limits the size of bodies whose models report each unknown key. Assign it to an attribute."""
    if isinstance(body, Mapping) and len(body) > MAX_MEMBERS:
        raise ValueError(f"an object must have at most {MAX_MEMBERS} members, got {len(body)}")
    return body


def check_storable(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("text must not contain NUL or lone surrogates")
    return text


def check_filter_size(filters: dict[str, Any]) -> dict[str, Any]:
    """Checks the filter level by level, and stops before a deep one can exhaust the stack."""
    level: list[object] = [filters]
    conditions = parts = 0
    for _ in range(2 * MAX_FILTER_LEVELS):  # an object and its list are one level
        conditions += sum(isinstance(value, Mapping) for value in level)
        if conditions > MAX_CONDITIONS:
            raise ValueError(f"a filter must have at most {MAX_CONDITIONS} conditions")
        level = [part for value in level for part in _filter_parts(value)]
        parts += len(level)
        if parts > MAX_FILTER_PARTS:
            raise ValueError(f"a filter must have at most {MAX_FILTER_PARTS} keys and values")
        if not level:
            return filters
    raise ValueError(f"a filter must have at most {MAX_FILTER_LEVELS} levels")


def _filter_parts(value: object) -> list[Any]:
    if isinstance(value, str):
        check_storable(value)
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def check_one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must be a single line without control characters")
    return text


def check_id_size(id: str) -> str:
    size = len(id.encode())
    if size > MAX_ID_BYTES:
        raise ValueError(f"an id, or a uri that is used as one, must have at most {MAX_ID_BYTES} bytes, got {size}")
    return id


def check_uri(text: str) -> str:
    if text and not _URI.fullmatch(text):
        raise ValueError(f"a uri must have a scheme and no spaces, such as https://example.org/a, got {text!r:.80}")
    if _EXECUTABLE_URI.match(text):
        raise ValueError(f"a uri must not be a javascript:, data: or vbscript: URI, got {text!r:.40}")
    return text


def check_location(text: str) -> str:
    if not _LOCATION.fullmatch(text.removeprefix(JSON_LINES_SCHEME)):
        raise ValueError(
            f"a location must be a URI that the gateway can list, such as s3://bucket/docs or file:///srv/docs, "
            f"got {text!r:.80}"
        )
    return text


def check_source_type(source_type: object) -> object:
    if source_type != "files":
        raise ValueError(f"type must be 'files', the only supported type of source, got {source_type!r:.40}")
    return source_type


def reject_url(_url: object) -> object:
    raise ValueError("the gateway does not fetch a url: send the document's text, or upload the file")


def check_text_size(text: str) -> str:
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_TEXT_BYTES:
        message = (
            f"a text must be at most {MAX_TEXT_BYTES / MEGABYTE:g} MB, got {size / MEGABYTE:.1f}; upload it as a file"
        )
        raise PydanticCustomError("too_large", "{message}", {"message": message})
    return text


def check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("a text must not be blank")
    return text


def check_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(metadata) > MAX_METADATA_KEYS:
        raise ValueError(f"metadata must have at most {MAX_METADATA_KEYS} keys, got {len(metadata)}")
    for key, value in metadata.items():
        if not 0 < len(key) <= MAX_KEY_CHARS:
            raise ValueError(f"a key of metadata must have 1 to {MAX_KEY_CHARS} characters, got {len(key)}")
        if key == "url":  # citations link to it
            raise ValueError("metadata must not have the key url: send the document's address as uri")
        if UNSTORABLE.search(key) or not _is_metadata_value(value):
            raise ValueError(
                f"{key[:40]!r} of metadata must be a text of at most {MAX_VALUE_CHARS} characters, a finite number, "
                f"true, false, or a list of at most {MAX_LIST_VALUES} such texts, without NUL and lone surrogates"
            )
    return metadata


def _is_metadata_value(value: object) -> bool:
    match value:
        case bool():
            return True
        case int() | float():
            try:
                return isfinite(value)
            except OverflowError:  # an integer that no double can hold
                return False
        case str():
            return len(value) <= MAX_VALUE_CHARS and not UNSTORABLE.search(value)
        case list():
            is_short = len(value) <= MAX_LIST_VALUES
            return is_short and all(isinstance(part, str) and _is_metadata_value(part) for part in value)
        case _:
            return False


_METADATA_SCHEMA = {
    "type": "object",
    "maxProperties": MAX_METADATA_KEYS,
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": MAX_VALUE_CHARS},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "array", "items": {"type": "string", "maxLength": MAX_VALUE_CHARS}, "maxItems": MAX_LIST_VALUES},
        ]
    },
}

Text = Annotated[str, AfterValidator(check_storable)]
Question = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS),
    AfterValidator(check_storable),
]
Filters = Annotated[
    dict[str, Any],
    AfterValidator(check_filter_size),
    Field(examples=[{"type": "and", "filters": [{"key": "page", "type": "gte", "value": 5}]}]),
]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Strategies = Annotated[list[Text], Field(min_length=1, max_length=MAX_LEGS, fail_fast=True)]
Weights = Annotated[dict[Text, Weight], Field(min_length=1, max_length=MAX_LEGS, fail_fast=True)]
ConversationId = Annotated[Text, Field(max_length=MAX_CONVERSATION_ID_CHARS)]

Id = Annotated[Text, AfterValidator(check_one_line), AfterValidator(check_id_size)]
Uri = Annotated[
    Text,
    StringConstraints(max_length=2048),
    AfterValidator(check_one_line),
    AfterValidator(check_id_size),
    AfterValidator(check_uri),
]
Title = Annotated[Text, StringConstraints(max_length=1000), AfterValidator(check_one_line)]
DocumentText = Annotated[Text, AfterValidator(check_text_size), AfterValidator(check_not_blank)]
Metadata = Annotated[dict[str, Any], AfterValidator(check_metadata), WithJsonSchema(_METADATA_SCHEMA)]
Name = Annotated[Text, StringConstraints(min_length=1, max_length=200), AfterValidator(check_one_line)]
Groups = Annotated[
    list[Name] | None,
    Field(
        max_length=MAX_GROUPS,
        description="groups whose members can read it; [] is everyone of the tenant, null leaves it to the gateway's"
        " rules",
    ),
]
Location = Annotated[Text, StringConstraints(max_length=2048), AfterValidator(check_location)]
RejectedUrl = Annotated[Any, AfterValidator(reject_url), SkipJsonSchema()]
SourceType = Annotated[Any, AfterValidator(check_source_type), WithJsonSchema({"const": "files"})]
