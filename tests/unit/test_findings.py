"""What sol.sanitize returns: a list that reads well in a terminal and a notebook, whatever the findings are like."""

import copy
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from solcourse import svg
from solcourse.findings import KINDS, Findings, merge, summary
from solcourse.simt.records import CHECKS, Finding, Touch

BLOCK = (0, 0, 0)
SOURCE = """from numba import cuda


@cuda.jit
def matmul(a, b, c):
    tile = cuda.shared.array((16, 16), "f4")
    for start in range(0, 64, 16):
        tile[y, x] = a[i, start + x]
        cuda.syncthreads()
        for k in range(16):
            total += tile[y, k] * b[k, j]
    c[i, j] = total
"""
TOUCHES = (Touch(1, BLOCK, (5, 3, 0), 11, "read"), Touch(1, BLOCK, (4, 3, 0), 8, "write"))
SAID, TRY = "thread 4 overwrites tile[3, 4] while thread 5 may still read it", "Put cuda.syncthreads() at the end of the loop."


@pytest.fixture
def race(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE, encoding="utf-8")
    return Finding(
        "write_after_read", "error", SAID, TRY, file=str(file), line=8, block=BLOCK, thread=(4, 3, 0), other_line=11, other_block=BLOCK,
        other_thread=(5, 3, 0), array="tile", index=52, count=3840, space="shared", element="tile[3, 4]", touches=TOUCHES,
    )  # fmt: skip


def plain(line, severity="error", kind="out_of_bounds", **more):
    return Finding(kind, severity, f"said of line {line}", f"hint for line {line}", line=line, **more)


class Page(HTMLParser):
    """Tags, balanced, with the details and the words of a fragment."""

    def __init__(self, fragment):
        super().__init__()
        self.open, self.details, self.words, self.tags = [], [], "", []
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "details":
            self.details.append("open" in dict(attributes))
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


# ------------------------------------------------------------------------------------------------------------------ a list
def test_a_clean_launch_is_an_empty_list_that_says_what_was_checked():
    clean = Findings(launch="scale[4096, 256]")
    assert clean == []
    assert not clean
    assert isinstance(clean, list)
    said = "no finding: memcheck, racecheck, initcheck and synccheck, 1 launch of scale[4096, 256]"
    assert str(clean) == repr(clean) == said
    page = Page(clean._repr_html_())
    assert page.words == f"✓ {said}"
    assert "table" not in page.tags


def test_a_sample_says_that_it_is_one():
    assert str(Findings(launch="scale[4096, 256]", sampled="8 of 4,096 blocks")).endswith("scale[4096, 256], only 8 of 4,096 blocks")
    found = Findings([plain(3)], launch="scale[4096, 256]", sampled="8 of 4,096 blocks")
    assert str(found).startswith("1 error: memcheck 1 (1 launch of scale[4096, 256], only 8 of 4,096 blocks)\n")


def test_errors_go_before_warnings_and_both_by_line():
    given = [plain(9), plain(2, "warning"), plain(30), plain(1, "warning"), plain(4)]
    found = Findings(given)
    assert [(f.severity, f.line) for f in found] == [("error", 4), ("error", 9), ("error", 30), ("warning", 1), ("warning", 2)]
    assert [int(n) for n in re.findall(r"Said of line (\d+)", str(found))] == [4, 9, 30, 1, 2]
    assert [int(n) for n in re.findall(r"Said of line (\d+)", found._repr_html_())] == [4, 9, 30, 1, 2]


def test_findings_survive_pickle_and_copy(race):
    found = Findings([race, plain(3)], launch="scale[1, 32]")
    for other in (pickle.loads(pickle.dumps(found)), copy.copy(found), copy.deepcopy(found)):
        assert other == found
        assert str(other) == str(found)


# ------------------------------------------------------------------------------------------------------------- as a learner
def test_every_kind_has_words_of_its_own():
    assert set(KINDS) == {kind for kinds in CHECKS.values() for kind in kinds}
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize(("check", "kind"), [(check, kind) for check, kinds in CHECKS.items() for kind in kinds])
def test_every_kind_is_said_with_its_check_message_count_and_hint(race, check, kind):
    found = Findings([replace(race, kind=kind)])
    for text in (str(found), Page(found._repr_html_()).words):
        words = " ".join(text.split()).lower()
        for part in (KINDS[kind], check, "error", "line 8 of mine.py", "tile[3, 4]", "3,840 times", SAID, TRY):
            assert part.lower() in words


def test_both_parties_are_marked_with_all_that_lies_between(race):
    lines = [
        "    writes ▸  8 │ tile[y, x] = a[i, start + x]",
        "              9 │ cuda.syncthreads()",
        "             10 │ for k in range(16):",
        "     reads ▸ 11 │     total += tile[y, k] * b[k, j]",
    ]
    assert "\n".join(lines) in str(Findings([race]))
    html = Findings([race])._repr_html_()
    assert "<b>writes ▸  8 │ tile[y, x] = a[i, start + x]</b>" in html
    assert "<b> reads ▸ 11 │     total += tile[y, k] * b[k, j]</b>" in html
    assert "\n          9 │ cuda.syncthreads()\n" in html


def test_parties_far_apart_are_shown_without_what_lies_between(tmp_path):
    file = tmp_path / "long.py"
    file.write_text("".join(f"    x[{n}] = 0\n" for n in range(1, 41)), encoding="utf-8")
    said = str(Findings([plain(5, kind="read_after_write", other_line=30, file=str(file))]))
    assert "     reads ▸  5 │ x[5] = 0\n                │ …\n    writes ▸ 30 │ x[30] = 0\n" in said
    assert "x[6]" not in said


@pytest.mark.parametrize(
    ("kind", "other", "roles"),
    [
        ("lost_update", 8, ["updates"]),
        ("write_after_write", 8, ["writes"]),
        ("read_after_write", 8, ["writes, reads"]),
        ("out_of_bounds", None, ["here"]),
        ("divergent_barrier", 9, ["here", "here"]),
    ],
)
def test_what_happens_at_a_line_is_said_once(race, kind, other, roles):
    said = str(Findings([replace(race, kind=kind, other_line=other, touches=())]))
    assert re.findall(r"^ +(\S.*) ▸", said, re.MULTILINE) == roles


def test_threads_are_named_where_the_message_does_not(race):
    assert "Seen with" not in str(Findings([race]))
    said = str(Findings([replace(race, message="tile[3, 4] is overwritten")]))
    assert "Tile[3, 4] is overwritten. Seen with thread (5, 3, 0) of block (0, 0, 0) and thread (4, 3, 0) of block (0, 0, 0)." in " ".join(
        said.split()
    )


def test_a_notebooks_cell_has_no_file_name():
    said = str(Findings([plain(3, file="/tmp/ipykernel_17/2912.py"), plain(4, file="<stdin>")]))
    assert "(memcheck, line 3)" in said
    assert "(memcheck, line 4)" in said


def test_text_is_at_most_110_columns(race):
    long = replace(race, message="many words " * 60, hint="more words " * 60)
    assert max(map(len, str(Findings([long], launch="f[1, 32]")).split("\n"))) <= 110


# ----------------------------------------------------------------------------------------------------------------- pictures
def test_the_first_picture_is_open_and_the_others_are_folded(race):
    found = Findings([replace(race, line=7), race, plain(1), replace(race, severity="warning")])
    page = Page(found._repr_html_())
    assert page.details == [True, False, False]
    assert page.tags.count("svg") == 3


def test_twenty_are_shown_and_the_others_counted(race):
    found = Findings([replace(race, line=n, message=f"m{n}.") for n in range(100, 1322)])
    for text in (str(found), Page(found._repr_html_()).words):
        assert re.findall(r"M(\d+)\.", text) == [str(n) for n in range(100, 120)]
        assert "and 1,202 more" in text
    assert "more" not in str(Findings([plain(n) for n in range(20)]))


