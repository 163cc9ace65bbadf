"""Panels: what is asked of the engine, what is shown, and that nothing a learner does leaves a panel dead."""

from __future__ import annotations

import asyncio
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from reports_by_hand import a_report, a_run, traffic

from solcourse import access_maps, panels
from solcourse.errors import KernelTypeError, UnknownName
from solcourse.panels import coalescing, frames, parts

N = 2**20


@pytest.fixture
def launches(monkeypatch):
    """Every launch that a panel asks for, answered with a copy of that stride made by hand."""
    asked = []

    def profile(configured, *arguments, **options):
        asked.append(SimpleNamespace(configured=configured, arguments=arguments, **options))
        stride = arguments[2] if len(arguments) == 4 else 1
        run = replace(a_run(min(stride, 33)), sampled_blocks=64)
        moved = traffic(read=4 * N * min(stride, 16))
        return a_report(run=run, on=options["device"], time_s=1e-6 * (4 + 2 * min(stride, 16)), traffic=moved, sampled_blocks=64)

    fake = SimpleNamespace(profile=profile)
    monkeypatch.setitem(sys.modules, "solcourse.verbs", fake)
    monkeypatch.setattr("solcourse.verbs", fake, raising=False)
    return asked


def with_stride(panel, stride, **more):
    return {**panel.settings, "stride": stride, **more}


# ---- arrays that are promised, not made


def test_a_lazy_array_costs_no_memory_until_it_is_touched():
    array = parts.lazy_array(2**33)  # 32 GiB
    assert array.dtype == np.float32
    assert array.size == 2**33
    array[-1] = 7
    assert (array[0], array[-1]) == (0, 7)


def test_where_so_much_cannot_be_promised_smaller_launches_still_work(monkeypatch):
    real = parts.lazy_array

    def modest(elements, dtype=np.float32):
        if elements > 2**28:
            raise OSError("Cannot allocate memory")
        return real(elements, dtype)

    monkeypatch.setattr(parts, "lazy_array", modest)
    parts._everything.cache_clear()
    try:
        assert parts.room("float32", "src", 1000).size == 1000
        with pytest.raises(OSError, match="allocate"):
            parts.room("float32", "src", 2**30)
    finally:
        parts._everything.cache_clear()


# ---- what the coalescing panel launches


@pytest.mark.parametrize("layout", coalescing.LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize(("stride", "offset"), [(1, 0), (3, 5), (64, 32)])
def test_every_setting_stays_inside_its_arrays(launches, layout, stride, offset):
    panel = panels.panel("coalescing")
    panel.profile(with_stride(panel, stride, offset=offset, layout=layout.name))
    src, dst, *_ = launches[-1].arguments
    last = (dst.size - 1) * stride + offset
    assert last < (src.shape[0] if layout.name.startswith("aos") else src.shape[-1])
    assert src.ndim == 1 or 3 in src.shape
    assert dst.size == parts.LARGEST


@pytest.mark.parametrize("layout", coalescing.LAYOUTS, ids=lambda layout: layout.name)
def test_the_ledger_does_not_depend_on_the_stride(launches, layout):
    panel = panels.panel("coalescing")
    works = []
    for stride in (1, 16):
        panel.profile(with_stride(panel, stride, layout=layout.name))
        works.append(launches[-1].work)
    assert works[0] == works[1]
    # `fields` numbers read and one written for each element
    assert works[0].compulsory_bytes == (layout.fields + 1) * layout.size * parts.LARGEST


def test_launches_are_sampled_and_go_to_the_chosen_device(launches):
    panel = panels.panel("coalescing")
    panel.profile(with_stride(panel, 2, device="Tesla T4", block=64, size=2**20))
    asked = launches[-1]
    assert asked.device == "Tesla T4"
    assert asked.sample_blocks == 2**13 // 64
    assert asked.arguments[1].size == 2**20


def test_small_grids_are_offered_without_numbas_advice(launches):
    panel = panels.panel("coalescing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        panel.profile(with_stride(panel, 1, size=2**14, block=1024))  # 16 blocks


def test_the_picture_is_of_the_addresses_that_the_settings_mean():
    panel = panels.panel("coalescing")
    for settings, count in [
        (with_stride(panel, 1), 4),
        (with_stride(panel, 2), 8),
        (with_stride(panel, 8), 32),
        (with_stride(panel, 1, offset=1), 5),
        (with_stride(panel, 1, offset=8), 4),
        (with_stride(panel, 1, layout="float64"), 8),
        (with_stride(panel, 1, layout="aos_one"), 12),
        (with_stride(panel, 1, layout="aos_all"), 12),
        (with_stride(panel, 1, layout="soa_all"), 4),
    ]:
        size = coalescing.layout_of(settings).size
        assert len(access_maps.sector_masks(coalescing.first_addresses(settings), size)) == count


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "dst[i] = src[i]"),
        ({"stride": 4}, "dst[i] = src[i * 4]"),
        ({"stride": 4, "offset": 2}, "dst[i] = src[i * 4 + 2]"),
        ({"offset": 2, "layout": "aos_one"}, "dst[i] = src[i + 2, 0]"),
    ],
)
def test_the_line_of_code_says_what_the_settings_do(changes, line):
    panel = panels.panel("coalescing")
    assert panel.line({**panel.settings, **changes}) == line


