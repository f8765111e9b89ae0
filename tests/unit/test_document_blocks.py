import os
from pathlib import Path

import pytest
from commands import Ran
from documents import Reader, assert_prints, check_shell, read_blocks, unknown_blocks

MARKED = "<!-- not run: needs a GPU -->\n\n```sh\nrag serve --port 8000 &\n```\n"


def test_a_console_block_has_commands_with_what_they_print() -> None:
    (block,) = read_blocks("text\n\n```console\n$ echo a \\\n    b\na b\n$ true\n$ echo c\nc\n…\n```\n")
    assert block.line == 3
    assert block.commands == [("echo a \\\n    b", "a b\n"), ("true", ""), ("echo c", "c\n…\n")]


def test_a_text_block_is_the_output_of_the_program_above() -> None:
    (block,) = read_blocks("- item\n\n  ```py\n  print(1)\n  ```\n\n  prints\n\n  ```text\n  1\n  ```\n")
    assert (block.language, block.text, block.printed) == ("py", "print(1)\n", "1\n")


def test_a_block_is_not_run_if_a_comment_before_it_gives_the_reason(tmp_path: Path) -> None:
    marked, unmarked = read_blocks(MARKED + "\n```sh\ntrue\n```\n")
    assert (marked.reason, unmarked.reason) == ("needs a GPU", "")
    Reader(tmp_path).follow("<!-- not run: a picture -->\n```\na ──▶ b\n```\n")


def test_a_block_that_is_neither_run_nor_marked_fails(tmp_path: Path) -> None:
    document = "```json\n{}\n```\n\n```text\na\n```\n\n```mermaid\ngraph\n```\n\n```sql\n-- a.sql\nselect 1\n```\n"
    assert [block.language for block in unknown_blocks(read_blocks(document))] == ["json", "text"]
    with pytest.raises(AssertionError, match="neither run nor marked"):
        Reader(tmp_path).follow(document)
    with pytest.raises(AssertionError, match="indented code"):
        read_blocks("text\n\n    rag search\n")


def test_a_block_with_a_file_name_is_written_to_this_file(tmp_path: Path) -> None:
    program = "```python\n# acme/numbers.py\nN = 2\n```\n\n```py\nfrom acme.numbers import N\nprint(N)\n```\n"
    Reader(tmp_path).follow(f"{program}\n```text\n2\n```\n")
    assert (tmp_path / "acme" / "numbers.py").read_text() == "# acme/numbers.py\nN = 2\n"


@pytest.mark.slow
def test_every_block_runs_and_must_print_what_is_shown(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"WHO": "us"}, {"8000": "8111"})
    reader.follow("```sh\necho port 8000, $WHO > f\n```\n\n```console\n$ cat f\nport 8000, …\n```\n")
    assert (tmp_path / "f").read_text() == "port 8111, us\n"
    reader.follow("```sh\nexport WHOM='you'\n```\n\n```console\n$ echo $WHOM\nyou\n```\n")
    reader.follow("```console\n$ rag config show --profile none\nerror: …none…\n```\n")
    with pytest.raises(AssertionError, match="exit code 0"):
        reader.follow("```console\n$ echo error: none\nerror: none\n```\n")
    with pytest.raises(AssertionError, match="should print: b"):
        reader.follow("```console\n$ echo a\nb\n```\n")
    with pytest.raises(AssertionError, match="exit code 3"):
        reader.follow("```sh\n(exit 3)\ntrue\n```\n")
    with pytest.raises(AssertionError, match="exit code 2"):
        reader.follow("```yaml\nchunking: {tokns: 3}\n```\n")


def test_shown_lines_are_in_the_output_in_the_same_order() -> None:
    assert_prints("", "a  1.23 s\n…\nc…e", "a 9.87 s\nb\nc d e\n")
    with pytest.raises(AssertionError, match="should print: a"):
        assert_prints("", "b\na", "a\nb\n")


def test_commands_that_are_not_run_must_exist_with_their_options() -> None:
    check_shell("rag jobs list --json | jq .\nray start --head\nrag ingest s3://bucket/docs \\\n  --yes")
    with pytest.raises(Exception, match="No such option"):
        check_shell("rag search question --dept 3")
    with pytest.raises(Exception, match="No such command"):
        check_shell("rag jobs lost")


@pytest.mark.slow
def test_rag_runs_in_this_process_unless_it_needs_a_shell(tmp_path: Path) -> None:
    calls: list[tuple[tuple[object, ...], Path, str | None]] = []

    def rag(*arguments: object) -> Ran:
        calls.append((arguments, Path.cwd(), os.environ.get("RAG_HOME")))
        return Ran(0, "here\n", "")

    reader = Reader(tmp_path, {"RAG_HOME": "/h"}, rag=rag)
    reader.follow("```console\n$ rag search 'one; two?' \\\n    -k 1\nhere\n$ rag --help | head -3\nUsage\n```\n")
    assert calls == [(("search", "one; two?", "-k", "1"), tmp_path, "/h")]
