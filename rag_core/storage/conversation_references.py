"""References to the conversations of other users, and who can use them.

A conversation belongs to the user who opened it. Two users can have conversations with the same session id, so the one
of another user is named by a reference: `conversation:` and its id. Participants, whom the owner invited, can read and
continue it. Administrators can read and erase it.
"""

from uuid import UUID

PREFIX = "conversation:"

# Locks the row, so that no turn is added to a conversation that is erased meanwhile.
FIND_REFERENCED = """
select id from conversations c where tenant = %(tenant)s and id = %(reference)s and memory_store = '' and (%(sees_all)s
  or user_id <> '' and (user_id = %(user)s or exists (select from participants p
    where p.tenant = c.tenant and p.conversation_id = c.id and p.name = %(user)s and p.is_invited)))
for key share"""


def format_reference(conversation: UUID) -> str:
    return f"{PREFIX}{conversation}"


def parse_reference(session_id: str) -> UUID | None:
    """None if the session id is not a reference."""
    prefix, id = session_id[: len(PREFIX)], session_id[len(PREFIX) :]
    try:
        return UUID(id) if prefix == PREFIX else None
    except ValueError:
        return None
