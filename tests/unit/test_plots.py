"""The matplotlib pictures: the same numbers, no pyplot state, no warning."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from reports_by_hand import A100, N, a_report, traffic

from solcourse import plots
from solcourse.svg import ORANGE

GOOD = a_report(time_s=5e-6, traffic=traffic(4 * N, 4 * N))


def saved(ax) -> bytes:
    target = io.BytesIO()
    ax.figure.savefig(target, format="png", dpi=40)
    return target.getvalue()


def test_bounds_draws_each_bound_and_marks_the_winner():
    from matplotlib.colors import to_hex

    ax = a_report().plot()
    widths = [bar.get_width() for bar in ax.patches[:8]]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 18.5e-6
    assert [to_hex(bar.get_facecolor()) == ORANGE.lower() for bar in ax.patches[:8]] == [True] + 7 * [False]
    assert "predicted" in ax.get_title()
    assert "SOL score 0.19 of an attainable 0.85" in ax.get_title()
    assert saved(ax).startswith(b"\x89PNG")


def test_roofline_names_every_attempt_and_both_limits():
    ax = plots.roofline(A100, [a_report(), GOOD])
    legend = " ".join(t.get_text() for t in ax.get_legend().get_texts())
    for said in ("1 copy_strided", "2 copy_strided", "attainable (0.85)", "DRAM 2.04 TB/s"):
        assert said in legend
    assert saved(ax)


def test_an_empty_roofline_is_the_data_sheet():
    ax = plots.roofline(A100)
    assert "data sheet" in ax.get_title()
    assert saved(ax)


def test_what_if_is_sorted_by_time():
    ax = plots.what_if([a_report(on="Tesla T4", time_s=90e-6), GOOD])
    assert [label.get_text() for label in ax.get_yticklabels()] == [A100, "Tesla T4"]
    assert saved(ax)


def test_pictures_can_share_a_figure():
    from matplotlib.figure import Figure

    left, right = Figure(layout="constrained").subplots(1, 2)
    assert plots.bounds(a_report(), ax=left) is left
    assert plots.roofline(A100, [GOOD], ax=right) is right
    assert saved(left)


@pytest.mark.parametrize("module", ["solcourse.plots", "solcourse.report", "solcourse.figures", "solcourse.report_html"])
def test_importing_draws_nothing_in(module):
    code = f"import sys, {module}; print([m for m in ('matplotlib', 'numba', 'ipywidgets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_drawing_touches_no_pyplot_state():
    code = "import sys; sys.path[:0] = ['tests/unit']; from reports_by_hand import a_report; a_report().plot(); "
    code += "print('matplotlib.pyplot' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "False"


def test_attempts_of_one_kernel_are_told_apart_by_their_intensity():
    from solcourse.work import Work

    bytes_ = Work.read("x", 4 * N) + Work.write("y", 4 * N)
    attempts = [a_report(work=bytes_ + Work.flop("fp32", f * N), traffic=traffic(4 * N, 4 * N)) for f in (16, 512)]
    legend = " ".join(t.get_text() for t in plots.roofline(A100, attempts).get_legend().get_texts())
    assert "1 copy_strided: SOL score 0.19 at 2.00 FLOP/B" in legend  # 16 FLOPs / 8 bytes
    assert "at 64.0 FLOP/B" in legend
