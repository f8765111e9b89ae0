"""What a request to `/v1/ingest` reaches when it names addresses and files that it should not.

`doors.txt` has the forms. Each is opened, listed and read as the ingest runner does it. Names resolve by a script, and
no packet leaves this machine: connections to other addresses than loopback are recorded, then fail.
`python -m benchmarks.doors` prints one line per form.
"""

import logging
import os
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.machine import heading
from rag_core.errors import DocumentError, RagError
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.location_rules import LocationRules

FORMS = Path(__file__).with_suffix(".txt")
SECRET = b"the secret"
MAX_ENTRIES = 20
PUBLIC = "93.184.215.14"
"""A public address. Connections to it are allowed, and fail here."""

NAMES: Mapping[str, Sequence[str]] = {
    "localhost": ["127.0.0.1", "::1"],
    "localhost.localdomain": ["127.0.0.1"],
    "ip6-localhost": ["::1"],
    "localtest.me": ["127.0.0.1"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "spoofed.example": ["127.0.0.1"],
    "metadata-by-cname.example": ["169.254.169.254"],
    "v6.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "mixed.example": [PUBLIC, "127.0.0.1"],
    "mixed-v6.example": ["2606:4700::1111", "::1"],
    "metadata.google.internal": ["169.254.169.254"],
    "metadata": ["169.254.169.254"],
    "instance-data": ["169.254.169.254"],
    "kubernetes.default.svc": ["10.96.0.1"],
    "host.docker.internal": ["172.17.0.1"],
    "listed.example": ["100.100.100.200"],
    "listed-metadata.example": ["169.254.169.254"],
    "docs.example": [PUBLIC],
}
"""The addresses of names. `rebound.example` is public at the first lookup, and loopback at all others."""


@dataclass(frozen=True, slots=True)
class Form:
    """A location that a request names, and the operator's list. `target`: where a redirect leads."""

    kind: str
    location: str
    allowed: tuple[str, ...]
    target: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    form: Form
    got: str
    reached: bool


@dataclass(slots=True)
class Watch:
    """The addresses that were connected to and the pages that were requested since the last `clear`."""

    addresses: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.addresses.clear()
        self.pages.clear()

    def reached(self, kind: str) -> bool:
        """True if something was reached that should not be: for a redirect, anything but its first hop."""
        first_hop = "127.0.0.1" if kind == "redirect" else PUBLIC
        pages = [page for page in self.pages if kind != "redirect" or not page.startswith("/redirect")]
        return bool(pages) or any(address != first_hop for address in self.addresses)


def try_all(private_networks: bool = False, guarded: bool = True) -> list[Attempt]:
    """Tries every form. `guarded=False` opens the locations as the operator's own, to show which forms work at all."""
    logging.getLogger("rag_core.ingestion.sources.guarded_http").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, watch_network() as watch, serve_secrets(watch) as ports:
        plant_files(Path(folder))
        places = {"FOLDER": folder.lstrip("/"), "SECRET_PORT": str(ports[1]), "PORT": str(ports[0])}
        attempts = []
        for form in list_forms(places):
            rules = LocationRules(form.allowed, private_networks or form.kind == "redirect") if guarded else None
            attempts.append(attempt(form, rules, watch, Path(folder, "allowed")))
        return attempts


def list_forms(places: Mapping[str, str]) -> Iterator[Form]:
    """Yields every form with the values of `FOLDER`, `PORT` and `SECRET_PORT` in place.

    The operator's list allows as much as possible without allowing the target: the form's own prefix if its address
    should stop it, every path and host if its scheme should, else one folder or page beside the target.
    """

    def place(text: str) -> str:
        for name, value in places.items():
            text = text.replace(name, value)
        return text

    everything = ("/", "http://", "https://", "s3://", "gs://")
    pages = ("http://listed.example/", "http://listed-metadata.example/", place("http://127.0.0.1:PORT/redirect"))
    for line in FORMS.read_text().splitlines():
        kind, _, text = line.partition(" ")
        text = place(text)
        match kind:
            case "loopback":
                yield Form(kind, place(f"http://{text}:PORT/docs/"), (place(f"http://{text}:PORT/"),))
            case "network":
                yield Form(kind, f"http://{text}/docs/", (f"http://{text}/",))
            case "disguised":
                yield Form(kind, text, ("http://docs.example/docs",))
            case "redirect":
                yield Form(kind, place(f"http://127.0.0.1:PORT/redirect?{text.encode().hex()}"), pages, text)
            case "chain":
                yield Form(kind, text, everything)
            case "scheme":
                yield Form(kind, place(f"{text}/FOLDER/outside/secret.txt"), everything)
            case _:
                yield Form(kind, text, (place("/FOLDER/allowed"),))


def attempt(form: Form, rules: LocationRules | None, watch: Watch, folder: Path) -> Attempt:
    """Opens, lists and reads a location as the ingest runner does."""
    watch.clear()
    bodies: list[bytes] = []
    got = "nothing"
    try:
        source = FilesSource.open(form.location, (), (), True, 1.0, rules)
        for entry in islice(source.listing(), MAX_ENTRIES):
            got = f"listed {entry.uri}"
            bodies.append(source.read(entry))
    except (RagError, DocumentError, OSError) as error:
        got = str(error)
    outside = form.kind == "file" and got.startswith("listed") and f"{folder.as_uri()}/" not in got
    reached = any(SECRET in body for body in bodies) or outside or watch.reached(form.kind)
    return Attempt(form, "its target" if reached else got, reached)


def plant_files(folder: Path) -> None:
    for name in ("allowed/sub", "outside", "allowed-too"):
        (folder / name).mkdir(parents=True)
    for name in ("outside/secret.txt", "allowed-too/secret.txt"):
        (folder / name).write_bytes(SECRET)
    (folder / "allowed/page.txt").write_text("a page")
    links = {"link-to-folder": "../outside", "link-to-file": "../outside/secret.txt", "link-to-root": "/"}
    for name, target in {**links, "link-chain": "link-to-folder", "loop": "loop"}.items():
        (folder / "allowed" / name).symlink_to(target)
    os.mkfifo(folder / "allowed/fifo")


@contextmanager
def serve_secrets(watch: Watch) -> Iterator[tuple[int, int]]:
    """Runs two web servers on loopback, and yields their ports. Every page has the secret or is a redirect."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            watch.pages.append(self.path)
            path, _, target = self.path.partition("?")
            is_redirect = path == "/redirect"
            self.send_response(302 if is_redirect else 200)
            if is_redirect:
                self.send_header("Location", bytes.fromhex(target).decode())
            self.send_header("Content-Length", str(len(SECRET)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(SECRET)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Pages) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield servers[0].server_port, servers[1].server_port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@contextmanager
def watch_network() -> Iterator[Watch]:
    """Resolves names by the script, records connections, and lets only those to 127.0.0.0/8 and ::1 happen."""
    watch, lookups = Watch(), Counter[str]()
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def scripted_getaddrinfo(host: Any, port: Any, *_: Any, **__: Any) -> Any:
        name = (host.decode() if isinstance(host, bytes) else str(host)).rstrip(".").lower()
        addresses = NAMES.get(name, ())
        if name == "rebound.example":
            lookups[name] += 1
            addresses = [PUBLIC] if lookups[name] == 1 else ["127.0.0.1"]
        # without a script, only a number in any form is an address
        parse = partial(resolve, port=port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [entry for address in addresses or [host] for entry in parse(address)]

    def watched_connect(self: socket.socket, address: Any) -> None:
        if self.family not in (socket.AF_INET, socket.AF_INET6):
            return connect(self, address)
        watch.addresses.append(str(address[0]))
        if not str(address[0]).startswith("127.") and address[0] != "::1":
            raise OSError(101, "Network is unreachable")
        return connect(self, address)

    with patch("socket.getaddrinfo", scripted_getaddrinfo), patch.object(socket.socket, "connect", watched_connect):
        yield watch


def print_table(attempts: Sequence[Attempt], write: Callable[[str], None] = print) -> None:
    for row in attempts:
        form, verdict = row.form, "REACHED" if row.reached else "refused"
        write(f"{verdict:8} {form.kind:10} {form.target or form.location}  ->  {row.got}")


def main() -> None:
    print(heading())
    attempts = try_all()
    print_table(attempts)
    unguarded, private = try_all(guarded=False), try_all(private_networks=True)
    print(f"\n{'kind':10} {'forms':>6} {'reached':>8} {'with private_networks':>22} {'without any rule':>17}")
    for kind in (*dict.fromkeys(row.form.kind for row in attempts), ""):
        counts = [sum(row.form.kind.startswith(kind) for row in attempts)]
        runs = (attempts, private, unguarded)
        counts += [sum(row.reached and row.form.kind.startswith(kind) for row in run) for run in runs]
        print(f"{kind or 'all':10} {counts[0]:6} {counts[1]:8} {counts[2]:22} {counts[3]:17}")


if __name__ == "__main__":
    main()
