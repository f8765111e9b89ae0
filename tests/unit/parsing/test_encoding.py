import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import DocumentError
from rag_core.parsing.document import parse
from rag_core.parsing.encoding import decode_text, guess_encoding, record_doubtful_guesses
from rag_core.parsing.flags import with_flags

GERMAN = "Füße und Äpfel: das Mädchen läuft über die Straße zum Bäcker, weil es schön ist. "

SENTENCES = {
    "Arabic": "سيعقد الاجتماع صباح الغد في مبنى البلدية ويمكن للجميع طرح الأسئلة على الرئيس.",
    "Bulgarian": "Събранието ще се проведе утре сутринта в общината и всеки може да зададе своя въпрос.",
    "Catalan": "La reunió se celebrarà demà al matí a l'ajuntament, i tothom podrà fer preguntes al regidor.",
    "Croatian": "Sastanak će se održati sutra ujutro u gradskoj vijećnici, gdje svatko može postaviti pitanje.",
    "Czech": "Schůze se bude konat zítra ráno na městském úřadě a každý může položit otázku.",
    "Danish": "Mødet blev afholdt på rådhuset, hvor borgmesteren åbnede den nye udstilling om øernes historie.",
    "Dutch": "De financiële coördinatie tussen België en de geïnteresseerde landen is één van de beste ideeën.",
    "Finnish": "Kokous pidetään huomenna kaupungintalolla, ja jokainen saa esittää kysymyksiä pormestarille.",
    "French": "La réunion a été reportée à l'après-midi, parce que le président n'était pas arrivé à l'heure.",
    "Greek": "Η συνεδρίαση θα γίνει αύριο το πρωί στο δημαρχείο και είναι ανοιχτή για όλους τους κατοίκους.",
    "Hebrew": "הישיבה תתקיים מחר בבוקר בבניין העירייה וכל אחד יכול לשאול שאלות.",
    "Hungarian": "Az ülést holnap reggel tartják a városházán, és bárki felteheti a kérdését a polgármesternek.",
    "Italian": "Però la città è più bella così, perché nessuno può più entrare con l'automobile nel centro.",
    "Japanese": "会議は明日の午前中に市役所で開かれます。参加を希望する方は、受付でお名前をお知らせください。",
    "Korean": "회의는 내일 오전에 시청에서 열립니다. 참가를 원하시는 분은 접수처에 이름을 알려 주십시오.",
    "Lithuanian": "Susirinkimas vyks rytoj ryte savivaldybėje, ir kiekvienas galės užduoti klausimą merui.",
    "Polish": "Zebranie odbędzie się jutro w urzędzie, gdzie każdy może zgłosić własną propozycję i zadać pytanie.",
    "Portuguese": "A reunião não será realizada amanhã, porque a direção também está à espera de informações.",
    "Russian": "Собрание состоится завтра утром в городской администрации, и каждый сможет задать свой вопрос.",
    "Simplified Chinese": "会议将于明天上午在市政府举行，所有希望参加的人请在门口登记自己的姓名。",
    "Spanish": "La reunión se celebró en el salón del año pasado, porque el niño también quería más información.",
    "Swedish": "Mötet hölls på rådhuset, där borgmästaren öppnade den nya utställningen om öarnas historia.",
    "Thai": "การประชุมจะจัดขึ้นในวันพรุ่งนี้ตอนเช้าที่ศาลากลางและทุกคนสามารถถามคำถามได้",
    "Traditional Chinese": "會議將於明天上午在市政府舉行，所有希望參加的人請在門口登記自己的姓名。",
    "Turkish": "Toplantı yarın sabah belediye binasında yapılacak ve isteyen herkes başkana soru sorabilecek.",
    "Ukrainian": "Збори відбудуться завтра вранці в міській раді, і кожен зможе поставити своє запитання.",
}
LATIN_1, LATIN_2 = ("iso8859-1", "cp1252"), ("iso8859-2", "cp1250")
ENCODINGS = {
    **dict.fromkeys(("Catalan", "Danish", "Dutch", "Finnish", "French"), LATIN_1),
    **dict.fromkeys(("Italian", "Portuguese", "Spanish", "Swedish"), LATIN_1),
    **dict.fromkeys(("Croatian", "Czech", "Hungarian", "Polish"), LATIN_2),
    **{"Arabic": ("iso8859-6", "cp1256"), "Greek": ("iso8859-7", "cp1253"), "Hebrew": ("iso8859-8", "cp1255")},
    **{"Bulgarian": ("iso8859-5", "cp1251"), "Russian": ("iso8859-5", "cp1251", "koi8-r", "cp866")},
    **{"Japanese": ("shift_jis", "euc_jp", "iso2022_jp"), "Korean": ("euc_kr", "cp949", "iso2022_kr")},
    **{"Lithuanian": ("cp1257", "iso8859-13"), "Thai": ("cp874",), "Turkish": ("iso8859-9", "cp1254")},
    **{"Simplified Chinese": ("gb18030", "gb2312"), "Traditional Chinese": ("big5",)},
    "Ukrainian": ("iso8859-5", "cp1251", "koi8-u"),
}
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize(
    ("language", "encoding"),
    [(language, encoding) for language in SENTENCES for encoding in (*ENCODINGS[language], *WIDE)],
)
def test_an_undeclared_sentence_is_decoded_as_it_was_written(language: str, encoding: str) -> None:
    sentence = SENTENCES[language]
    assert decode_text(sentence.encode(encoding)) == sentence


