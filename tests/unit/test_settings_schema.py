"""The schema of a configuration file for editors, against what is read."""

from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from rag_core.settings import PROFILES, list_shipped_profiles
from rag_core.settings_schema import file_schema


@pytest.fixture(scope="module")
def validator() -> Validator:
    """A validator of files, whose schema is valid itself."""
    schema = file_schema()
    validator_for(schema).check_schema(schema)
    return validator_for(schema)(schema)


@pytest.mark.parametrize("name", list_shipped_profiles())
def test_a_shipped_profile_is_valid_in_a_file(validator: Validator, name: str) -> None:
    profile = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())
    validator.validate({"extends": "default", "profiles": {"mine": profile}})


@pytest.mark.parametrize(
    "empty",
    [
        {"profiles": None},
        {"profiles": {"mine": None}},
        {"extends": None, "chunking": None},
        {"profiles": {"mine": {"extends": None, "chunking": {"tokens": None}}}},
    ],
    ids=str,
)
def test_null_stands_for_nothing(validator: Validator, empty: dict[str, Any]) -> None:
    validator.validate(empty)


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunkng": {}},
        {"chunking": {"type": "sections", "tokns": 3}},
        {"limits": {"text_mb": "much"}},
        {"profiles": {"mine": {"chunkng": {}}}},
        {"profiles": {"mine": {"detect": {"uri": "*/pmc"}}}},
        {"detect": {"uri": ["*/pmc"]}},
    ],
    ids=str,
)
def test_values_that_the_reader_refuses_are_underlined(validator: Validator, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)
