"""What a request to `/v1/ingest` reaches when it names addresses and files that it should not.

Each form is opened, listed and read as the ingest runner does it. The operator's list allows the form's own prefix where
the address is what should stop it. Names resolve by a script, and no packet leaves this machine: connections to other
addresses than this one's loopback are recorded, then fail. `python -m benchmarks.doors` prints one line per form.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.machine import heading
from rag_core.errors import DocumentError, RagError
from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.location_rules import LocationRules

SECRET = b"the secret"
MAX_ENTRIES = 20
PUBLIC = "93.184.215.14"
"""A public address. Connections to it are allowed, and fail here."""

LOOPBACK_HOSTS = (
    *("127.0.0.1", "127.0.0.2", "127.1", "127.0.1", "127.255.255.254", "0.0.0.0", "0", "0.0"),  # noqa: S104
    *("2130706433", "017700000001", "0x7f000001", "0x7F.0.0.1", "0x7f.1", "0177.0.0.1", "0177.1", "127.0x1"),
    *("127.00.00.01", "0x7f.0x0.0x0.0x1", "127.0.0.1.", "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::1]", "[::]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::7f00:1]"),
    *("[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]"),
    *("[2002:7f00:1::]", "[2002:7f00:0001::1]", "[2001:0:7f00:1::]", "[2001::80ff:fffe]", "[fe80::5efe:7f00:1]"),
    *("localhost", "LOCALHOST", "localhost.", "LocalHost", "ip6-localhost", "localhost.localdomain"),
    *("localtest.me", "127.0.0.1.nip.io", "spoofed.example", "metadata-by-cname.example", "v6.example"),
    *("mapped.example", "mixed.example", "mixed-v6.example", "rebound.example", "１２７.0.0.1", "①②⑦.⓪.⓪.①"),
    *("127。0。0。1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "%31%32%37.0.0.1", "127.0.0.1%00", "127.0.0.1%2f", "%6cocalhost"),
)
OTHER_HOSTS = (
    *("169.254.169.254", "2852039166", "0xA9FEA9FE", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518"),
    *("169.16689662", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]"),
    *("169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[fd00:ec2::254]", "[fd20:ce::254]"),
    *("metadata.google.internal", "metadata", "instance-data", "kubernetes.default.svc", "host.docker.internal"),
    *("10.0.0.1", "10.1", "012.0.0.1", "0xa000001", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("192.168.1", "0xc0.168.1", "100.64.0.1", "100.127.255.255", "198.18.0.1", "192.0.2.1", "198.51.100.7"),
    *("203.0.113.9", "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[fc00::1]", "[fd12:3456::1]", "[ff02::1]", "[2001:db8::1]"),
    *("[100::1]", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]", "[2002:0a00:0001::]", "[5f00::1]", "[3fff::1]"),
)
NAMES: Mapping[str, Sequence[str]] = {
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
    "docs.example": [PUBLIC],
}
"""The addresses of names. `rebound.example` is public at the first lookup, and loopback at all others."""

DISGUISED_URLS = (
    *(
        "http://docs.example@127.0.0.1:PORT/",
        "http://docs.example:80@127.0.0.1:PORT/",
        "http://127.0.0.1:PORT#@docs.example/",
    ),
    *(
        "http://docs.example#@127.0.0.1:PORT/",
        "http://docs.example?@127.0.0.1:PORT/",
        "http://docs.example\\@127.0.0.1:PORT/",
    ),
    *(
        "http://127.0.0.1:PORT\\@docs.example/",
        "http://docs.example%40127.0.0.1:PORT/",
        "http://docs.example%2f@127.0.0.1:PORT/",
    ),
    *(
        "http://docs.example:PORT/",
        "http://docs.example.127.0.0.1.nip.io:PORT/",
        "http://docs.exampleevil/",
        "http:///127.0.0.1:PORT/",
    ),
    *(
        "http:////127.0.0.1:PORT/",
        "http://@127.0.0.1:PORT/",
        "http://docs.example/../../127.0.0.1:PORT/",
        "https://docs.example/",
    ),
    *(
        "http://docs.example;127.0.0.1:PORT/",
        "http://docs.example,127.0.0.1:PORT/",
        "http://docs.example&@127.0.0.1:PORT/",
    ),
    *(
        "HTTP://127.0.0.1:PORT/",
        "http://docs.example:22/",
        "http://[::1]@docs.example/",
        "http://docs.example/docs%2f..%2f..%2fsecret",
    ),
    *(
        "http://docs.example/docs/../secret",
        "http://docs.example/docs/%2e%2e/secret",
        "http://docs.example/docs/%252e%252e/secret",
    ),
    *("http://docs.example/docs/..%5csecret", "http://docs.example/secret", "http://docs.example/docs-secret/a"),
    *(
        "http://docs.example/docs/.%2e/secret",
        "http://docs.example/docs/%2e./secret",
        "http://docs.example/DOCS/../secret",
    ),
)
"""URLs under a list that allows only `http://docs.example/docs`."""

REDIRECTS = (
    *(
        "http://127.0.0.1:SECRET_PORT/",
        "http://localhost:SECRET_PORT/",
        "//127.0.0.1:SECRET_PORT/",
        "http://[::1]:SECRET_PORT/",
    ),
    *(
        "http://0x7f.1:SECRET_PORT/",
        "http://127.0.0.1:PORT/",
        "http://169.254.169.254/latest/meta-data/",
        "http://spoofed.example:SECRET_PORT/",
    ),
    *(
        "http://10.0.0.1/",
        "https://127.0.0.1:SECRET_PORT/",
        "file:///FOLDER/outside/secret.txt",
        "ftp://127.0.0.1:SECRET_PORT/",
    ),
    *(
        "http://docs.example@127.0.0.1:SECRET_PORT/",
        "http://listed.example/",
        "http://listed-metadata.example/",
        "/../secret",
    ),
)
"""Targets of redirects. The list allows the first hop, and the two `listed` names, which have forbidden addresses."""

CHAINS = (
    *(
        "simplecache::file:///FOLDER/outside/secret.txt",
        "filecache::http://127.0.0.1:PORT/",
        "blockcache::file:///FOLDER/outside",
    ),
    *(
        "zip://secret.txt::file:///FOLDER/outside.zip",
        "file:///FOLDER/allowed::zip://a",
        "zip://*::http://127.0.0.1:PORT/a.zip",
    ),
    *("tar://a::file:///FOLDER/a.tar", "libarchive://a::file:///FOLDER/a", "s3://bucket/docs::file:///FOLDER/outside"),
    *(
        "http://127.0.0.1:PORT/::file:///FOLDER/outside",
        "reference://a::file:///FOLDER/a",
        "dir::file:///FOLDER/outside",
    ),
    *(
        "file://::/FOLDER/outside",
        "gs://bucket::simplecache::file:///FOLDER/outside",
        "simplecache::simplecache::file:///FOLDER",
    ),
)
SCHEMES = (
    *(
        "local://",
        "memory://",
        "FILE://",
        "File://",
        "asynclocal://",
        "dir://",
        "generic://",
        "cached://",
        "simplecache://",
    ),
    *(
        "zip://",
        "tar://",
        "libarchive://",
        "reference://",
        "arrow_hdfs://",
        "hdfs://",
        "webhdfs://",
        "ftp://",
        "sftp://",
    ),
    *("ssh://", "smb://", "github://", "git://", "gist://", "hf://", "jupyter://", "jlab://", "dask://", "dbfs://"),
    *("abfs://", "az://", "adl://", "gdrive://", "dropbox://", "box://", "oci://", "oss://", "root://", "webdav://"),
    *("data://", "gopher://", "dict://", "ldap://", "jar://", "netdoc://", "php://", "s3a://", "gcs://", "unix://"),
)
"""Schemes under a list that allows every path and host of the allowed schemes."""

FILE_LOCATIONS = (
    *(
        "file:///FOLDER/outside",
        "file:///FOLDER/outside/secret.txt",
        "file:///FOLDER/allowed/../outside",
        "file:///FOLDER",
    ),
    *(
        "file:///FOLDER/allowed/%2e%2e/outside",
        "file:///FOLDER/allowed/..%2foutside",
        "file:///FOLDER/allowed/sub/../../outside",
    ),
    *(
        "file:///FOLDER/allowed/.%2e/outside/secret.txt",
        "file:///FOLDER/allowed/link-to-folder",
        "file:///FOLDER/allowed/link-to-file",
    ),
    *(
        "file:///FOLDER/allowed/link-to-folder/secret.txt",
        "file:///FOLDER/allowed/link-chain",
        "file:///FOLDER/allowed-too",
    ),
    *(
        "file:///FOLDER/ALLOWED/../outside",
        "file:///FOLDER/allowed/link-to-root/FOLDER/outside",
        "file:///FOLDER/allowed/./../outside",
    ),
    *(
        "file://localhost/FOLDER/outside",
        "file://127.0.0.1/FOLDER/outside",
        "file://evil.example/FOLDER/outside",
        "file:////FOLDER/outside",
    ),
    *(
        "file://///FOLDER/outside",
        "file:///../FOLDER/outside",
        "file:///proc/self/root/FOLDER/outside",
        "file:///proc/self/cwd",
    ),
    *(
        "file:///proc/self/environ",
        "file:///proc/1/environ",
        "file:///dev/stdin",
        "file:///etc/passwd",
        "file:///etc",
        "file:///",
    ),
    *(
        "file://",
        "file://~/",
        "file:///~root/.ssh",
        "file:///FOLDER/allowed%00/../outside",
        "file:///FOLDER/outside%00.txt",
    ),
    *(
        "file:///FOLDER/allowed/%252e%252e/outside",
        "file:///FOLDER/allowed/..;/outside",
        "file:///FOLDER/allowed\\..\\outside",
    ),
    *(
        "file:///FOLDER/%61llowed/../outside",
        "file:///FOLDER/allowed/loop",
        "file:///FOLDER/allowed/fifo",
        "file:///%2e%2e/FOLDER/outside",
    ),
    *(
        "file://LOCALHOST/FOLDER/outside",
        "file:///FOLDER/allowed/../allowed-too/secret.txt",
        "file:///FOLDER/allowed/?/../../outside",
    ),
)
"""Files and folders under a list that allows only the folder `allowed`. Its links lead out of it."""


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
    """Yields every form with the values of `FOLDER`, `PORT` and `SECRET_PORT` in place."""

    def place(text: str) -> str:
        for name, value in places.items():
            text = text.replace(name, value)
        return text

    everything = ("/", "http://", "https://", "s3://", "gs://")
    for host in LOOPBACK_HOSTS:
        url = place(f"http://{host}:PORT/docs/")
        yield Form("loopback", url, (url,))
    for host in OTHER_HOSTS:
        yield Form("network", f"http://{host}/docs/", (f"http://{host}/",))
    for url in DISGUISED_URLS:
        yield Form("disguised", place(url), ("http://docs.example/docs",))
    listed = ("http://listed.example/", "http://listed-metadata.example/", place("http://127.0.0.1:PORT/redirect"))
    for target in map(place, REDIRECTS):
        location = place("http://127.0.0.1:PORT/redirect?") + target.encode().hex()
        yield Form("redirect", location, listed, target)
    for location in CHAINS:
        yield Form("chain", place(location), everything)
    for scheme in SCHEMES:
        yield Form("scheme", place(f"{scheme}/FOLDER/outside/secret.txt"), everything)
    for location in FILE_LOCATIONS:
        yield Form("file", place(location), (place("/FOLDER/allowed"),))


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

    def scripted_getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = (host.decode() if isinstance(host, bytes) else str(host)).rstrip(".").lower()
        lookups[name] += 1
        addresses: Sequence[str] = NAMES.get(name, ())
        if name == "rebound.example":
            addresses = [PUBLIC] if lookups[name] == 1 else ["127.0.0.1"]
        if name.startswith("listed"):
            addresses = ["169.254.169.254"] if "metadata" in name else ["100.100.100.200"]
        if not addresses:
            if (
                any(character.isalpha() for character in name.replace("0x", ""))
                and name != "localhost"
                and ":" not in name
            ):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return resolve(host, port, *args, **options)
        return [entry for address in addresses for entry in resolve(address, port, 0, socket.SOCK_STREAM)]

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
        write(
            f"{'REACHED' if row.reached else 'refused':8} {row.form.kind:10} {row.form.target or row.form.location}  ->  {row.got}"
        )


def main() -> None:
    print(heading())
    attempts = try_all()
    print_table(attempts)
    unguarded, private = try_all(guarded=False), try_all(private_networks=True)
    print(f"\n{'kind':10} {'forms':>6} {'reached':>8} {'with private_networks':>22} {'without any rule':>17}")
    for kind in (*dict.fromkeys(row.form.kind for row in attempts), ""):
        counts = [sum(row.form.kind.startswith(kind) for row in attempts)]
        for run in (attempts, private, unguarded):
            counts.append(sum(row.reached and row.form.kind.startswith(kind) for row in run))
        print(f"{kind or 'all':10} {counts[0]:6} {counts[1]:8} {counts[2]:22} {counts[3]:17}")


if __name__ == "__main__":
    main()