def test_a_learners_kernel_is_the_one_that_runs(launches):
    from numba import cuda

    @cuda.jit
    def mine(src, dst, stride, offset):
        dst[cuda.grid(1)] = src[stride]

    panel = panels.panel("coalescing", mine)
    panel.profile(panel.settings)
    assert launches[-1].configured.dispatcher is mine
    assert panel.line(panel.settings) == "dst[cuda.grid(1)] = src[stride]    # stride = 1, offset = 0"


@pytest.mark.parametrize("name", panels.PANELS)
def test_unknown_settings_and_panels_are_named(name):
    with pytest.raises(UnknownName, match=name):
        panels.panel(name[:-1] + "x")
    with pytest.raises(UnknownName):
        panels.panel(name).control("strides")


# ---- what is shown


def test_a_frame_says_its_numbers_in_words_and_in_every_picture(launches):
    panel = panels.panel("coalescing")
    frame = frames.frame(panel, with_stride(panel, 8))
    assert set(frame.pictures) == {"gauge", "sectors", "bounds", "roofline"}
    for svg in frame.pictures.values():
        assert 'role="img" aria-label="' in svg
    assert "Sectors per request: 32 loading, 4 storing" in frame.values
    assert "64 of 4,096 blocks" in frame.values
    assert "predicted on A100-SXM4-80GB" in frame.values
    assert frame.values in frame.html


def test_the_path_keeps_to_one_device_and_shows_nothing_twice():
    a, b, other = a_report(kernel="stride 1"), a_report(kernel="stride 2", time_s=30e-6), a_report(on="Tesla T4")
    assert frames.path([a, other], b) == [a, b]
    assert frames.path([a, b], a) == [b, a]
    many = [a_report(kernel=str(n)) for n in range(30)]
    assert frames.path(many, a) == [*many[-(frames.MOST_ATTEMPTS - 1) :], a]


def test_an_error_is_shown_as_text_not_as_markup():
    shown = frames.error_html(KernelTypeError("line 3: a < b\n<script>alert()</script>"))
    assert "<script>" not in shown
    assert "line 3: a &lt; b" in shown


def test_a_frame_is_small_enough_to_follow_a_slider(launches):
    """jupyter.md's budget is a message of some kilobytes: a 200 kB picture would not follow a drag."""
    panel = panels.panel("coalescing")
    attempts = [a_report(kernel=f"stride {n}", time_s=1e-6 * n) for n in range(1, 13)]
    assert len(frames.frame(panel, with_stride(panel, 64), attempts).html) < 40_000


def test_lanes_are_drawn_only_where_the_trace_agrees():
    report = a_report(run=a_run(8))
    asked = [32 * lane for lane in range(32)]  # float32, stride 8
    assert "lane 31" in coalescing.request_made(report, asked, 4, "a read")
    assert "lane 31" in coalescing.request_made(report, [96 + a for a in asked], 4, "a read")  # from wherever it starts
    other = coalescing.request_made(report, [16 * lane for lane in range(32)], 4, "a read")
    assert "lane 31" not in other
    assert "32 sectors" in other  # what was really touched


# ---- widgets


