"""The request body of `/v1/conversations/{id}/participants`. It is strict: an unknown key is an error."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serve.bodies.fields import Text, limit_members

MAX_PARTICIPANTS = 100
MAX_USER_CHARS = 300
"""More than a user of an access token has: `jwt:` and 255 characters."""


class Invitation(BaseModel):
    """All participants of a conversation, without the user who opened it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [{"users": ["bob"]}]}
    )
    _limit_members = limit_members

    users: list[Annotated[Text, Field(min_length=1, max_length=MAX_USER_CHARS)]] = Field(max_length=MAX_PARTICIPANTS)
