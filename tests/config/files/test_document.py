"""Config files are read leniently where the emulator is lenient, and every node knows its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.files.document import Node, parse_json, parse_yaml, read_document
from config.files.mistakes import ConfigError, ConfigReport


def plain(node: Node):
    """The document without its places."""
    if isinstance(node.value, dict):
        return {key: plain(member) for key, member in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def places(node: Node):
    """Path and line of every node but the root."""
    children = node.value
    if isinstance(children, dict):
        children = list(children.values())
    for child in children if isinstance(children, list) else ():
        yield child.where, child.line
        yield from places(child)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 0, 2]))
def test_every_json_document_means_what_json_says(document, indent):
    """Leniency adds to JSON, it changes nothing."""
    assert document == plain(parse_json(json.dumps(document, indent=indent), "f"))


def test_comments_and_trailing_commas_are_overlooked():
    """As the emulator's own default file has them."""
    text = """
    // the whole file
    { /* several
         lines */
      "a": [1, 2,], // not "here"
      "b": "// stays /* as it is */",
    }
    """
    assert {"a": [1, 2], "b": "// stays /* as it is */"} == plain(parse_json(text, "f"))


def test_json_nodes_know_their_lines():
    """The line of a value in a mapping is that of its name, also after a comment of several
    lines."""
    text = '{\n  "a": {\n    /* \n */ "b.c": [\n 1,\n 2]\n  }\n}'
    expected = [("a", 2), ('a["b.c"]', 4), ('a["b.c"][0]', 5), ('a["b.c"][1]', 6)]
    assert expected == list(places(parse_json(text, "f")))


def test_yaml_nodes_know_their_lines():
    """The line of a value in a mapping is that of its name, also if the value begins on the next
    line."""
    text = "a:\n  b.c:\n    - 1\n    - 2\n"
    expected = [("a", 1), ('a["b.c"]', 2), ('a["b.c"][0]', 3), ('a["b.c"][1]', 4)]
    assert expected == list(places(parse_yaml(text, "f")))


def test_yaml_keys_are_names_and_dates_are_text():
    """A queue may be called 1 or yes, and nothing in a config file is a date."""
    text = "1: yes\nno: 2024-01-01\n2024-01-01: 1.5\n"
    assert {"1": True, "no": "2024-01-01", "2024-01-01": 1.5} == plain(parse_yaml(text, "f"))


def test_yaml_anchors_may_be_merged_more_than_once():
    """Shared properties are written once; what a mapping says itself goes first."""
    text = "base: &base {a: 1, b: 1}\nx: &x {<<: *base, b: 2}\ny: {<<: *x, c: 3}\nz: *x\n"
    document = plain(parse_yaml(text, "f"))
    assert {"a": 1, "b": 2} == document["x"] == document["z"]
    assert {"a": 1, "b": 2, "c": 3} == document["y"]


def test_a_text_like_a_date_that_does_not_exist_is_text():
    """The YAML library cannot make a date of it."""
    assert {"a": "2026-02-30", "b": "x"} == plain(
        parse_yaml("{a: 2026-02-30, b: !!timestamp x}", "f")
    )


