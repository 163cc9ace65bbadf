"""One Chromium and one JupyterLab for all the browser tests of a process."""

from __future__ import annotations

import os

import pytest
from lab_server import FLAGS, Lab, browser_path, course_copy


@pytest.fixture(scope="session")
def chromium():
    path = browser_path()
    if path is None:
        reason = "no Chromium on this machine: install chromium, or run `playwright install chromium`"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(chromium, tmp_path_factory):
    with Lab(course_copy(tmp_path_factory.mktemp("course")), tmp_path_factory.mktemp("jupyter")) as server:
        yield server
