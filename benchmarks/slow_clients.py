"""Clients that send and read slowly, or not at all: does `/healthz` still answer, and how fast?

Each kind of client holds its connections while `/healthz` is asked again and again, each time over a new connection.
Everything runs on loopback.

    python -m benchmarks.slow_clients
    python -m benchmarks.slow_clients --probes 500
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import aiohttp
import numpy as np

from benchmarks.machine import heading
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from rag_core.settings import load_settings

HOST, PORT = "127.0.0.1", 8129
URL = f"http://{HOST}:{PORT}"
BODY = b'{"question": "Where is the key?", "stream": true}'
POST = b"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
CONNECTIONS = 1_000
Client: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def send_nothing(_writer: asyncio.StreamWriter) -> None:
    pass


async def send_headers_slowly(writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /v1/answer HTTP/1.1\r\n")
    while True:
        writer.write(b"X-Slow: 1\r\n")
        await writer.drain()
        await asyncio.sleep(1.0)


async def send_body_slowly(writer: asyncio.StreamWriter) -> None:
    writer.write(POST % 10_000)
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(1.0)


async def send_half_a_body(writer: asyncio.StreamWriter) -> None:
    writer.write(POST % len(BODY) + BODY[:20])


async def read_nothing(writer: asyncio.StreamWriter) -> None:
    writer.write(POST % len(BODY) + BODY)


CLIENTS: Mapping[str, tuple[int, Client]] = {
    "idle connections": (CONNECTIONS, send_nothing),
    "slow headers": (300, send_headers_slowly),
    "half-sent bodies": (300, send_half_a_body),
    "slow bodies": (300, send_body_slowly),
    "no reading": (300, read_nothing),
}


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as store:
        overrides = [f"store.url={store}", "embedding.type=hashing", *arguments.set]
        settings = load_settings(None, "default", overrides, environment={})
        from serve.app import build_local_application
        from serve.gateway_settings import GatewaySettings
        from serve.shape.local import serve_locally

        with serve_locally(lambda: build_local_application(GatewaySettings(own=settings)), HOST, PORT):
            exit_when_terminated()
            asyncio.run(_measure(arguments.probes))


async def _measure(probes: int) -> None:
    print(f"{'/healthz beside':28} {'answered':>12} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    _show("nothing", await _probe(probes))
    for name, (count, client) in CLIENTS.items():
        tasks = [asyncio.create_task(_hold(client)) for _ in range(count)]
        await asyncio.sleep(3.0)
        _show(f"{count} {name}", await _probe(probes))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(2.0)
    _show("nothing, afterwards", await _probe(probes))


async def _hold(client: Client) -> None:
    """Keeps a connection open until cancelled, whatever the server sends; reads nothing."""
    _, writer = await asyncio.open_connection(HOST, PORT, limit=1)
    try:
        with suppress(OSError):
            await client(writer)
        await asyncio.Event().wait()
    finally:
        writer.close()


async def _probe(probes: int) -> Sequence[float]:
    """The milliseconds of each probe that was answered."""
    milliseconds = []
    for _ in range(probes):
        began = time.perf_counter()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{URL}/healthz") as response:
                    if response.status == 200:
                        milliseconds.append(1000 * (time.perf_counter() - began))
    return [*milliseconds, *[np.nan] * (probes - len(milliseconds))]


def _show(name: str, milliseconds: Sequence[float]) -> None:
    answered = [value for value in milliseconds if not np.isnan(value)]
    p50, p99, longest = np.percentile(answered or [np.nan], [50, 99, 100])
    print(f"{name:28} {len(answered):5} of {len(milliseconds):3} {p50:8.1f} {p99:8.1f} {longest:8.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