def test_html_leaves_colours_to_the_page(race):
    html = Findings([race, plain(2, "warning")])._repr_html_()
    assert "background:#" not in html
    assert set(re.findall(r"[;\"]color:([^;\"]+)", html)) <= {"inherit", svg.ORANGE, svg.GREEN}
    assert '">✗</span> error' in html
    assert '">!</span> warning' in html


def test_names_and_sources_are_escaped(tmp_path):
    file = tmp_path / "h.py"
    file.write_text("a < b & c  # </pre><script>alert(1)</script>\n", encoding="utf-8")
    bad = "<img src=x onerror=alert(1)>\"'&"
    touches = (Touch(0, BLOCK, (1, 0, 0), 1, "read"), Touch(0, BLOCK, (0, 0, 0), 1, bad))
    odd = Finding(bad, bad, bad, bad, file=str(file), line=1, array=bad, element=bad, touches=touches)
    page = Page(Findings([odd], launch=bad, sampled=bad)._repr_html_())
    assert not {"img", "script"} & set(page.tags)
    assert page.words.count(bad) >= 5


ODD = {
    "nothing": Finding("", "", "", ""),
    "unknown kind": Finding("cosmic_ray", "error", "m", "h", line=3),
    "none": Finding("lost_update", "error", None, None, file=None, line=None, count=None, touches=()),
    "no such file": plain(10**9, file="/no/such/file.py", other_line=-3),
    "no file's name": plain(1, file="a\0b"),
    "a folder": plain(1, file="/"),
    "no places": Finding("read_after_write", "error", "m", "h", touches=TOUCHES),
    "one touch": Finding("write_after_write", "error", "m", "h", line=8, other_line=8, touches=TOUCHES[:1]),
    "no thread": plain(1, block=BLOCK, other_thread=(1, 0, 0)),
    "index without array": Finding("misaligned", "warning", "m", "h", index=7),
    "odd action": Finding("read_after_write", "error", "m", "h", touches=(Touch(-1, BLOCK, (0, 0, 0), 0, ""),)),
}


@pytest.mark.parametrize("name", ODD)
def test_no_finding_is_too_odd_to_be_shown(name):
    found = Findings([ODD[name]])
    assert "\n\n" in str(found)
    assert Page(found._repr_html_()).words
    assert (ODD[name].message or "") in str(found).lower()


def test_a_file_in_another_encoding_is_not_shown(tmp_path):
    file = tmp_path / "latin.py"
    file.write_bytes(b"x = '\xe9\xff'\n")
    assert "1 │\n" in str(Findings([plain(1, file=str(file))]))


# ------------------------------------------------------------------------------------------------------- summary and merge
def test_summary_counts_severities_and_checks():
    assert summary([]) == "no finding"
    assert summary([plain(1)]) == "1 error: memcheck 1"
    found = [plain(1, "warning"), plain(2, kind="lost_update"), plain(3, kind="write_after_read"), plain(4, "warning", "inactive_lane")]
    assert summary(found) == "2 errors, 2 warnings: racecheck 2, memcheck 1, synccheck 1"


def test_merge_adds_counts_and_keeps_the_first_example(race):
    again = replace(race, count=60, thread=(9, 9, 9), element="tile[9, 9]", message="another")
    assert merge([race, plain(3), again]) == [replace(race, count=3900), plain(3)]


@pytest.mark.parametrize(
    "change", [{"kind": "lost_update"}, {"severity": "warning"}, {"file": "b.py"}, {"line": 9}, {"other_line": 9}, {"array": "b"}]
)
def test_merge_keeps_apart_what_differs(race, change):
    other = replace(race, **change)
    assert merge([race, other]) == [race, other]
