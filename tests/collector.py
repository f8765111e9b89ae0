"""An OTLP/HTTP receiver that keeps the spans that it receives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span. Its ids are hexadecimal; `parent` is empty for the first span of a trace."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, str]


@dataclass(slots=True)
class Collector:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def trace_spans(self, trace: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace == trace]


@contextmanager
def run_collector() -> Iterator[Collector]:
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            server.shutdown()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        service = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}[
            "service.name"
        ]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield ReceivedSpan(
                service=service,
                name=span.name,
                trace=span.trace_id.hex(),
                id=span.span_id.hex(),
                parent=span.parent_span_id.hex(),
                attributes={attribute.key: attribute.value.string_value for attribute in span.attributes},
            )