@pytest.mark.parametrize("template", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_cannot_stand_for_billions_of_values(template):
    """Ten lines of ten aliases each would take all memory."""
    lines = ["a0: &a0 {b: 1}"] + [
        f"a{n}: &a{n} " + template.format(",".join([f"*a{n - 1}"] * 10)) for n in range(1, 11)
    ]
    with pytest.raises(ConfigError, match="aliases repeat too many values"):
        parse_yaml("\n".join(lines), "f")


def test_an_empty_file_is_nothing():
    """Not an error in itself: a broker without entities is allowed."""
    assert parse_yaml("# only a comment\n", "f").value is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("f:2: not valid JSON: expected a value, found '}'", '{"a":\n}'),
        ('f:1: not valid JSON: expected "," or "}", found \'"b"\'', '{"a": 1 "b": 2}'),
        ('f:1: not valid JSON: expected "," or "]", found \'2\'', "[1 2]"),
        ('f:1: not valid JSON: expected ":" after "a", found \'}\'', '{"a"}'),
        ("f:1: not valid JSON: expected a name in double quotes or \"}\", found 'a'", "{a: 1}"),
        ("f:1: not valid JSON: expected a value, found 'True'", '{"a": True}'),
        ('f:1: not valid JSON: expected a value, found "\'"', "{\"a\": 'x'}"),
        ('f:2: not valid JSON: expected "," or "}", found \'the end of the file\'', '{"a": 1\n'),
        ("f:2: not valid JSON: expected the end of the file, found '{'", "{}\n{}"),
        ('f:1: not valid JSON: "\\x" has an escape that JSON does not know', '{"a": "\\x"}'),
        ("f:3: not valid JSON: expected a value, found '\"'", '{\n\n"a": "open\n}'),
        ("f:1: not valid JSON: expected a value, found '/'", '{"a": /* open }'),
        ("f:2: a: 'a' is given twice, first in line 1", '{"a": 1,\n"a": 2}'),
        ('f:1: not valid JSON: "\\ud800" has an escape that JSON does not know', '["\\ud800"]'),
        ("f:1: not valid JSON: a number has 5000 digits, which are too many", "9" * 5000),
    ],
)
def test_broken_json_is_reported_with_its_line(message, text):
    """What was expected, what was found, and where."""
    with pytest.raises(ConfigError) as caught:
        parse_json(text, "f")
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("f:2: not valid YAML: mapping values are not allowed", "a: 1\n b: 2"),
        ("f:2: a: 'a' is given twice, first in line 1", "a: 1\na: 2"),
        ("f:1: not valid YAML here: a name is expected before the colon", "{[1]: 2}"),
        ("f:1: not valid YAML: could not determine a constructor", "a: !!python/name:os.system x"),
        ("f:1: not valid YAML: found undefined alias", "a: *b"),
        ("f:2: not valid YAML: 'x' is not of the type int", "a: 1\nb: !!int x"),
        ("f:1: not valid YAML: 'x' is not of the type float", "a: !!float x"),
        ("f:1: not valid YAML: 'x' is not of the type bool", "a: !!bool x"),
        ("f:1: not valid YAML: '0x_' is not of the type int", "a: 0x_"),
        ("f:1: not valid YAML: '9999", "a: " + "9" * 5000),
    ],
)
def test_broken_yaml_is_reported_with_its_line(message, text):
    """A config file creates no objects, with any tag."""
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_json, '{"a": {"b": 1},\n"c": 2, "a": {"d": 3}, "c": 4,\n"e": [1], "e": [2]}'),
        (parse_yaml, "{a: {b: 1},\nc: 2, a: {d: 3}, c: 4,\ne: [1], e: [2]}"),
    ],
)
def test_names_given_twice_are_all_told_and_both_values_are_read(parse, text):
    """So that a mistake in either is found in the same go."""
    report = ConfigReport()
    assert {"a": {"b": 1, "d": 3}, "c": 2, "e": [1, 2]} == plain(parse(text, "f", report))
    assert [(2, "a"), (2, "c"), (3, "e")] == [(one.line, one.where) for one in report.mistakes]


def test_an_anchor_may_be_overridden_and_used_twice():
    """What is merged into a mapping is not given twice."""
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: *x"
    expected = {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}, "z": {"a": 1, "b": 2}}
    assert expected == plain(parse_yaml(text, "f"))


def test_the_content_distinguishes_json_and_yaml(tmp_path):
    """A file mounted over the emulator's Config.json may be either."""
    path = tmp_path / "Config.json"
    path.write_text("queues:\n  a:\n")
    assert {"queues": {"a": None}} == plain(read_document(path, ConfigReport()))
    path.write_text('\ufeff// comment\n{"a": 1,}')
    assert {"a": 1} == plain(read_document(path, ConfigReport()))


def test_indentation_with_tabs_is_reported():
    """YAML forbids it, and its own words for that are hard to understand."""
    with pytest.raises(ConfigError, match="; indent with spaces, not with tabs"):
        parse_yaml("a:\n\tb: 1", "f")


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path):
    """A missing file, a folder, binary data and an endless file are reported in one sentence,
    without a traceback."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.json").write_text('{"a":' + "[" * 100_000)
    (tmp_path / "deep.yaml").write_text("a: &a [*a]")
    for name, reason in {
        "missing": "cannot be read: No such file or directory",
        ".": "is a folder; a mounted file that does not exist becomes one",
        "binary": "is not UTF-8 text; save it as UTF-8",
        "deep.json": "is nested too deeply",
        "deep.yaml": "is nested too deeply",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_document(tmp_path / name, ConfigReport())
        assert f"{tmp_path / name}: {reason}" == str(caught.value)


def test_a_mistake_after_the_last_line_is_reported():
    """A list that is not closed: the parser names the line after the file."""
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse_yaml("queues: [", "peeklock.yaml")
