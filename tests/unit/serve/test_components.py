"""The composite version of a pipeline in the header `X-Pipeline-Version`."""

import pytest

from rag_core.settings import load_settings
from serve.components import describe_components


@pytest.mark.parametrize(
    ("profile", "overrides", "components"),
    [
        ("default", [], "sections-200:all-MiniLM-L6-v2:pgvector:none"),
        ("default", ["embedding={type: hashing}"], "sections-200:hashing-384:pgvector:none"),
        ("default", ["chunking={type: fixed, size: 90}"], "fixed-90-tokens:all-MiniLM-L6-v2:pgvector:none"),
        ("default", ["chunking={type: python, object: 'a.b:C'}"], "a.b%3AC:all-MiniLM-L6-v2:pgvector:none"),
        ("default", ["embedding={type: bert, model: /models/日本/}"], "sections-200:%E6%97%A5%E6%9C%AC:pgvector:none"),
        ("clinicaltrials", ["embedding={type: hashing}"], "clinical-350:hashing-384:pgvector:GTE-ModernColBERT-v1"),
        ("dailymed", ["embedding={type: hashing}"], "sections-450:hashing-384:pgvector:lexical"),
    ],
)
def test_it_has_four_parts(profile: str, overrides: list[str], components: str) -> None:
    assert describe_components(load_settings(None, profile, overrides, environment={})) == components
