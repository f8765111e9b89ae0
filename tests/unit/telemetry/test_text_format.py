from rag_core.telemetry.metrics import Metric
from rag_core.telemetry.text_format import format_metrics

SIZE = Metric(name="size_bytes", kind="gauge", labels=("file",), help="Size of a file.")


def test_a_sample_is_a_line_below_the_description_of_its_metric() -> None:
    assert format_metrics({SIZE: [({"file": "a"}, 1), ({"file": "b"}, 0.5)]}) == (
        "# HELP size_bytes Size of a file.\n# TYPE size_bytes gauge\n"
        'size_bytes{file="a"} 1.0\nsize_bytes{file="b"} 0.5\n'
    )


def test_values_of_labels_are_escaped() -> None:
    text = format_metrics({SIZE: [({"file": 'a "b"\\c\nd'}, 1)]})
    assert text.endswith('size_bytes{file="a \\"b\\"\\\\c\\nd"} 1.0\n')
