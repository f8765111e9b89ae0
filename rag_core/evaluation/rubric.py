"""The rubric of the judge of whole answers: its criteria, and what each grade means. It is a file, not code."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

MAX_REASON_CHARS = 200
"""The longest reason of a grade: a weak model without a limit writes until its last token."""


class Criterion(BaseModel):
    """A question about an answer. `grades` describes each grade; the higher is the better one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    grades: Mapping[int, str] = Field(min_length=2)

    def scale(self, grade: int) -> float:
        """The grade as a number from 0 (the lowest) to 1 (the highest)."""
        lowest, highest = min(self.grades), max(self.grades)
        return (grade - lowest) / (highest - lowest)


class Rubric(BaseModel):
    """The criteria by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    instruction: str
    criteria: Mapping[str, Criterion] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """The beginning of the SHA-256 of the contents: grades by different rubrics are not comparable."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def schema_of_reply(self) -> dict[str, Any]:
        """The JSON schema of the grades: each after its reason, so that the model reasons before it grades."""
        properties = {
            name: _object_schema(
                {
                    "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
                    "grade": {"type": "integer", "enum": sorted(criterion.grades)},
                }
            )
            for name, criterion in self.criteria.items()
        }
        return _object_schema(properties)

    def render(self) -> str:
        """The criteria as the text of a prompt."""
        parts = [self.instruction]
        for name, criterion in self.criteria.items():
            grades = [f"{grade}: {meaning}" for grade, meaning in sorted(criterion.grades.items())]
            parts.append("\n".join([f"{name}: {criterion.question}", *grades]))
        return "\n\n".join(parts)


@cache
def load_rubric() -> Rubric:
    text = files("rag_core.evaluation").joinpath("rubric.yaml").read_text(encoding="utf-8")
    return Rubric.model_validate(yaml.safe_load(text))


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
