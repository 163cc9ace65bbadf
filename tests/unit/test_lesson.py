"""What lessons say: bets, sums by hand, pictures in words, and the last cell that proves a lesson can be solved."""

from __future__ import annotations

import math

import pytest
from reports_by_hand import a_report, a_run, traffic

from solcourse import lesson, progress, tasks
from solcourse.errors import SolcourseError, UnknownName, WorkError
from solcourse.showing import show
from solcourse.work import Work


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """No bet of another test."""
    monkeypatch.setattr(lesson.Guess, "_made", {})


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder for progress, inside a course."""
    (tmp_path / "exercises").mkdir()
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLCOURSE_MINE", raising=False)
    monkeypatch.delenv("SOLCOURSE_SOLUTIONS", raising=False)
    return tmp_path / "exercises" / "mine"


# ---- bets


def test_a_bet_is_kept_and_the_first_one_is_not_forgotten(mine):
    bet = lesson.guess("How many?", [4, 8, 16])
    bet.choose(16)
    bet.choose(8)
    assert progress.read(mine)["guesses"]["How many?"] == {"first": 16, "last": 8}


def test_a_question_nobody_answers_leaves_no_trace(mine):
    bet = lesson.guess("How many?", [4, 8])
    assert str(bet.reveal(8)) == "8. (No bet was made.)"
    assert not mine.exists()


@pytest.mark.parametrize(("chosen", "truth", "right"), [(8, 8.0, True), (4, 8.0, False), (0.1, 0.101, True), ("x", "x", True)])
def test_the_reveal_tells_a_right_bet_from_a_wrong_one(mine, chosen, truth, right):
    bet = lesson.guess("?", [chosen, "other"])
    bet.choose(chosen)
    assert ("as you said" in str(bet.reveal(truth))) == right


def test_a_bet_outside_any_course_is_taken_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bet = lesson.guess("?", [1, 2])
    bet.choose(2)
    assert bet.answer == 2
    assert lesson.guess("?", [1, 2]).answer == 2


def test_a_bet_belongs_to_its_question_and_survives_a_second_run_of_its_cell(mine, monkeypatch):
    lesson.guess("How many?", [4, 8]).choose(8)
    again = lesson.guess("How many?", [4, 8])
    assert again.answer == 8
    assert str(again.reveal(8.0)) == "8: as you said."
    assert lesson.guess("How much?", [4, 8]).answer is None
    monkeypatch.setattr(lesson.Guess, "_made", {})  # a new session: the file remembers
    assert lesson.guess("How many?", [4, 8]).answer == 8
    assert lesson.guess("How many?", [1, 2]).answer is None  # the question's options have changed since


# ---- sums by hand


@pytest.mark.parametrize("item", tasks.TASKS, ids=lambda item: item.name)
def test_every_task_is_solved_by_its_own_solution_and_by_nothing_yet(item):
    assert tasks.mark(item, item.solution).passed
    assert tasks.mark(item, ...).passed is None
    assert tasks.mark(item, "").passed is None
    assert tasks.mark(item, item.answer).passed
    assert not tasks.mark(item, 1.1 * item.answer).passed


def test_tasks_have_the_answers_of_the_data_sheet():
    # 3 passes x 4 bytes; 2 x 100 FLOPs; 2 x 4096^3 FLOPs; 3 arrays of 4096^2 and one of 4096, 4 bytes each
    wanted = {
        "ex00.saxpy": 3 * 4 * 2**26 / 2039e9,
        "ex00.polynomial": 200 * 2**26 / 19.49e12,
        "ex00.matmul": 2 * 4096**3 / 19.49e12,
        "ex00.ledger": 4 * (3 * 4096**2 + 4096),
    }
    assert {item.name: item.answer for item in tasks.TASKS} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "answer", "word"),
    [
        ("ex00.saxpy", "2 * 4 * 2**26 / 2039e9", "Three passes"),
        ("ex00.saxpy", "3 * 4 * 2**26 / 2039e9 * 1e6", "microseconds"),
        ("ex00.saxpy", "2 * 2**26 / 19.49e12", "time of the arithmetic"),
        ("ex00.saxpy", "3 * 2**26 / 2039e9", "elements instead of bytes"),
        ("ex00.polynomial", "100 * 2**26 / 19.49e12", "multiply and an add"),
        ("ex00.polynomial", "8 * 2**26 / 2039e9", "time of the bytes"),
        ("ex00.matmul", "4096**3 / 19.49e12", "Half of it"),
        ("ex00.ledger", 'read("x", 4 * 4096**2) + write("y", 4 * 4096**2)', "array is missing"),
        ("ex00.ledger", 'read("x", 5 * 4 * 4096**2)', "Two passes too many"),
    ],
)
def test_a_slip_with_a_name_is_told_by_its_name(name, answer, word):
    result = tasks.mark(tasks.task(name), answer)
    assert result.passed is False
    assert word in str(result)


@pytest.mark.parametrize("text", ["__import__('os')", "open('x')", "2 **", "1/0", "a + 1", "2**(10**9)", "[1]", "'x' * 3", "read(1)"])
def test_what_is_no_sum_is_refused_in_words(text):
    assert tasks.mark(tasks.TASKS[0], text).passed is False
    if text != "'x' * 3":  # a text, not a number: read, and then refused
        with pytest.raises(WorkError):
            tasks.evaluate(text)


def test_a_sum_means_what_python_means():
    assert tasks.evaluate("max(2 * 3, -1) + 2**4 / 8") == 8.0
    assert tasks.evaluate('Work.read("x", 8) + write("y", 8)').compulsory_bytes == 16


def test_an_answer_is_kept_in_progress(mine):
    assert lesson.task("ex00.saxpy", 12 * 2**26 / 2039e9).passed
    assert "passed" in progress.read(mine)["exercises"]["ex00.saxpy"]
    assert lesson.task("ex00.matmul", 1.0).passed is False
    assert "passed" not in progress.read(mine)["exercises"]["ex00.matmul"]


def test_an_unknown_task_offers_the_nearest():
    with pytest.raises(UnknownName, match="ex00.saxpy"):
        lesson.task("ex00.saxpi")


# ---- the last cell


def test_assert_solved_tells_a_learner_how_far_he_is(mine):
    assert str(lesson.assert_solved("ex01")).startswith("ex01: not solved yet.")
    lesson.task("ex00.saxpy", 12 * 2**26 / 2039e9)
    assert str(lesson.assert_solved("ex00")).startswith("ex00: 1 of 4 solved; still open: ex00.polynomial, ")
    for item in tasks.TASKS:
        lesson.task(item.name, item.answer)
    assert str(lesson.assert_solved("ex00")) == "ex00: solved."
    progress.record_attempt(mine, "ex01", "text", passed=True)
    assert str(lesson.assert_solved("ex01")) == "ex01: solved."


def test_assert_solved_fails_where_a_solution_is_wrong(mine, monkeypatch):
    monkeypatch.setenv("SOLCOURSE_SOLUTIONS", "1")
    lesson.assert_solved("ex00")
    monkeypatch.setattr(tasks, "mark", lambda item, answer: tasks.Marked(item.name, False, "wrong"))
    with pytest.raises(AssertionError, match="ex00.saxpy: wrong"):
        lesson.assert_solved("ex00")


# ---- pictures


def test_the_three_causes_multiply_to_the_score():
    # stride 8: needs 2 x 4 MiB, moves 9 x 4 MiB: waste 2/9; active 90 % of the time
    report = a_report()
    shown = show.explained({"stride 8": report})
    assert "waste 0.22" in shown.words
    assert "idle 0.90" in shown.words
    assert "R 0.19" in shown.words
    parts = report.explanation
    assert math.isclose(parts.waste * parts.rate * parts.idle, report.sol_score)


def test_causes_of_a_score_without_traffic_are_refused():
    with pytest.raises(SolcourseError, match="cannot be taken apart"):
        show.explained({"idle": a_report(explanation=None)})


def test_every_picture_says_its_numbers_in_words():
    near, far = a_report(run=a_run(1), traffic=traffic(4 * 2**20), time_s=6e-6), a_report()
    assert "32 sectors" in show.sectors(far).words
    assert "4 sectors" in show.sectors(near).words
    assert "0.19" in show.gauge(far).words
    assert "DRAM bandwidth wins" in show.bounds(far).words
    assert "0.19 (DRAM bandwidth binds)" in show.roofline(near, far).words
    named = show.roofline({"stride 1": near, "stride 8": far}).words
    assert "1: stride 1 " in named
    assert "2: stride 8 0.19" in named


def test_a_roofline_of_nothing_is_refused():
    for nothing in ((), ({},)):
        with pytest.raises(SolcourseError, match="at least one"):
            show.roofline(*nothing)


def test_a_table_is_text_and_html_with_the_same_cells():
    table = show.devices("A100-SXM4-80GB")
    for cell in ("A100-SXM4-80GB", "19.5 TFLOP/s", "2.04 TB/s", "9.56 FLOP/B"):
        assert cell in table.words
        assert cell in table.markup
    lines = show.lines(a_report())
    assert "dst[i] = src[i * 8]" in lines.words
    assert "32.0" in lines.words  # sectors per load


def test_a_ledger_shows_what_fusion_saves():
    apart = Work.read("x", 4e6) + Work.write("t", 4e6) + Work.read("t", 4e6) + Work.write("y", 4e6)
    fused = Work.read("x", 4e6) + Work.write("y", 4e6) + Work.flop("fp32", 1e6)
    words = show.ledger(apart=apart, fused=fused).words
    assert "16.0 MB" in words
    assert "8.00 MB" in words
    assert "1.00 MFLOP" in words


def test_source_text_cannot_become_markup():
    from dataclasses import replace

    run = a_run()
    run = replace(run, lines=(replace(run.lines[1], text="dst[i] = x[i] if a<b else '<script>'"),))
    assert "<script>" not in show.lines(a_report(run=run)).markup


# ---- welcome


def test_hello_says_what_runs_the_kernels_and_whether_there_is_a_gpu(monkeypatch):
    from solcourse import timing
    from solcourse.errors import NoGPU

    def no_gpu():
        raise NoGPU("none")

    monkeypatch.setattr(timing, "gpu_name", no_gpu)
    assert "numba" in str(lesson.hello())
    assert "sol.use_engine()" in str(lesson.hello())
    assert "predicted, for the A100-SXM4-80GB" in str(lesson.hello())
    monkeypatch.setattr(timing, "gpu_name", lambda: "NVIDIA A100")
    assert "GPU found: NVIDIA A100" in str(lesson.hello())
