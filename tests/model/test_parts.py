"""Images, documents and audio: where they come from, what is refused, and the text that takes their place."""

from __future__ import annotations

import base64
import io
import pickle
import wave
from pathlib import Path
from typing import Any, cast

import pandas as pd
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model import messages as message_json
from agentlab.model import parts
from agentlab.testing import ScriptedProvider


def picture(kind: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    PIL.Image.new(mode, size, 0).save(buffer, format=kind)
    return buffer.getvalue()


def sound() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(b"\0\0" * 800)
    return buffer.getvalue()


PDF = b"%PDF-1.7\n1 0 obj\n"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_type_and_dimensions_are_those_that_pillow_reads(kind: str) -> None:
    image = lab.Image(picture(kind, (123, 45)))
    assert (image.media_type, image.width, image.height) == (f"image/{kind.lower()}", 123, 45)


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 50, "exif": b"Exif\0\0MM\0*"}], ids=["VP8L", "VP8X"])
def test_every_kind_of_webp(options: dict[str, object]) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGBA", (31, 17), (1, 2, 3, 4)).save(buffer, format="WEBP", **options)
    assert (lab.Image(buffer.getvalue()).width, lab.Image(buffer.getvalue()).height) == (31, 17)


def test_a_path_a_name_and_the_suffix_that_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "map.jpg").write_bytes(picture())
    (tmp_path / "report").write_bytes(PDF)
    (tmp_path / "said.bin").write_bytes(sound())
    assert lab.Image(tmp_path / "map.jpg").text == f"[image png 64x48, {len(picture())} B]"
    assert lab.Document(str(tmp_path / "report")).text == "[pdf report, 17 B]"
    assert lab.Audio(tmp_path / "said.bin").text == "[audio wav said.bin, 2 kB]"
    assert lab.Document(PDF, name="of May.pdf").name == "of May.pdf"


def test_an_image_of_pillow_and_a_figure() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    for source in (PIL.Image.new("CMYK", (8, 9)), PIL.Image.new("P", (8, 9)), figure):
        image = lab.Image(source)
        assert image.media_type == "image/png"
        PIL.Image.open(io.BytesIO(image.data)).load()
    assert lab.Image(figure).sha256 == lab.Image(figure).sha256
    assert lab.Image(figure.axes[0]) == lab.Image(figure)  # as pandas' plots return them


def test_a_data_uri_and_a_url_which_is_not_fetched() -> None:
    assert lab.Image("data:image/png;base64," + base64.b64encode(picture()).decode()) == lab.Image(picture())
    there = lab.Image("https://user:secret@example.com/a.png?api_key=abc")
    assert (there.data, there.media_type) == (b"", "")
    assert "secret" not in repr(there)
    assert lab.Document("https://example.com/a", media_type="application/pdf").format == "pdf"


