"""The socket that `rag serve` listens on. It belongs to the command, so it stays open when a replica dies.

Connections then wait until the next replica accepts them. By default each replica of Ray Serve binds the port itself.
After a kill under load the old connections still occupy the port for a minute, and Ray never tries a port again.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

LISTENER_VARIABLE = "RAG_LISTENER"
"""The environment variable with the path of the unix socket over which replicas get the listening socket."""

BACKLOG = 2048
"""The number of connections that can wait while no replica accepts any."""


@contextmanager
def lend_listener(listener: socket.socket) -> Iterator[dict[str, str]]:
    """Gives the socket to every replica that asks for it. Yields the environment variable that tells replicas where."""
    with TemporaryDirectory(prefix="rag-") as folder, socket.socket(socket.AF_UNIX) as lender:
        path = str(Path(folder) / "listener")  # the folder is readable by this user only
        lender.bind(path)
        lender.listen()
        Thread(target=_lend, args=(lender, listener), name="listener", daemon=True).start()
        try:
            yield {LISTENER_VARIABLE: path}
        finally:
            lender.shutdown(socket.SHUT_RDWR)  # ends the thread


def _lend(lender: socket.socket, listener: socket.socket) -> None:
    with suppress(OSError):  # the lender was shut down
        while True:
            replica, _ = lender.accept()
            with replica, suppress(OSError):  # the replica has just died
                socket.send_fds(replica, [b"\0"], [listener.fileno()])


def borrow_listener(path: str) -> socket.socket:
    """The listening socket, for a replica. `path` is the value of `LISTENER_VARIABLE`."""
    with socket.socket(socket.AF_UNIX) as lender:
        lender.connect(path)
        _, (descriptor,), _, _ = socket.recv_fds(lender, 1, 1)
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener
