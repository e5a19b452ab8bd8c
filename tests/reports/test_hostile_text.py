"""Whatever a record's texts hold, every page prints them as text: rendered, or parsed, and looked at again."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fedassay.records.record import RunRecord
from fedassay.reports import render, write_report
from fedassay.reports.document.compare import comparison
from fedassay.reports.document.markdown import escaped
from fedassay.reports.document.tables import csv_text

PIECES = (
    *("&#x202e;", "&lt;", "&amp", "http://e.org/x", "HTTPS://e.org", "ftp://e", "www.e.org", "//e.org", "x+y://z"),
    *("mailto:a@b.org", "a@b.org", "@team", "#12", "GH-7", "o/r#3", "[a](u)", "![a](u)", "[a]: u", "<http://e>"),
    *("<script>", "</title>", "</script>", '"', "'", "`", "``", "```", "|", "\\", "*", "**", "_", "~~", "$", "!"),
    *(
        "#",
        "##",
        "-",
        "- ",
        "---",
        "+",
        "=",
        "===",
        "1. ",
        "1)",
        "> ",
        "    ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        ";",
        ",",
    ),
    *("=1+1", "+1", "-1", "@x", "\uff1d1", "\ufe661", "\uff0b1", "\uff0d1", "\uff201", " ", "\u200d", "\ufe0f"),
    *("]]>", "<![CDATA[", "&x;", "[[ATTACHMENT|/etc/passwd]]", "{0}", "{{0}}", "](0)", "]", "(", "[", "{", "}"),
    *("javascript:x", "onclick=x", "\u202e", "\x1b[2J", "\x00", "\ud800", "a", "b c", "0", "é", "方"),
)
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=6).map("".join)
MakeRecord = Callable[[str], RunRecord]
FORMULA = {"=", "+", "-", "@"}
SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(max_examples=400, deadline=None)

# Where GitHub makes a link, a mention or a reference of what is left when the markup is gone.
LINKED = re.compile(
    r"(?:https?|ftp)://\w|(?<![\w/])www\.\w|[\w.+-]@\w|(?:mailto|xmpp):\w|(?<!\w)@\w|(?<!\w)#\d|GH-\d", re.I
)
PLAIN_TOKENS = {"text", "code_inline", "softbreak"}


@cache
def parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"linkify": False, "html": True})


def leaves(tokens: list[Token]) -> list[Token]:
    return [leaf for token in tokens for leaf in (leaves(token.children) if token.children else [token])]


@pytest.mark.long
@MANY
@example("&#x202e;")
@example("1. a")
@example("see http://e.org @team #12")
@given(HOSTILE)
def test_markdown_prints_a_text_as_it_is(words: str) -> None:
    read = "".join(escaped(words).split("\0"))  # a parser replaces NUL; pages have none
    words = words.replace("\0", "")
    for before, after in (("", ""), ("- ", ""), ("# ", ""), ("x: **", "**")):
        tokens = parser().parse(f"{before}{read}{after}")
        inside = [leaf for leaf in leaves(tokens) if leaf.type in PLAIN_TOKENS]
        shown = "".join(leaf.content for leaf in inside).removeprefix("x: ")
        if after and not read.strip():
            continue
        assert " ".join(shown.split()) == " ".join(words.split())
        assert not [leaf for leaf in inside if leaf.type == "text" and LINKED.search(leaf.content)]
        kinds = {token.type for token in tokens} | {leaf.type for leaf in leaves(tokens)}
        assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence", "blockquote_open", "hr"}
        lists = sum(token.type in {"bullet_list_open", "ordered_list_open"} for token in tokens)
        assert lists == (before == "- ")


@pytest.mark.long
@MANY
@given(HOSTILE, HOSTILE)
def test_markdown_tables_keep_their_cells(one: str, other: str) -> None:
    table = f"| a | b |\n|---|---|\n| {escaped(one)} | {escaped(other)} |"
    tokens = parser().parse(table.replace("\0", ""))
    assert sum(token.type == "td_open" for token in tokens) == 2


@pytest.mark.long
@MANY
@example(["=1", " =1", "\u200d=1", "\uff1d1", "a;=1", 'a;"=1', "\t+1", "+1", "-1", "@x", "; -1"])
@given(st.lists(HOSTILE, min_size=1, max_size=4))
def test_no_cell_of_a_table_is_a_formula(values: list[str]) -> None:
    text = csv_text(["a"] * len(values), [values])
    for separator in (",", ";"):
        rows = [*csv.reader(io.StringIO(text), delimiter=separator)]
        assert len(rows) == 2
        for cell in (cell for row in rows for cell in row):
            begins = "".join(
                char
                for char in unicodedata.normalize("NFKC", cell)
                if unicodedata.category(char) not in {"Mn", "Cf"}
            ).lstrip(' \t"')
            assert begins[:1] not in FORMULA, (cell, separator)
    assert len([*csv.reader(io.StringIO(text))][1]) == len(values)


class Tags(HTMLParser):
    """Every tag of a page with the names of its attributes, and the links among their values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action", "data"}]


@pytest.mark.long
@SOME
@given(HOSTILE)
def test_no_text_adds_a_tag_or_an_attribute_to_a_page(hostile_record: MakeRecord, words: str) -> None:
    for make in (lambda r: render(Path(), r, "html"), lambda r: comparison([(Path("a"), r), (Path("b"), r)])):
        found, calm = (Tags(make(hostile_record(text))) for text in (words, "calm"))
        assert set(found.tags) <= set(calm.tags)
        assert [tag for tag, _ in found.tags].count("script") == [tag for tag, _ in calm.tags].count("script")
        assert all(link.startswith(("#", "data:image/")) or link in calm.links for link in found.links)


@SOME
@example("[a](http://e) {0}")
@given(HOSTILE)
def test_sarif_has_neither_links_nor_placeholders(hostile_record: MakeRecord, words: str) -> None:
    def messages(value: Any) -> list[str]:
        if isinstance(value, list):
            return [text for item in value for text in messages(item)]
        if isinstance(value, dict):
            own = [value["text"]] if isinstance(value.get("text"), str) else []
            return own + [text for item in value.values() for text in messages(item)]
        return []

    found = messages(json.loads(render(Path(), hostile_record(words), "sarif")))
    assert found
    for text in found:
        assert "](" not in text
        literal = text.replace("{{", "").replace("}}", "")
        assert "{" not in literal
        assert "}" not in literal


@SOME
@example("[[ATTACHMENT|/etc/passwd]]")
@given(HOSTILE)
def test_junit_has_the_cases_of_the_record_and_attaches_nothing(hostile_record: MakeRecord, words: str) -> None:
    text = render(Path(), hostile_record(words), "junit")
    found, calm = (
        [element.tag for element in ElementTree.fromstring(page).iter()]
        for page in (text, render(Path(), hostile_record("calm"), "junit"))
    )
    assert found == calm
    assert "[[" not in text


@pytest.mark.long
@SOME
@given(HOSTILE)
def test_pages_in_markdown_hold_no_link(hostile_record: MakeRecord, tmp_path: Path, words: str) -> None:
    # Half a character is refused where texts come in, and evidence is written as UTF-8.
    record = hostile_record(words.replace("\ud800", ""))
    folder = write_report(record, tmp_path, "evidence", None)
    for page in (render(Path(), record, "md"), (folder / "crosswalk.md").read_text(encoding="utf-8")):
        tokens = leaves(parser().parse(page))
        assert not [token.type for token in tokens if token.type in {"link_open", "image"}]
        # The policy rule by rule, and how to run it again, are folded away.
        assert {token.content.strip() for token in tokens if token.type.startswith("html")} <= {
            "<details><summary>The policy messages, rule by rule</summary>",
            "<details><summary>About this run</summary>",
            "</details>",
        }
        assert not [t.content for t in tokens if t.type == "text" and LINKED.search(t.content)]


@pytest.mark.parametrize(
    "words", ["##vso[task.setvariable]x", "a ##[error]b", "##teamcity[x]", "::error::x", "a\n  ::set-env::b"]
)
def test_nothing_printed_is_a_command_to_a_ci_system(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from fedassay.support.terminal import Styled, say, say_lines

    say(words)
    say(Styled(words, "red"))
    say_lines(words)
    for line in capsys.readouterr().out.splitlines():
        assert not re.search(r"##\w*\[", line)
        assert not line.strip().startswith("::")
