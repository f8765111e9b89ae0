"""A request whose gateway is lost, in the middleware of Serve's proxy."""

import asyncio
import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.lost_replicas import LostReplicas

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/v1/retrieve", "headers": []}


def send_request(proxy: ASGIApp, scope: Scope = SCOPE) -> list[Message]:
    messages = list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    asyncio.run(LostReplicas(proxy)(scope, receive, send))
    return messages


async def lose_gateway(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Ends without a response, as Serve's proxy does."""


async def lose_gateway_midway(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


def test_a_request_whose_gateway_was_lost_can_be_sent_again() -> None:
    start, body = send_request(lose_gateway)
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"1")
    problem = json.loads(body["body"])
    assert (problem["type"], problem["retryable"]) == ("urn:rag-on-ray:problem:cluster", True)
    assert problem["detail"] == "the cluster cannot be reached"


def test_a_response_that_has_begun_is_left_as_it_is() -> None:
    assert [message["type"] for message in send_request(lose_gateway_midway)] == ["http.response.start"]


def test_only_requests_have_responses() -> None:
    assert send_request(lose_gateway, {"type": "lifespan"}) == []
