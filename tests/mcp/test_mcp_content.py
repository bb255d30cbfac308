import base64
import json

import mcp_types as types
import pytest

from replan.mcp.content import tool_output
from replan.messages import Audio, File, Image, Text

PNG = b"\x89PNG" + bytes(400)
PNG64 = base64.b64encode(PNG).decode()


@pytest.fixture
def convert(context):
    def run(content=(), structured=None, *, is_error=False):
        blocks = [types.TextContent(text=block) if isinstance(block, str) else block for block in content]
        result = types.CallToolResult(content=blocks, structured_content=structured, is_error=is_error)
        return tool_output(result, context.keep)

    return run


def texts(output):
    return [part.text for part in output.content if isinstance(part, Text)]


def test_texts_stay_apart_and_in_order(convert):
    assert texts(convert(["a", "b"])) == ["a", "b"]


def test_a_summary_is_followed_by_the_data(convert):
    output = convert(["2 items returned"], {"items": [1, 2]})
    assert texts(output) == ["2 items returned", '{"items":[1,2]}']
    assert output.structured == {"items": [1, 2]}


@pytest.mark.parametrize("indent", [None, 2])
def test_the_same_data_as_text_are_said_once(convert, indent):
    data = {"b": [1, {"c": None}], "a": "é"}
    output = convert([json.dumps(data, indent=indent)], data)
    assert texts(output) == ['{"b":[1,{"c":null}],"a":"é"}']
    assert output.structured == data


@pytest.mark.parametrize(
    ("content", "structured", "shown", "value"),
    [
        (["hello"], {"result": "hello"}, ["hello"], "hello"),
        (["3"], {"result": 3}, ["3"], 3),
        (["3.5"], {"result": 3.5}, ["3.5"], 3.5),
        (["true"], {"result": True}, ["true"], True),
        (["True"], {"result": True}, ["True"], True),
        (["a\nb", "c"], {"result": ["a\nb", "c"]}, ['["a\\nb","c"]'], ["a\nb", "c"]),
        (['{"n": 1}', '{"n": 2}'], {"result": [{"n": 1}, {"n": 2}]}, ['[{"n":1},{"n":2}]'], [{"n": 1}, {"n": 2}]),
        (["[1, 2]"], {"result": [1, 2]}, ["[1,2]"], [1, 2]),
        (["file text"], {"content": "file text"}, ["file text"], {"content": "file text"}),
        (["line\nline"], {"result": "line\nline"}, ["line\nline"], "line\nline"),
    ],
)
def test_a_wrapped_value_is_said_once_and_unwrapped_for_programs(convert, content, structured, shown, value):
    output = convert(content, structured)
    assert texts(output) == shown
    assert output.structured == value


def test_an_empty_list_is_no_empty_result(convert):
    output = convert([], {"result": []})
    assert texts(output) == ["[]"]
    assert output.structured == []


def test_nothing_at_all_gets_a_placeholder(convert):
    assert texts(convert()) == ["(the tool gave no result)"]
    assert texts(convert(["", " \n"])) == ["(the tool gave no result)"]
    failed = convert(is_error=True)
    assert texts(failed) == ["(the tool failed and gave no reason)"]
    assert failed.is_error


def test_an_error_keeps_its_data(convert):
    output = convert(["wrong id"], {"code": 4}, is_error=True)
    assert texts(output) == ["wrong id", '{"code":4}']
    assert output.is_error
    assert output.structured == {"code": 4}


def test_a_lone_json_text_is_read_for_programs(convert):
    assert convert(['{"a": [1]}']).structured == {"a": [1]}
    assert convert([" [1]"]).structured == [1]
    assert convert(["5"]).structured is None
    assert convert(["{a}"]).structured is None
    assert convert(['{"a": 1}', "note"]).structured is None


def test_images_and_audio_are_parts_and_kept(convert, tmp_path):
    image = types.ImageContent(data=PNG64, mime_type="image/png")
    audio = types.AudioContent(data=base64.b64encode(b"riff").decode(), mime_type="audio/wav")
    output = convert(["see", image, audio, "end"])
    see, image_note, picture, audio_note, sound, end = output.content
    assert (see, end) == (Text("see"), Text("end"))
    assert picture == Image("image/png", PNG)
    assert sound == Audio("audio/wav", b"riff")
    assert image_note.text == f"(image of type image/png, 404 bytes, kept as {tmp_path / '0.bin'})"
    assert (tmp_path / "0.bin").read_bytes() == PNG
    assert (tmp_path / "1.bin").read_bytes() == b"riff"
    assert audio_note.text.startswith("(audio of type audio/wav, 4 bytes")


def test_base64_is_never_shown_as_text(convert, tmp_path):
    block = {"type": "image", "data": PNG64, "mimeType": "image/png"}
    image = types.ImageContent(data=PNG64, mime_type="image/png")
    repeated = convert([image], {"content": [block]})
    described = convert([image], {"picture": PNG64, "width": 3})
    alone = convert(["done"], {"shots": [block]})
    for output in (repeated, described, alone):
        assert PNG64[:60] not in "".join(texts(output))
        assert PNG64[:60] not in json.dumps(output.structured)
    assert len(texts(repeated)) == 1
    assert '"width":3' in texts(described)[-1]
    assert "kept as" in texts(alone)[-1]
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [PNG] * 3


def test_a_failed_call_stores_nothing(convert, tmp_path):
    output = convert([types.ImageContent(data=PNG64, mime_type="image/png")], is_error=True)
    assert texts(output) == ["(image of type image/png, 404 bytes)"]
    assert list(tmp_path.iterdir()) == []


def test_bad_base64_is_said_and_not_raised(convert):
    assert texts(convert([types.ImageContent(data="!!", mime_type="image/png")])) == [
        "(image of type image/png whose data are no base64)"
    ]


def test_resources_are_told_in_words_and_blobs_are_kept(convert, tmp_path):
    link = types.ResourceLink(name="report", uri="file:///r.txt", description="The report", mime_type="text/plain")
    text = types.EmbeddedResource(resource=types.TextResourceContents(uri="demo://1", text="body"))
    blob = types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri="demo://2", blob=base64.b64encode(b"zip").decode(), mime_type="application/zip"
        )
    )
    output = convert([link, text, blob])
    assert texts(output) == [
        "(resource file:///r.txt: report, The report, text/plain)",
        "(resource demo://1)\nbody",
        f"(resource demo://2 of type application/zip, 3 bytes, kept as {tmp_path / '0.bin'})",
    ]
    assert output.content[-1] == File("application/zip", "0.bin", url=str(tmp_path / "0.bin"))


def test_parts_for_the_user_alone_are_left_out(convert):
    def say(text, audience):
        return types.TextContent(text=text, annotations=types.Annotations(audience=audience))

    output = convert(
        [say("for you", ["user"]), say("both", ["user", "assistant"]), say("mine", ["assistant"]), say("all", [])]
    )
    assert texts(output) == ["both", "mine", "all"]
    assert texts(convert([say("for you", ["user"])])) == ["(the tool gave no result)"]


def test_meta_is_not_shown(convert):
    assert texts(convert([types.TextContent(text="a", _meta={"secret": "x"})])) == ["a"]


def test_odd_values_become_json(convert):
    output = convert([], {"text": "a\ud800b", "number": float("nan")})
    assert output.structured == {"text": "a\ufffdb", "number": None}