@pytest.mark.parametrize(
    ("language", "encoding"), [(language, encoding) for language in SENTENCES for encoding in ENCODINGS[language]]
)
def test_a_page_is_decoded_without_a_doubt(language: str, encoding: str) -> None:
    page = "Chapter 1\n" + f"{SENTENCES[language]}\n" * 20
    with record_doubtful_guesses() as doubtful:
        assert decode_text(page.encode(encoding)) == page
    assert doubtful == []


def test_vietnamese_letters_are_composed() -> None:
    assert decode_text(
        "Cuô\u0323c ho\u0323p se\u0303 đươ\u0323c tô\u0309 chư\u0301c va\u0300o sa\u0301ng mai.".encode("cp1258")
    ) == ("Cuộc họp sẽ được tổ chức vào sáng mai.")


def test_ascii_lines_before_the_first_letter_do_not_count() -> None:
    body = b"License text.\n" * 10_000 + (SENTENCES["Polish"] + "\n").encode("iso8859-2")
    assert guess_encoding(body).encoding == "iso8859_2"


def test_a_guess_with_a_small_lead_flags_the_document() -> None:
    document = parse("a.txt", "Sastanak će se održati sutra.".encode("cp1250"), True, 1.0, 1.0)
    assert document.metadata["flags"] == ["encoding-uncertain"]
    assert with_flags(document, ["macros"]).metadata["flags"] == ["encoding-uncertain", "macros"]


def test_a_clear_guess_and_a_declared_charset_flag_no_document() -> None:
    sentence = SENTENCES["Danish"].encode("latin-1")
    page = b'<html><meta charset="iso-8859-2"><p>' + "Sastanak će se održati sutra.".encode("iso8859-2")
    assert "flags" not in parse("a.txt", sentence, True, 1.0, 1.0).metadata
    assert "flags" not in parse("a.html", page, True, 1.0, 1.0).metadata


@pytest.mark.parametrize(
    "body", [bytes(range(256)) * 8, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\2\0\x08\6", b"\0" * 64]
)
def test_binary_content_is_not_text_in_a_wide_encoding(body: bytes) -> None:
    with pytest.raises(DocumentError, match=r"unsupported|empty"):
        parse("a.txt", body, True, 1.0, 1.0)


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (b"", "utf-8"),
        (b"", "latin-1"),
    ],
)
def test_text_is_decoded_as_it_was_written(mark: bytes, encoding: str) -> None:
    assert decode_text(mark + GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Привет, мир! Это русский текст для проверки кодировки. "),
        ("cp932", "日本語のテキストです。これは文字コードの判定のためのものです。"),
    ],
)
def test_other_scripts_are_guessed(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding)) == text


def test_a_declared_charset_is_used_if_the_bytes_are_not_utf8() -> None:
    assert decode_text("Łódź".encode("iso-8859-2"), "ISO-8859-2") == "Łódź"
    assert decode_text("100 €".encode("cp1252"), "latin-1") == "100 €"
    assert decode_text("Łódź".encode(), "iso-8859-2") == "Łódź"


@pytest.mark.parametrize("declared", ["utf-7", "rot13", "no-such-charset", "raw_unicode_escape", "\0"])
def test_an_unknown_declared_charset_is_ignored(declared: str) -> None:
    assert decode_text(GERMAN.encode("latin-1"), declared) == GERMAN


def test_utf8_with_one_broken_byte_stays_utf8() -> None:
    assert decode_text((GERMAN * 3).encode() + b"\xff") == GERMAN * 3 + "\ufffd"


def test_lines_end_in_newlines_and_nuls_are_gone() -> None:
    assert decode_text(b"a\r\nb\rc\nd\0e") == "a\nb\nc\nde"


@given(st.binary(max_size=200), st.sampled_from(["", "utf-7", "utf-16", "shift_jis", "latin-1"]))
def test_any_bytes_become_text_that_can_be_stored(body: bytes, declared: str) -> None:
    text = decode_text(body, declared)
    text.encode()
    assert not {"\0", "\r"} & set(text)


@pytest.mark.parametrize(
    "text",
    [
        *("£5", "20 °C", "it’s", "© 2024 Example Ltd.", "5 µm", "±3 %", "§ 5 BGB", "€ 20", "20 €", "5×7", "½ cup"),
        *("Zürich", "Résumé", "São Paulo", "El Niño", "name,price\nApple,£5\nPear,£6\n"),
    ],
)
def test_a_few_western_characters_are_enough(text: str) -> None:
    assert decode_text(text.encode("cp1252"), "") == text


@pytest.mark.parametrize(("text", "encoding"), [("Łódź", "cp1250"), ("Москва", "cp1251"), ("東京", "cp932")])
def test_a_word_in_another_script_or_with_its_own_letters_is_enough(text: str, encoding: str) -> None:
    assert decode_text(text.encode(encoding), "") == text
