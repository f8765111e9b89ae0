"""Requests of web pages of other origins (`api.cors_origins`)."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

EXPOSED_HEADERS = (
    *("Location", "Retry-After", "Server-Timing", "WWW-Authenticate", "Preference-Applied", "Idempotency-Replayed"),
    *("X-API-Version", "X-Correlation-ID", "X-Pipeline-Version", "X-Request-ID", "RateLimit", "RateLimit-Policy"),
)
"""The headers of responses that scripts of other pages can read."""


def add_cors(app: FastAPI, origins: Sequence[str]) -> None:
    """Lets the scripts of pages of these origins call the application, errors included. Adds nothing for no origins.

    Browsers send no cookies: the gateway uses none, and a script adds the header Authorization by itself.
    """
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["DELETE", "GET", "POST", "PUT"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
