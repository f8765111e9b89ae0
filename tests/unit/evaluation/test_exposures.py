import json
from dataclasses import asdict
from pathlib import Path

import pytest
from commands import rag_in_process

from rag_core.answering.split import Experiment
from rag_core.errors import DatasetError
from rag_core.evaluation.experiments import Observation
from rag_core.evaluation.exposures import ExposureFile, read_observations
from rag_core.storage.exposures import Exposure

EXPOSURE = Exposure(experiment="x", variant="control", bucket=7, conversation="c1", seconds=0.5)


def test_a_file_holds_what_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "exposures.jsonl"
    record = ExposureFile(file)
    record(EXPOSURE)
    record(Exposure(**{**asdict(EXPOSURE), "experiment": "y"}))
    assert list(read_observations([file], "x")) == [Observation(exposure=EXPOSURE)]


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"experiment": "x"}', '{"variant": "both"}'])
def test_a_line_that_is_not_an_exposure_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "exposures.jsonl"
    ExposureFile(file)(EXPOSURE)
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(DatasetError, match=r"exposures.jsonl:2: a line must be an exposure: "):
        list(read_observations([file], "x"))


def test_the_command_reports_on_one_experiment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "exposures.jsonl"
    experiment = Experiment(name="x")
    lines = []
    for i in range(2_000):
        bucket = experiment.bucket("t", str(i))
        exposure = Exposure(experiment="x", variant=experiment.variant(bucket), bucket=bucket, conversation=str(i))
        quality = 0.7 if exposure.variant == "treatment" else 0.6
        lines.append(asdict(exposure) | {"quality": quality + 0.001 * (i % 100)})
    file.write_text("".join(f"{line}\n" for line in map(json.dumps, lines)))

    rag = rag_in_process(capfd)
    report = rag("experiment", "x", file, "--json").json
    assert report["control"] + report["treatment"] == 2_000
    assert report["difference"]["mean"] == pytest.approx(0.1, abs=0.01)
    assert rag("experiment", "x", file).out.splitlines()[-1] == report["recommendation"]
    assert report["recommendation"].startswith("Adopt the treatment")
    assert rag("experiment", "y", file).code == 2


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "exposures.parquet"
    file.write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(DatasetError, match=r"exposures.parquet must be exposures as JSON lines in UTF-8"):
        list(read_observations([file], "x"))
