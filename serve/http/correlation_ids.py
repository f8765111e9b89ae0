"""The header `X-Correlation-ID`, which names a request in logs, traces and problems."""

from uuid import UUID, uuid4


def read_correlation_id(header: str) -> str:
    """The client's id if it is a UUID of version 4, else a new one."""
    try:
        id = UUID(header)
    except ValueError:
        return str(uuid4())
    return str(id) if id.version == 4 else str(uuid4())
