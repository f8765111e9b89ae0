"""The base of every shape that leaves the process, and the conversion of shapes to and from JSON."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import SchemaSerializer, core_schema

from rag_core.errors import ResponseError, validation_lines

V = TypeVar("V")

Metadata: TypeAlias = dict[str, str | int | float | bool | list[str]]
Milliseconds: TypeAlias = dict[str, float]
"""Durations by stage, and their `total`."""
Numbers: TypeAlias = Annotated[
    Mapping[str, Any], WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}})
]
"""Whole numbers are written without a fraction."""

_serializer = SchemaSerializer(core_schema.any_schema())


class Shape(BaseModel):
    """A value with the members of a JSON object, in the order of its fields.

    JSON omits optional members that were not set. OpenAPI and the command line's decoder are derived from the fields.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Takes the columns of a row that are fields of the shape."""
        return cls(**{name: row[name] for name in cls.model_fields})

    @classmethod
    def from_value(cls, value: object, **others: Any) -> Self:
        """Takes the attributes of a value that are fields of the shape, except those that are in `others`."""
        return cls(**{name: getattr(value, name) for name in cls.model_fields if hasattr(value, name)} | others)

    def to_value(self, kind: type[V], **others: Any) -> V:
        """The dataclass with the equally named fields of the shape, except those that are in `others`."""
        names = [field.name for field in fields(kind) if hasattr(self, field.name)]  # type: ignore[arg-type]
        return kind(**{name: getattr(self, name) for name in names} | others)

    @classmethod
    def decode(cls, body: object) -> Self:
        """Converts parsed JSON from a gateway. Ignores members that only a newer gateway has.

        Raises ResponseError if a member is missing or has another type.
        """
        try:
            return cls.model_validate(body, extra="ignore")
        except ValidationError as error:
            first, *_ = validation_lines(error, cls.__name__)
            raise ResponseError(f"the server's response is invalid: {first}") from None


class Page(Shape):
    """A page of a list. Subclasses declare the type of `data`."""

    data: list[Any]
    next_cursor: str | None
    has_more: bool


def json_bytes(value: object) -> bytes:
    """Converts shapes, and any values of them. Writes times in RFC 3339, ids and paths as text.

    Takes a quarter of the time of `json`. Raises ValueError for an unpaired surrogate.
    """
    return _serializer.to_json(value, by_alias=True, exclude_unset=True)


def json_text(value: object) -> str:
    return json_bytes(value).decode()
