"""Takes the README's two pictures in real JupyterLab: a panel, and the course with a lesson beside its exercise.

python docs/picture.py        # writes docs/coalescing.png and docs/course.png; needs the test packages and Chromium
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

from lab_server import FLAGS, Lab, browser_path, course_copy  # noqa: E402

LESSON, EXERCISE = "02_shared_memory_and_banks.ipynb", "ex02_transpose.py"
SHOWN = ("01_coalescing.ipynb", (3,))  # lesson of the panel; steps to the right, for each of its sliders
COLOURS = 128  # of the PNGs: no more are seen, and fewer bytes are loaded
LINE = "document.querySelector('.sol-dashboard .sol-line').textContent"
BESIDE = "async path => { await jupyterapp.commands.execute('docmanager:open', {path, options: {mode: 'split-right'}}); }"


def open_panel(lab: Lab, page: Any, notebook: str, steps: Sequence[int] = ()) -> Any:
    """Runs a lesson and moves the sliders of its first panel by keyboard. Returns the panel."""
    lab.run_all(page, notebook)
    panel = page.locator(".sol-dashboard").first
    panel.scroll_into_view_if_needed()
    panel.locator(".sol-values", has_text="SOL score").wait_for()
    for slider, count in enumerate(steps):
        panel.locator(".noUi-handle").nth(slider).focus()
        for _ in range(count):
            line = page.evaluate(f"() => {LINE}")
            page.keyboard.press("ArrowRight")
            page.wait_for_function(f"before => {LINE} !== before", arg=line)
    page.evaluate("() => document.activeElement.blur()")
    return panel


def save(picture: bytes, target: Path) -> None:
    """A screenshot as a PNG with few colours."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Takes both pictures from one server."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        course, home = Path(folder, "course"), Path(folder, "jupyter")
        home.mkdir()
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        with Lab(course_copy(course), home) as lab:
            page = browser.new_page(viewport={"width": 1300, "height": 1400}, device_scale_factor=2)
            save(open_panel(lab, page, *SHOWN).screenshot(animations="disabled"), ROOT / "docs" / "coalescing.png")
            page.close()
            page = browser.new_page(viewport={"width": 1600, "height": 900})
            open_panel(lab, page, LESSON)
            page.evaluate(BESIDE, f"exercises/mine/{EXERCISE}")
            page.locator(".jp-FileEditor .cm-line", has_text="cuda.jit").first.wait_for()
            for _ in range(4):  # cells that come into sight are drawn, and move those below
                page.locator(".sol-dashboard").first.evaluate("panel => panel.closest('.jp-Cell').scrollIntoView()")
                page.wait_for_timeout(500)
            save(page.screenshot(animations="disabled"), ROOT / "docs" / "course.png")
        browser.close()


if __name__ == "__main__":
    main()
