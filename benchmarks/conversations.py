"""Many conversations at once: is a turn that the gateway acknowledged ever lost, stored twice or in another session?

Each session asks its questions one after the other, each with the `Idempotency-Key` of its turn, and sends a question
again after a 503 or a lost connection. Afterwards the stored messages of each session are compared with the answers
that it received. The memory is that of the gateway's process, after the second turn of all sessions and at the end.
`--kills` kills that process in the middle, so often, with equally many turns between.

    python -m benchmarks.conversations                              200 sessions of 10 turns
    python -m benchmarks.conversations --sessions 50 --kills 3
    python -m benchmarks.conversations --set retrieval.type=bm25 guard.mode=off     with little work per answer
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import uniform

import aiohttp
import numpy as np
import psutil

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.config import Settings
from rag_core.settings import load_settings
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT

HOST = "127.0.0.1"
SETTINGS = ("embedding.type=hashing", "answering.budget=none")
"""Without the time limits of a search, which a machine that also runs the clients can exceed."""
TIMEOUT = 120.0
"""Seconds after which a request is sent again."""
MAX_DOUBLINGS = 4
"""Clients wait for 1 to 2 seconds after the first refusal, and for at most 16 after later ones."""
ABOVE_ALL = 2**31 - 1
GATEWAY = """
import sys
import uvicorn
from rag_core.config import Settings
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.services import open_shared_resources
settings = Settings.model_validate_json(sys.argv[1])
services = open_shared_resources(settings).build_services(settings)
uvicorn.run(build_fastapi(ServedProfiles(services)), host=sys.argv[2], port=int(sys.argv[3]), log_level="error")
"""
QUESTIONS = ("How often are the signing keys of site {n} replaced?", "And who does that there?", "And why?")


@dataclass(slots=True)
class Load:
    """What the sessions saw: their questions with the ids of the answers, in order, and the outcomes of requests.

    `unremembered` counts answers that were acknowledged as not stored. `on_turn` is called after each answer.
    """

    on_turn: Callable[[], object] = lambda: None
    turns: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    unremembered: int = 0


class Gateway:
    """A gateway in a process of its own, which can be killed."""

    def __init__(self, settings: Settings, port: int) -> None:
        self._command = [sys.executable, "-c", GATEWAY, settings.model_dump_json(), HOST, str(port)]
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kills the process with SIGKILL, and starts the next one."""
        self.kill()
        self._process = subprocess.Popen(self._command)

    @property
    def memory(self) -> float:
        """The resident memory in megabytes."""
        return float(psutil.Process(self._process.pid).memory_info().rss) / (1 << 20)


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        _ingest(scratch, dsn)
        settings = load_settings(None, "default", [f"store.url={dsn}", *SETTINGS, *arguments.set], environment={})
        gateway = Gateway(settings, arguments.port)
        try:
            _measure(gateway, Postgres(dsn), arguments)
        finally:
            gateway.kill()


def _ingest(scratch: Path, store: str) -> None:
    docs = scratch / "docs"
    docs.mkdir()
    for n in range(200):
        text = f"# Site {n}\n\nThe signing keys of site {n} are replaced every {n + 7} days.\n\nKeeper {n} does it.\n"
        (docs / f"site-{n}.md").write_text(text)
    command = [sys.executable, "-m", "rag_cli", "ingest", str(docs), "--store", store, "--quiet", "--runner", "inline"]
    subprocess.run([*command, *(part for setting in SETTINGS for part in ("--set", setting))], check=True)


def _measure(gateway: Gateway, store: Postgres, arguments: argparse.Namespace) -> None:
    total = arguments.sessions * arguments.turns
    kill_at = {total * (n + 1) // (arguments.kills + 1) for n in range(arguments.kills)}
    memory = dict[int, float]()

    def watch() -> None:
        done = len(load.seconds)
        if done in (2 * arguments.sessions, total):
            memory[done] = gateway.memory
        if done in kill_at:
            gateway.restart()

    load = Load(on_turn=watch)
    began = time.perf_counter()
    url = f"http://{HOST}:{arguments.port}/v1/answer"
    asyncio.run(run_sessions(url, arguments.sessions, arguments.turns, load))
    wall = time.perf_counter() - began
    p50, p99 = np.percentile(load.seconds, [50, 99])
    print(f"{arguments.sessions} sessions of {arguments.turns} turns: {len(load.seconds)} answers in {wall:.1f} s")
    print(f"a turn, with the times it was sent again: p50 {p50:.2f} s, p99 {p99:.2f} s; {dict(load.outcomes)}")
    print(f"acknowledged as not stored: {load.unremembered}; {describe_losses(store, load)}")
    print("memory of the gateway: " + ", ".join(f"{rss:.0f} MB after {n} turns" for n, rss in sorted(memory.items())))


async def run_sessions(url: str, sessions: int, turns: int, load: Load) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT), connector=connector) as client:
        await asyncio.gather(*(_run_session(client, url, n, turns, load) for n in range(sessions)))


async def _run_session(client: aiohttp.ClientSession, url: str, number: int, turns: int, load: Load) -> None:
    session = f"session-{number}"
    load.turns[session] = []
    for turn in range(turns):
        body = {"question": QUESTIONS[turn % len(QUESTIONS)].format(n=number), "conversation_id": session}
        began = time.perf_counter()
        answer = await _ask(client, url, body, f"{session}-{turn}", load)
        load.seconds.append(time.perf_counter() - began)
        load.turns[session].append((body["question"], str(answer["id"])))
        load.unremembered += "remember" in answer["degraded"]  # type: ignore[operator]
        load.on_turn()


async def _ask(
    client: aiohttp.ClientSession, url: str, body: dict[str, str], key: str, load: Load
) -> dict[str, object]:
    """Sends the question until it is answered. Waits longer after each refusal, as clients of a busy server should."""
    attempts = count(1)
    while True:
        with suppress(aiohttp.ClientError, OSError, ValueError):
            async with client.post(url, json=body, headers={"Idempotency-Key": key}) as response:
                load.outcomes[str(response.status)] += 1
                if response.status == 200:
                    answer: dict[str, object] = await response.json()
                    return answer
                if 400 <= response.status < 500:
                    raise RuntimeError(f"the gateway refused a question: {await response.text()}")
                await asyncio.sleep(uniform(1, 2 ** min(next(attempts), MAX_DOUBLINGS)))
                continue
        load.outcomes["connection lost"] += 1
        await asyncio.sleep(0.2)


def describe_losses(store: Postgres, load: Load) -> str:
    """Compares the stored turns with those that the sessions saw."""
    counts = Counter[str]()
    with store.connect() as connection:
        conversations = ConversationList(connection, DEFAULT_TENANT, ())
        for session, turns in load.turns.items():
            rows = conversations.messages(session, ABOVE_ALL, ABOVE_ALL)[::-1]
            questions, answers = rows[::2], rows[1::2]
            stored = [(question["text"], answer["id"]) for question, answer in zip(questions, answers, strict=True)]
            counts["lost"] += len(set(turns) - set(stored))
            counts["doubled"] += len(stored) - len(set(stored))
            counts["of another session"] += len(set(stored) - set(turns))
            counts["out of order"] += stored != turns
    acknowledged = sum(map(len, load.turns.values()))
    return f"of {acknowledged} acknowledged turns: " + ", ".join(f"{name} {n}" for name, n in counts.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--port", type=int, default=8129)
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
