"""The body that names the participants of a conversation."""

import pytest
from pydantic import ValidationError

from serve.authentication.jwt import USER_PREFIX
from serve.bodies.conversations import Invitation


def test_the_longest_user_of_a_token_can_be_invited() -> None:
    user = USER_PREFIX + "u" * 255
    assert Invitation(users=[user]).users == [user]


@pytest.mark.parametrize("user", ["", "u" * 301, "u\0"])
def test_a_user_that_cannot_exist_is_refused(user: str) -> None:
    with pytest.raises(ValidationError):
        Invitation(users=[user])
