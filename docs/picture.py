"""Takes the README's picture: the coalescing panel of lesson 01 at stride 4, in real JupyterLab.

python docs/picture.py        # writes docs/coalescing.png; needs the test packages and Chromium
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

from lab_server import FLAGS, Lab, browser_path, course_copy  # noqa: E402

PICTURE = ROOT / "docs" / "coalescing.png"
LINE = "document.querySelector('.sol-dashboard .sol-line').textContent"


def take(target: Path, stride: int = 4) -> None:
    """Opens lesson 01, moves the stride slider and takes a picture of the panel."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        course, home = Path(folder, "course"), Path(folder, "jupyter")
        home.mkdir()
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        with Lab(course_copy(course), home) as lab:
            page = browser.new_page(viewport={"width": 1300, "height": 1400})
            lab.run_all(page, "01_coalescing.ipynb")
            page.locator(".sol-exercise button", has_text="Score").wait_for()
            panel = page.locator(".sol-dashboard").first
            panel.scroll_into_view_if_needed()
            panel.locator(".sol-values", has_text="SOL score").wait_for()
            panel.locator(".noUi-handle").first.focus()
            for _ in range(stride - 1):
                line = page.evaluate(f"() => {LINE}")
                page.keyboard.press("ArrowRight")
                page.wait_for_function(f"before => {LINE} !== before", arg=line)
            page.evaluate("() => document.activeElement.blur()")
            panel.screenshot(path=target, animations="disabled")
        browser.close()


if __name__ == "__main__":
    take(PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