def test_an_attempt_is_compared_with_the_one_before():
    slow, fast = a_report(time_s=40e-6), a_report(time_s=30e-6)  # 10 / 40 = 25 %; 10 / 30 = 33 %
    assert frames.since_last([slow]) == ""
    assert "25% shorter; both predicted" in frames.since_last([slow, fast])
    assert "33% longer" in frames.since_last([fast, slow])
    assert "as long as before" in frames.since_last([fast, slow, slow])


def test_the_speed_of_light_panel_stops_where_the_loop_has_no_turns_left_over():
    degrees = [value for _, value in panels.panel("speed_of_light").control("degree").options]
    assert [degree % 8 for degree in degrees] == [0] * len(degrees)  # the compiler unrolls by 8
    assert panels.panel("speed_of_light").settings["degree"] in degrees


def test_the_speed_of_light_panel_shows_no_sectors(launches):
    panel = panels.panel("speed_of_light")
    assert set(frames.frame(panel, panel.settings).pictures) == {"gauge", "bounds", "roofline"}


@pytest.fixture
def widgets():
    pytest.importorskip("ipywidgets", reason="panels need ipywidgets")
    from solcourse import widgets

    return widgets


def test_a_control_redraws_and_lengthens_the_path(launches, widgets):
    live = widgets.dashboard("coalescing")
    before = live.picture.value
    live.controls["stride"].value = 8
    assert live.picture.value != before
    assert "Sectors per request: 32 loading" in live.picture.value
    assert [attempt.kernel for attempt in live.attempts] == ["stride 1", "stride 8"]
    assert all(attempt.run is None for attempt in live.attempts)  # a run's trace holds megabytes
    live.clear()
    assert [attempt.kernel for attempt in live.attempts] == ["stride 8"]


def test_a_control_that_changes_nothing_is_grey_while_that_holds(launches, widgets):
    live = widgets.dashboard("speed_of_light")
    assert live.controls["degree"].disabled  # it opens with a copy
    live.controls["operation"].value = "polynomial"
    assert not any(control.disabled for control in live.controls.values())


def test_sliding_back_predicts_nothing_again_and_shows_the_same(launches, widgets, monkeypatch):
    live = widgets.dashboard("coalescing")
    first = live.frame.values
    live.controls["stride"].value = 8
    live.controls["stride"].value = 1
    assert len(launches) == 2
    assert live.frame.values == first
    assert [attempt.kernel for attempt in live.attempts] == ["stride 8", "stride 1"]
    monkeypatch.setattr(widgets, "KEPT_FRAMES", 2)
    live.controls["stride"].value = 2  # the oldest goes
    live.controls["stride"].value = 1
    assert len(launches) == 4


def test_a_panel_predicts_from_its_opening_settings_wherever_its_sliders_stand(launches, widgets):
    live = widgets.dashboard("coalescing")
    live.controls["stride"].value = 64
    live.predict(offset=1)
    assert launches[-1].arguments[2:] == (1, 1)
    with pytest.raises(UnknownName, match="stride"):
        live.predict(strid=2)


def test_an_error_is_shown_in_the_panel_and_the_next_change_works(launches, widgets, monkeypatch):
    live = widgets.dashboard("coalescing")
    good = sys.modules["solcourse.verbs"].profile

    def refuse(*_, **__):
        raise KernelTypeError("line 4: no such name")

    monkeypatch.setattr(sys.modules["solcourse.verbs"], "profile", refuse)
    live.controls["stride"].value = 2
    assert "line 4: no such name" in live.message.value
    assert live.describe() == "line 4: no such name"
    monkeypatch.setattr(sys.modules["solcourse.verbs"], "profile", good)
    live.controls["stride"].value = 3
    assert live.message.value == ""


