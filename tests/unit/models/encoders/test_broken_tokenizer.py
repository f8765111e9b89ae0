from pathlib import Path

import pytest

from rag_core.errors import ModelError
from rag_core.models.encoders.tokens import ModelTokenizer


@pytest.mark.parametrize("broken", [b"", b"{}", b"not JSON", b"\xff\xfe"])
def test_a_tokenizer_that_cannot_be_read_is_named(broken: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(broken)
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a readable tokenizer: "):
        ModelTokenizer(tmp_path)
