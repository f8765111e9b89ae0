"""The builder of the embedder of questions."""

from rag_core.config import EmbeddingSettings
from rag_core.models.encoders.batching import BatchingEmbedder
from rag_core.models.encoders.cached_embedder import CachedEmbedder
from rag_core.models.encoders.query_embedder import ProtectedQueryEmbedder, ThreadedQueryEmbedder
from rag_core.protocols import QueryEmbedder
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.models import RemoteModels


def build_question_embedder(settings: EmbeddingSettings, remote: RemoteModels) -> QueryEmbedder:
    """The one embedder, with one cache, for all parts of a pipeline. Loads the model if it is not remote."""
    key = remote.protect, settings.model_dump_json()
    if key not in remote.embedders:
        embedder = remote.embedder or ProtectedQueryEmbedder(
            BatchingEmbedder(ThreadedQueryEmbedder(load_shared_encoder(settings))), remote.protect("embedder")
        )
        remote.embedders[key] = CachedEmbedder(embedder)
    return remote.embedders[key]
