"""The watch of a settings file."""

from pathlib import Path

from serve.file_watch import FileWatch, hash_file


def test_a_change_is_reported_once_when_the_content_has_settled(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("answering: {depth: 7}\n")
    watch = FileWatch(file, hash_file(file))
    assert [watch.has_changed(), watch.has_changed()] == [False, False]
    file.write_text("answering:")  # an editor is still writing
    assert not watch.has_changed()
    file.write_text("answering: {depth: 9}\n")
    assert [watch.has_changed(), watch.has_changed(), watch.has_changed()] == [False, True, False]


def test_a_missing_file_is_not_a_change_but_its_return_is(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("answering: {depth: 7}\n")
    watch = FileWatch(file, hash_file(file))
    file.unlink()
    assert not any(watch.has_changed() for _ in range(3))
    file.write_text("answering: {depth: 9}\n")
    assert [watch.has_changed() for _ in range(2)] == [False, True]


def test_a_change_before_the_watch_began_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("answering: {depth: 7}\n")
    digest = hash_file(file)
    file.write_text("answering: {depth: 9}\n")
    watch = FileWatch(file, digest)
    assert [watch.has_changed() for _ in range(2)] == [False, True]
