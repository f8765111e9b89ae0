import threading
from collections.abc import Sequence
from functools import partial

import anyio

from rag_core.models.encoders.hashing import HashingEncoder
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.types import Matrix


class RecordingEncoder(HashingEncoder):
    threads: tuple[int, ...] = ()

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        self.threads += (threading.get_ident(),)
        return super().embed_questions(texts)


def test_questions_are_encoded_outside_the_event_loop() -> None:
    encoder = RecordingEncoder(64)
    rows = anyio.run(partial(ThreadedQueryEmbedder(encoder).embed, ["where are the keys?", "who has them?"]))
    assert (rows == encoder.embed(["where are the keys?", "who has them?"])).all()
    assert threading.get_ident() not in encoder.threads
