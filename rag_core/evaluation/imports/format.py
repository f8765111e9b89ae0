"""The formats of datasets that can be imported."""

from typing import Literal, TypeAlias

Format: TypeAlias = Literal["beir", "trec", "ragas", "mtrag", "claims"]
