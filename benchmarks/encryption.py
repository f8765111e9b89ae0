"""What does encryption cost a turn of a conversation?

A turn reads the last 20 messages and stores a question and an answer with three quotes. Plain and encrypted turns
alternate in one loop, on one server. Then all stored texts are encrypted with another key.

    python -m benchmarks.encryption
    python -m benchmarks.encryption --turns 100
"""

import argparse
import asyncio
import os
import time
from statistics import median
from uuid import UUID

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.postgres import Postgres
from rag_core.storage.reencryption import encrypt_rows
from rag_core.types import DEFAULT_TENANT, Answer, Citation, Message, Query, Turn, Understanding

SENTENCE = "The harbour replaces its signing keys every ninety days, and keeps the old ones for a year. "
LIMIT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=400)
    turns = parser.parse_args().turns
    print(heading())
    first, second = build_cipher("k1"), build_cipher("k2", "k1")
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        store = Postgres.open(dsn)
        plain, encrypted = asyncio.run(measure_turns(store, turns, first))
        print(f"median of {turns} turns: plain {plain * 1e3:.2f} ms, encrypted {encrypted * 1e3:.2f} ms")
        print(f"encrypted / plain: {encrypted / plain:.3f}")
        started = time.perf_counter()
        rows = sum(table.encrypted for table in encrypt_rows(store, DEFAULT_TENANT, second))
        print(f"rag store encrypt: {rows / (time.perf_counter() - started):,.0f} rows a second, {rows:,} rows")


def build_cipher(active: str, *others: str) -> TextCipher:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return TextCipher({id: AESGCM(id.encode().ljust(32, b"-")) for id in (active, *others)}, active)


async def measure_turns(store: Postgres, turns: int, cipher: TextCipher) -> tuple[float, float]:
    """The median seconds of plain and of encrypted turns."""
    stores = {name: StoredConversations(store, cipher=one) for name, one in (("p", PLAIN_TEXT), ("e", cipher))}
    seconds: dict[str, list[float]] = {name: [] for name in stores}
    for number in range(turns):
        for name, stored in stores.items():
            query = Query(text=f"{number}: {SENTENCE}", tenant=DEFAULT_TENANT, session_id=f"{name}{number // 20}")
            started = time.perf_counter()
            await stored.history(query, LIMIT)
            await stored.append(*build_turn(query))
            seconds[name].append(time.perf_counter() - started)
    for stored in stores.values():
        await stored.close()
    return median(seconds["p"]), median(seconds["e"])


def build_turn(query: Query) -> tuple[Turn, list[Message]]:
    text = SENTENCE * 8
    citations = tuple(
        Citation(
            n=n,
            chunk_id=UUID(bytes=os.urandom(16)),
            document_id=UUID(bytes=os.urandom(16)),
            collection="default",
            title="Signing keys",
            uri="file:///keys.md",
            quote=SENTENCE * 2,
            start=0,
            end=len(SENTENCE * 2),
            spans=((0, 3),),
            claim=(0, 3),
            score=0.5,
        )
        for n in (1, 2, 3)
    )
    turn = Turn(
        query=query,
        understanding=Understanding(standalone=query.text),
        answer=Answer(text=text, citations=citations),
    )
    question = Message(role="user", text=query.text, standalone=query.text, entities=("Harbour",))
    return turn, [
        question,
        Message(role="assistant", text=text, titles=("Signing keys",), entities=("Harbour", "Keys")),
    ]


if __name__ == "__main__":
    main()
