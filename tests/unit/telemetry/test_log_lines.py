import io
import json
import logging
from typing import Any

import pytest

from rag_core.telemetry.logs import configure_logs, log_batch, log_operation, query_hash, scrub_record
from rag_core.telemetry.operation import Operation, enter_operation
from rag_core.types import StageReport

QUESTION = "what did ann@example.org pay?"


@pytest.fixture
def lines() -> "Lines":
    captured = Lines()
    configure_logs("gateway", stream=captured.stream)
    return captured


class Lines:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    def __call__(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def operation() -> Operation:
    return Operation(name="retrieve", correlation_id="c-1", tenant="tenant-one", profile="default", query=QUESTION)


def test_an_operation_is_one_line_with_its_stages(lines: Lines) -> None:
    current = operation()
    current.stages += [
        StageReport(stage="dense", seconds=0.01234, ranking=(object(), object())),  # type: ignore[arg-type]
        StageReport(stage="rerank", seconds=0, skipped="not wanted"),
    ]
    with enter_operation(current):
        log_operation(current, "request", "ok", 0.0502)
    (line,) = lines()
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "rag_core.telemetry.logs",
        "role": "gateway",
        "correlation_id": "c-1",
        "tenant": "tenant-one",
        "operation": "retrieve",
        "profile": "default",
        "status": "ok",
        "duration_ms": 50.2,
        "stages": {"dense": 12.3},
        "counts": {"dense": 2},
        "query": query_hash(QUESTION),
    }


def test_a_stage_that_went_wrong_is_a_warning_of_its_own(lines: Lines) -> None:
    current = operation()
    current.stages += [
        StageReport(stage="embed", seconds=0.05, error="cancelled", error_type="CancelledError"),
        StageReport(stage="dense", seconds=0.05, error="timeout after 0.050 s", error_type="StageTimeoutError"),
    ]
    with enter_operation(current):
        log_operation(current, "request", "degraded", 0.06)
    failed, request = lines()
    assert (failed["event"], failed["level"], failed["correlation_id"]) == ("stage failed", "warning", "c-1")
    assert (failed["stage"], failed["duration_ms"]) == ("dense", 50.0)
    assert (failed["error"], failed["error_type"]) == ("timeout after 0.050 s", "StageTimeoutError")
    assert (request["level"], request["degraded"]) == ("info", ["dense"])


@pytest.mark.parametrize(("status", "level"), [("error", "error"), ("timeout", "warning"), ("refused", "info")])
def test_the_end_of_an_operation_sets_its_log_level(lines: Lines, status: Any, level: str) -> None:
    log_operation(operation(), "request", status, 0.1)
    assert [line["level"] for line in lines()] == [level]


def test_a_question_is_written_only_where_that_is_wanted_and_never_with_an_address() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "full", stream)
    log_operation(operation(), "request", "ok", 0.1)
    assert json.loads(stream.getvalue())["query"] == "what did [e-mail] pay?"


def test_other_records_of_ours_are_lines_of_the_operation_too(lines: Lines) -> None:
    with enter_operation(operation()):
        logging.getLogger("serve.http.problems").warning("%s failed for %s", "/v1/answer", "ann@example.org")
        logging.getLogger("jobs").info("started", extra={"attempt": 2, "api_key": "abc"})
    logging.getLogger("rag_core.storage").debug("nothing")
    first, second = lines()
    assert (first["event"], first["logger"]) == ("/v1/answer failed for [e-mail]", "serve.http.problems")
    assert (first["level"], first["correlation_id"]) == ("warning", "c-1")
    assert (second["event"], second["attempt"], second["api_key"]) == ("started", 2, "[secret]")


def test_a_traceback_has_neither_passwords_nor_the_question_nor_values_of_variables(lines: Lines) -> None:
    hidden = "of a variable"
    with enter_operation(operation()):
        try:
            raise ValueError(f"password=hunter2 at {QUESTION}") from OSError("postgres://rag:hunter2@db/rag")
        except ValueError:
            logging.getLogger("serve").exception("failed")
    (line,) = lines()
    assert hidden not in line["exception"]
    assert "in test_a_traceback_has" in line["exception"]
    assert "hunter2" not in line["exception"]
    assert f"ValueError: password=[secret] at {query_hash(QUESTION)}" in line["exception"]


def test_a_text_of_several_lines_is_one_line(lines: Lines) -> None:
    logging.getLogger("serve").warning('first\nsecond "quoted" \0 ü')
    assert [line["event"] for line in lines()] == ['first\nsecond "quoted" \0 ü']


def test_a_batch_of_a_job_is_a_line(lines: Lines) -> None:
    log_batch("embed", 0.5, {"documents": 128})
    log_batch("embed", 0.5, {"documents": 128}, failure="ModelError")
    well, failed = lines()
    assert (well["event"], well["stage"], well["counts"]) == ("batch", "embed", {"documents": 128})
    assert (failed["level"], failed["error_type"]) == ("warning", "ModelError")
    assert "error_type" not in well


def test_a_second_call_takes_the_place_of_the_first(lines: Lines) -> None:
    again = Lines()
    configure_logs("ingest", stream=again.stream)
    logging.getLogger("serve").warning("once")
    assert lines() == []
    assert [line["role"] for line in again()] == ["ingest"]


def test_a_stage_with_an_invalid_request_is_not_a_warning(lines: Lines) -> None:
    current = operation()
    current.stages += [StageReport(stage="dense", seconds=0.05, error="no such operator", error_type="FilterError")]
    log_operation(current, "request", "refused", 0.06)
    assert [line["event"] for line in lines()] == ["request"]


def test_a_program_that_has_not_configured_logs_gets_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a program, where Python then writes warnings itself
    current = operation()
    current.stages.append(StageReport(stage="dense", seconds=0.05, error="broke", error_type="RetrievalError"))
    log_operation(current, "request", "error", 0.1)
    assert capfd.readouterr() == ("", "")


def test_records_of_other_programs_are_scrubbed_in_place() -> None:
    logger, stream = logging.getLogger("another.program"), io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.addFilter(scrub_record)
    try:
        with enter_operation(operation()):
            try:
                raise ValueError("password=hunter2")
            except ValueError:
                logger.exception("Request failed: %s", QUESTION)
    finally:
        logger.removeHandler(handler)
        logger.removeFilter(scrub_record)
    assert stream.getvalue().startswith(f"Request failed: {query_hash(QUESTION)}\nTraceback")
    assert stream.getvalue().endswith("ValueError: password=[secret]\n")