def test_what_is_not_the_learners_error_is_raised_on_opening(launches, widgets, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(sys.modules["solcourse.verbs"], "profile", broken)
    with pytest.raises(ZeroDivisionError):
        widgets.dashboard("coalescing")


def test_a_panel_without_a_browser_is_a_picture_and_a_sentence(launches, widgets):
    import base64

    bundle = widgets.dashboard("coalescing")._repr_mimebundle_()
    assert "SOL score" in bundle["text/plain"]
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_the_still_has_every_picture_of_the_page_and_its_words(launches, monkeypatch):
    from solcourse import stills

    drawn = []
    monkeypatch.setattr(stills.Canvas, "draw", lambda canvas, picture, x, y: drawn.append((picture, x, y)))
    panel = panels.panel("coalescing")
    shown = frames.frame(panel, panel.settings)
    frames.still(shown, panel.title)
    places = {picture: (x, y) for picture, x, y in drawn}
    assert set(places) >= set(shown.pictures.values())
    assert places[shown.pictures["roofline"]][0] > places[shown.pictures["sectors"]][0] == places[shown.pictures["bounds"]][0]
    assert len({y for picture, (x, y) in places.items() if x == 0}) == 5  # title, line, gauge, sectors, bounds: one under the other
    said = " ".join(stills.ET.fromstring(picture).get("aria-label") for picture, x, _ in drawn if x > 0 and "Roofline" not in picture)
    assert said == shown.values
    assert {panel.title, shown.line} <= {stills.ET.fromstring(picture).get("aria-label") for picture in places}


def test_a_still_is_drawn_once_for_what_the_panel_shows(launches, widgets, monkeypatch):
    drawn = []
    monkeypatch.setattr(frames, "still", lambda frame, title: drawn.append(frame.label) or b"png")
    live = widgets.dashboard("coalescing")
    live.controls["stride"].value = 2
    assert drawn == []  # not before it is asked for
    assert [live.still(), live.still()] == [b"png", b"png"]
    live.controls["stride"].value = 4
    live.still()
    assert drawn == ["stride 2", "stride 4"]


def test_hints_are_folded_and_counted_when_read(widgets):
    read = []
    row, *pages = widgets.folded_hints(["first", "a < b"], read.append).children
    assert [(page.value, page.layout.display) for page in pages] == [("", "none")] * 2
    row.children[1].value = True
    assert "a &lt; b" in pages[1].value
    assert [page.layout.display for page in pages] == ["none", None]
    row.children[1].value = False
    assert pages[1].layout.display == "none"
    assert read == [2]


def test_a_task_is_marked_when_a_sum_is_entered(widgets, tmp_path, monkeypatch):
    from solcourse import lesson

    monkeypatch.chdir(tmp_path)
    panel = lesson.task("ex00.saxpy")
    assert "Not yet" in panel.said.value
    panel.box.value = "2 * 4 * 2**26 / 2039e9"
    assert "✘" in panel.said.value
    assert "Three passes" in panel.describe()
    panel.box.value = panel.task.solution
    assert "✔" in panel.said.value
    assert "Right." in panel._repr_mimebundle_()["text/plain"]


def test_a_bet_marks_its_button(widgets, tmp_path, monkeypatch):
    from solcourse import lesson

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lesson.Guess, "_made", {})
    bet = lesson.guess("?", [4, 8])
    panel = widgets.GuessPanel(bet)
    panel.buttons[0].click()
    assert "4" in panel.said.value
    bet.reveal(8.0)
    assert [button.button_style for button in panel.buttons] == ["info", "success"]
    again = widgets.GuessPanel(lesson.guess("?", [4, 8]))  # the cell is run again
    assert "Your bet" in again.said.value
    assert [button.button_style for button in again.buttons] == ["info", ""]


def test_a_watched_file_calls_back_on_every_save_until_told_to_stop(widgets, tmp_path):
    file, saved = tmp_path / "ex.py", []

    async def scenario():
        file.write_text("one")
        watcher = asyncio.create_task(widgets.watch(file, lambda: saved.append(file.read_text()) or len(saved) < 2, poll_s=0.01))
        await asyncio.sleep(0.05)
        assert saved == []  # nothing was saved yet
        for text in ("two!", "three"):
            file.write_text(text)
            await asyncio.sleep(0.05)
        await asyncio.wait_for(watcher, 1)

    asyncio.run(scenario())
    assert saved == ["two!", "three"]


def test_a_file_that_goes_away_and_comes_back_is_still_watched(widgets, tmp_path):
    file, saved = tmp_path / "ex.py", []

    async def scenario():
        file.write_text("one")
        watcher = asyncio.create_task(widgets.watch(file, lambda: saved.append(1) or False, poll_s=0.01))
        await asyncio.sleep(0.03)
        file.unlink()  # some editors save by renaming
        await asyncio.sleep(0.03)
        assert not saved
        file.write_text("two!")
        await asyncio.wait_for(watcher, 1)

    asyncio.run(scenario())
    assert saved == [1]


