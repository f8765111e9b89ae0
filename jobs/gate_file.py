"""Gate files: YAML with the fields of `rag_core.evaluation.gate.Gate`."""

from pathlib import Path

from pydantic import ValidationError

from rag_core.errors import ConfigError, validation_lines
from rag_core.evaluation.gate import Gate
from rag_core.settings import read_document


def read_gate(file: Path) -> Gate:
    """Raises ConfigError for a file that breaks a rule; the message names the first broken one."""
    try:
        return Gate.model_validate(read_document(file))
    except ValidationError as error:
        raise ConfigError(f"{file}: {validation_lines(error)[0]}") from error
