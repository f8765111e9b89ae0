import pytest

from rag_core.parsing.detection import detect_format
from rag_core.parsing.plain.subtitles import SubtitlesParser
from rag_core.types import Document

TIME = "00:00:01.000 --> 00:00:02.000"


def parse(text: str) -> Document:
    return SubtitlesParser().parse("file:///a.vtt", text.encode())


def vtt(*captions: str) -> str:
    return parse("\n\n".join(["WEBVTT", *(f"{TIME} align:start\n{caption}" for caption in captions)])).text


def test_cues_are_joined_to_paragraphs_by_speaker() -> None:
    text = vtt("<v Ann>The gate", "<v Ann>is <i>open</i>.</v>", "<v.loud Bob>At &lt;nine&gt;?\n<v Ann>Yes.")
    assert text == "Ann: The gate is open.\n\nBob: At <nine>?\n\nAnn: Yes.\n"


def test_header_notes_styles_and_ids_are_left_out() -> None:
    document = parse(
        f"WEBVTT - The gates\nKind: captions\nLanguage: en-GB\n\nSTYLE\n::cue {{ color: red }}\n\nNOTE by\nAnn\n\n"
        f"REGION\nid:a\n\nintro\n{TIME}\nOpen.\n\nNOTE end\n"
    )
    assert (document.title, document.language, document.text) == ("The gates", "en-GB", "Open.\n")


def test_rolling_captions_are_read_once() -> None:
    words = "the<00:00:01.500><c> old</c>"
    assert vtt(words, "the old\nharbour opens", "harbour opens", "harbour opens\nat nine") == (
        "the old harbour opens at nine\n"
    )
    assert vtt("the", "the old", "the old harbour", "theory") == "the old harbour theory\n"


def test_subrip_has_numbers_and_commas_and_text_after_blank_lines() -> None:
    document = parse(
        '1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<font color="red">The gate</font>\r\n\r\n'
        "2\r\n00:00:02,100 --> 00:00:03,000\r\nopens at\r\n\r\nnine.\r\n\r\n3\r\n00:01:00,0 --> 00:01:02,0\r\n12\r\n"
    )
    assert parse("1\n00:01,0 --> 00:02,0\nThe gate\n2\n00:02,0 --> 00:03,0\nopens.").text == "The gate opens.\n"
    assert (document.text, document.media_type) == ("The gate opens at nine.\n\n12\n", "application/x-subrip")


def test_dialogue_and_long_speech_are_divided() -> None:
    assert vtt("- Open?\n- Yes.") == "- Open?\n\n- Yes.\n"
    assert [len(part) for part in vtt(*(f"{number} words end." for number in range(70))).split("\n\n")] == [549, 420]


@pytest.mark.parametrize("uri", ["a.vtt", "a.srt", "a.txt", "a"])
@pytest.mark.parametrize("body", [f"WEBVTT\n\n{TIME}\nx", "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nx\r\n"])
def test_subtitles_are_detected_by_their_content(uri: str, body: str) -> None:
    assert detect_format(uri, body.encode()) == "subtitles"


@pytest.mark.parametrize("body", ["WEBVTT is a format.", "1\n2\n3", "WEBVTTs\n", "12:30 --> 13:00"])
def test_other_texts_are_not_subtitles(body: str) -> None:
    assert detect_format("a.txt", body.encode()) == "text"