# ---- exercises


@pytest.fixture
def course_folder(tmp_path, monkeypatch):
    """A copy of the exercises, as a course of its own."""
    import shutil
    from pathlib import Path

    repository = Path(__file__).resolve().parents[2]
    for folder in ("exercises", "solutions"):
        shutil.copytree(repository / folder, tmp_path / folder, ignore=shutil.ignore_patterns("mine", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE", raising=False)
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    return tmp_path


@pytest.fixture
def checks(monkeypatch):
    """Every check that is asked for, answered with the next of `answers`: a verdict, or an error to raise."""
    from solcourse import exercises

    asked = SimpleNamespace(names=[], answers=[])

    def check(name):
        asked.names.append(name)
        answer = asked.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(exercises, "check", check)
    return asked


class FakeVerdict(SimpleNamespace):
    passed = False
    gates = ()

    def _repr_html_(self):
        return f"<b>{self.words}</b>"

    def __str__(self):
        return self.words


def test_an_exercise_opens_with_the_learners_copy_and_no_verdict(widgets, course_folder):
    panel = widgets.ExercisePanel("ex01")
    assert panel.path == course_folder / "exercises" / "mine" / "ex01_coalescing.py"
    assert panel.path.exists()
    assert "exercises/mine/ex01_coalescing.py" in panel.said.value
    assert panel.describe() == "Exercise ex01: not scored yet."


def test_the_button_shows_the_verdict_and_the_path_of_attempts(widgets, course_folder, checks):
    checks.answers = [
        FakeVerdict(words="does not parse", report=None),
        FakeVerdict(words="not yet", report=a_report(kernel="first", time_s=40e-6)),
        FakeVerdict(words="passed", passed=True, report=a_report(kernel="second")),
    ]
    panel = widgets.ExercisePanel("ex01")
    panel.button.click()
    assert "does not parse" in panel.picture.value
    panel.button.click()
    assert "sol-change" not in panel.picture.value
    assert panel.hints.layout.display is None
    panel.button.click()
    assert "passed" in panel.picture.value
    assert "The attempt before: 40.0 µs" in panel.picture.value
    assert panel.hints.layout.display == "none"
    assert "1: first" in panel.picture.value
    assert "2: second" in panel.picture.value
    assert panel.describe() == "passed"
    assert not panel.button.disabled


def test_the_picture_is_of_what_the_first_open_gate_complains_of():
    from solcourse.grading import Gate

    sectors, banks = (
        Gate("sectors per global load request", "4", 4.0, None, True),
        Gate("bank conflicts in shared loads", "0", 31.0, 9, False),
    )
    shown = [frames.worst_access(FakeVerdict(gates=gates, report=a_report(run=a_run(1)))) for gates in ((sectors, banks), (sectors,))]
    assert ["shared memory" in picture for picture in shown] == [True, False]
    assert ["bytes fetched" in picture for picture in shown] == [False, True]


def test_a_check_that_breaks_is_shown_and_the_button_lives_on(widgets, course_folder, checks):
    checks.answers = [ZeroDivisionError("in our own code"), FakeVerdict(words="not yet", report=None)]
    panel = widgets.ExercisePanel("ex01")
    panel.button.click()
    assert "in our own code" in panel.picture.value
    panel.button.click()
    assert "not yet" in panel.picture.value


def test_a_save_is_scored_once_by_the_newest_panel(widgets, course_folder, checks, monkeypatch):
    monkeypatch.setattr(widgets, "POLL_S", 0.01)
    checks.answers = [FakeVerdict(words="scored", report=None)]

    async def scenario():
        old, new = widgets.ExercisePanel("ex01"), widgets.ExercisePanel("ex01")  # the cell was run twice
        await asyncio.sleep(0.05)
        new.path.write_text(new.path.read_text() + "\n")
        await asyncio.sleep(0.2)
        assert "scored" in new.picture.value
        assert old.picture.value == ""
        assert old.watcher.done()
        new.watcher.cancel()

    asyncio.run(scenario())
    assert checks.names == ["ex01"]


def test_an_unknown_exercise_offers_the_nearest(widgets, course_folder):
    with pytest.raises(UnknownName, match="ex01"):
        widgets.ExercisePanel("ex10")
