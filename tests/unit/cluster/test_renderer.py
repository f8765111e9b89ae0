"""The renderer of the checks does what Helm's documentation says of its template functions."""

import subprocess
from pathlib import Path

import pytest
import yaml
from charts import render_example

from tools.render_chart import build_renderer

TEMPLATE = """\
{{- define "greeting" }}hello {{ .name }}{{ end -}}
release: {{ .Release.Name }}/{{ .Release.Namespace }}/{{ .Release.Service }}
chart: {{ .Chart.Name }}-{{ .Chart.Version }}-{{ index .Chart.Annotations "example/key" }}
included: {{ include "greeting" (dict "name" "ray") | upper }}
templated: {{ tpl .Values.text . }}
missing: "{{ .Values.nothing }}"
number: {{ .Values.number }}
nested: {{- toYaml .Values.nested | nindent 2 }}
parsed: {{ (fromYaml "a: [1, 2]").a | toJson }}
file: {{ .Files.Get "data/one.txt" | trim | quote }}
files: {{ len (.Files.Glob "data/*.txt") }}
config: {{- (.Files.Glob "data/*.txt").AsConfig | nindent 2 }}
found: {{ lookup "v1" "Secret" "rag" "none" | empty }}
policy: {{ .Capabilities.APIVersions.Has "policy/v1" }}
required: {{ required "value is required" .Values.number }}
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart whose data folder is a link, as the alerting rules of the project's chart are."""
    render_example("default")  # skips without Go
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.txt").write_text("one\n")
    (tmp_path / "data" / "two.txt").write_text("two {{ .Values.number }}\n")
    folder = tmp_path / "chart"
    (folder / "templates").mkdir(parents=True)
    (folder / "data").symlink_to(tmp_path / "data")
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: small, version: 1.2.3, annotations: {example/key: x}}")
    (folder / "templates" / "all.yaml").write_text(TEMPLATE)
    (folder / "templates" / "NOTES.txt").write_text("Thank you for {{ .Chart.Name }}.")
    return folder


def run(
    chart: Path, *options: str, values: str = '{"number": 3, "text": "{{ .Release.Name }}", "nested": {"a": [1]}}'
) -> "subprocess.CompletedProcess[str]":
    command = [str(build_renderer()), *options, str(chart), "demo", "rag"]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def test_functions_and_objects_are_those_of_helm(chart: Path) -> None:
    assert yaml.safe_load(run(chart).stdout) == {
        "release": "demo/rag/Helm",
        "chart": "small-1.2.3-x",
        "included": "HELLO RAY",
        "templated": "demo",
        "missing": "",
        "number": 3,
        "nested": {"a": [1]},
        "parsed": [1, 2],
        "file": "one",
        "files": 2,
        "config": {"one.txt": "one\n", "two.txt": "two {{ .Values.number }}\n"},
        "found": True,
        "policy": True,
        "required": 3,
    }


def test_large_numbers_become_floats_as_in_helm(chart: Path) -> None:
    """A template must convert them with `int`."""
    values = '{"number": 10000000, "text": "", "nested": {}}'
    assert "number: 1e+07" in run(chart, values=values).stdout


def test_notes_are_printed_on_request_only(chart: Path) -> None:
    assert run(chart, "--show-notes").stdout == "Thank you for small.\n"
    assert "Thank you" not in run(chart).stdout


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ('{{ required "value is required" .Values.nothing }}', "value is required"),
        ('{{ fail "two values contradict" }}', "two values contradict"),
        ("{{ unknown }}", 'function "unknown" not defined'),
        ('{{ env "HOME" }}', 'function "env" not defined'),
        ('{{ define "loop" }}{{ include "loop" . }}{{ end }}{{ include "loop" . }}', "template loop includes itself"),
    ],
)
def test_a_template_that_fails_says_why(chart: Path, template: str, message: str) -> None:
    (chart / "templates" / "all.yaml").write_text(template)
    process = run(chart)
    assert process.returncode == 1
    assert message in process.stderr


def test_a_link_to_nothing_is_an_error_as_in_helm(chart: Path) -> None:
    (chart / "broken").symlink_to(chart / "nowhere")
    assert run(chart).returncode == 1