BAD = {
    "empty": (lambda: lab.Image(b""), "it is empty"),
    "text": (lambda: lab.Image(b"hello"), "this is text, not image/png, image/jpeg, image/gif or image/webp"),
    "noise": (lambda: lab.Audio(b"\x80\x81\0"), "of an unknown type"),
    "tiff": (lambda: lab.Image(picture("TIFF")), "Convert it with Pillow"),
    "bmp": (lambda: lab.Image(picture("BMP")), "image/bmp"),
    "svg": (lambda: lab.Image(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "an SVG"),
    "pdf as image": (lambda: lab.Image(PDF), "Use lab.Document"),
    "image as pdf": (lambda: lab.Document(picture()), "Use lab.Image"),
    "docx": (lambda: lab.Document(b"PK\x03\x04more"), "a zip file, such as docx or xlsx, not application/pdf"),
    "no such file": (lambda: lab.Image("not/there.png"), "'not/there.png'.: there is no such file in /"),
    "another URL": (lambda: lab.Image("file:///not/there.png"), "Of URLs, only http and https are sent; other files need a path"),
    "a folder": (lambda: lab.Image("/"), "cannot be read: Is a directory"),
    "no path": (lambda: lab.Image(""), r"lab\.Image\(''\): pass bytes, a path, a URL"),
    "base64": (lambda: lab.Image("iVBO" * 500), r"File name too long\. For base64, pass the bytes: base64\.b64decode"),
    "another object": (lambda: lab.Image(5), "pass bytes, a path, a URL, a PIL image or a matplotlib figure"),
    "broken data uri": (lambda: lab.Image("data:image/png;base64,%%"), "not base64"),
    "other media type": (lambda: lab.Image(picture(), media_type="image/gif"), "its bytes are image/png"),
    "no media type": (lambda: lab.Image(picture(), media_type="png"), "use image/png"),
    "cache": (lambda: lab.Image(picture(), cache_control="2h"), "pass '5m' or '1h'"),
    "too large": (
        lambda: lab.Document(PDF + b" " * parts.MAX_BYTES),
        r"\(100,000,017 bytes\): 100,000,017 bytes are too much: no provider",
    ),
    "bytes in a prompt": (lambda: lab.Message("user", ["see", b"abc"]), "use lab.Image, lab.Document or lab.Audio"),
    "not a list": (lambda: lab.Message("user", cast(Any, 5)), "neither text nor a list"),
}


@pytest.mark.parametrize(("make", "says"), BAD.values(), ids=BAD)
def test_anything_else_is_refused_and_named(make: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()  # type: ignore[operator]


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "long.pdf").open("wb") as file:
        file.truncate(parts.MAX_BYTES + 1)
    with pytest.raises(ConfigurationError, match=r"^lab\.Document\('[^':]*long\.pdf'\): 100,000,001 bytes are too much: no"):
        lab.Document(tmp_path / "long.pdf")


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    for kind in parts.KINDS.values():
        try:
            made = kind(data)
        except ConfigurationError:
            continue
        assert made.media_type in kind.accepts


@given(st.lists(st.one_of(st.text("ab\n[]", min_size=1).filter(str.strip), st.sampled_from([1, 2])), min_size=1, max_size=6))
def test_parts_return_to_their_places(items: list[object]) -> None:
    content = [lab.Image(picture(size=(int(item), 5))) if isinstance(item, int) else item for item in items]
    message = lab.Message("user", content)
    assert [piece for piece in message.pieces if not isinstance(piece, str)] == [
        one for one in content if not isinstance(one, str)
    ]
    texts = [
        text.strip("\n") for text in "\n".join(piece if isinstance(piece, str) else "\0" for piece in message.pieces).split("\0")
    ]
    given_texts = "\n".join(one if isinstance(one, str) else "\0" for one in content).split("\0")
    assert texts == [text.strip("\n") for text in given_texts]


STATIONS = pd.DataFrame({"city": ["Graz", "St. Pölten | Hbf"], "opened": pd.to_datetime(["1844-10-21", "1858-12-15"])})
TABLES: dict[str, tuple[Any, list[str]]] = {
    "numbered rows": (
        STATIONS,
        [
            "| city | opened |",
            "| --- | --- |",
            "| Graz | 1844-10-21 00:00:00 |",
            "| St. Pölten \\| Hbf | 1858-12-15 00:00:00 |",
        ],
    ),
    "an index": (
        pd.DataFrame({"t": [1 / 3, None]}, index=pd.Index(["Graz", "a\nb"], name="city")),
        ["| city | t |", "| --- | --- |", "| Graz | 0.3333333333333333 |", "| a b | nan |"],
    ),
    "numbers that mean something": (
        pd.DataFrame({"n": [7, 8]}, index=pd.RangeIndex(2020, 2022, name="year")),
        ["| year | n |", "| --- | --- |", "| 2020 | 7 |", "| 2021 | 8 |"],
    ),
    "the last rows": (pd.DataFrame({"n": [7, 8]}).tail(1), ["|  | n |", "| --- | --- |", "| 1 | 8 |"]),
    "two levels": (
        pd.DataFrame({"n": [1, 2], "m": [3, 4]}).set_index(["n", "m"]).assign(x="y"),
        ["| n | m | x |", "| --- | --- | --- |", "| 1 | 3 | y |", "| 2 | 4 | y |"],
    ),
    "a Series": (pd.Series([1, 2], name="t"), ["| t |", "| --- |", "| 1 |", "| 2 |"]),
    "no rows": (pd.DataFrame({"a": []}), ["| a |", "| --- |"]),
}


@pytest.mark.parametrize(("frame", "lines"), TABLES.values(), ids=TABLES)
def test_a_frame_is_a_table(frame: Any, lines: list[str]) -> None:
    assert parts.as_content(frame) == ("\n".join(lines), ())
    message = lab.Message("user", ["Which?", frame, "Name it."])
    assert message.text == "\n".join(["Which?", *lines, "", "Name it."])


def test_a_long_frame_is_cut_and_says_so() -> None:
    table = parts.as_table(pd.DataFrame({"n": range(parts.MOST_ROWS)}))
    assert table is not None
    assert table.splitlines()[-1] == f"| {parts.MOST_ROWS - 1} |"
    longer = parts.as_table(pd.DataFrame({"n": range(parts.MOST_ROWS + 1)}))
    assert longer == f"{table}\n\nLeft out: 1 more row."


def test_an_edit_of_the_text_keeps_the_parts_whose_line_it_has() -> None:
    first, second = lab.Image(picture()), lab.Image(picture(size=(2, 2)))
    agent = lab.Agent(ScriptedProvider(["A square.", "Another."]))
    run = agent.run(["What are", first, "and", second])
    assert run.prompt == f"What are\n{first.text}\nand\n{second.text}"
    (message,) = run.fork(at=0, prompt=f"Only this: {second.text}!").messages
    assert message.pieces == ["Only this: ", second, "!"]
    assert message.parts == (second,), "the others are not sent"
    (message,) = run.fork(at=0, prompt=["New", first]).messages
    assert message.parts == (first,)


@pytest.mark.parametrize("prompt", ["", [], [" "], 5, None, b"x"])
def test_an_empty_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(ConfigurationError, match="pass the task as text, or as a list"):
        lab.Agent(ScriptedProvider(["?"])).run(cast(Any, prompt))


def test_equal_bytes_are_kept_once_and_never_shown() -> None:
    data = picture()
    one, other = lab.Image(bytes(data)), lab.Image(io.BytesIO(data).read())
    assert one.data is other.data
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(one)).data == data
    message = lab.Message("user", ["See", one])
    assert str(data)[2:30] not in repr(message)
    assert one.base64[:20] not in repr(message)


def test_the_json_of_a_message_refers_to_the_bytes_or_contains_them() -> None:
    image = lab.Image(picture(size=(77, 3)), cache_control="1h", name="a.png")
    result = lab.ToolResult("1", "look", ["Here", image])
    message = lab.Message("tool", tool_results=(result,))
    assert message_json.decode(message_json.encode(message)) == message
    stored = message_json.plain(message)
    assert image.base64 not in str(stored)
    assert message_json.made(stored) == message
    assert message_json.made(stored).tool_results[0].parts[0].data is image.data
    text = image.text
    parts._held.clear()  # as in another process
    forgotten = message_json.made(stored).tool_results[0].parts[0]
    with pytest.raises(ConfigurationError, match="are not stored here"):
        _ = forgotten.data
    assert forgotten.text == text
