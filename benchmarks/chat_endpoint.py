"""An OpenAI-compatible endpoint that answers every chat with the same cited sentence.

It stands for a language model whose process can be killed and frozen: `python -m benchmarks.chat_endpoint PORT`.
"""

import json
import logging
import sys

from aiohttp import web

ANSWER = ("Signing keys ", "are replaced ", "every 45 days ", "[1].")


def main(port: int) -> None:
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a killed gateway leaves half a request
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


async def complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if not body.get("stream"):
        message = {"role": "assistant", "content": "".join(ANSWER)}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in ANSWER:
        await _send(response, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    await _send(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _send(response: web.StreamResponse, event: dict[str, object]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
