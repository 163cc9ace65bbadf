"""A real JupyterLab on a copy of the course, and a headless Chromium to use it: what the browser tests stand on."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from solcourse.__main__ import PROMPT

REPOSITORY = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run")
CONNECTED = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.connectionStatus === 'connected'"
RUN_ALL = """async () => {
    const context = jupyterapp.shell.currentWidget.sessionContext;
    await context.ready;
    await context.session.kernel.info;
    await jupyterapp.commands.execute('notebook:run-all-cells');
}"""
# the name and text of every error output of the notebook in front
ERRORS = """() => {
    const found = [];
    for (const cell of jupyterapp.shell.currentWidget.content.model.cells) {
        if (cell.type !== 'code') continue;
        for (let n = 0; n < cell.outputs.length; n++) {
            const output = cell.outputs.get(n).toJSON();
            if (output.output_type === 'error') found.push(cell.id + ': ' + output.ename + ': ' + output.evalue);
        }
    }
    return found;
}"""


def browser_path() -> str | None:
    """The Chromium to use: the system's, or the one Playwright has downloaded; None where there is none."""
    for name in BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if os.path.exists(own) else None


def course_copy(target: Path) -> Path:
    """The course as a learner gets it, in a folder of its own: saving a notebook must not change the tested one."""
    for folder in ("notebooks", "exercises", "solutions"):
        shutil.copytree(REPOSITORY / folder, target / folder, ignore=shutil.ignore_patterns("mine", "__pycache__", ".ipynb_checkpoints"))
    return target


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Lab:
    """A JupyterLab server on `course`, with all its own files under `home`. A context manager."""

    def __init__(self, course: Path, home: Path):
        self.course, self.home = course, home
        self.token, self.port = secrets.token_hex(8), free_port()

    def __enter__(self) -> Lab:
        settings = self.home / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        options = [
            "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self.course}", f"--IdentityProvider.token={self.token}", PROMPT, "--LabApp.expose_app_in_browser=True",
        ]  # fmt: skip
        self.log = (self.home / "server.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=self.course,
            env=self._environment(),
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self._wait()
        return self

    def _environment(self) -> dict[str, str]:
        own = ("CONFIG", "DATA", "RUNTIME")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "SOLCOURSE", "COV_", "PYTEST"))}
        environment |= {f"JUPYTER_{name}_DIR": str(self.home / name.lower()) for name in own}
        environment |= {"JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces")}
        return environment | {"IPYTHONDIR": str(self.home / "ipython"), "PYTHONPATH": str(REPOSITORY)}

    def _wait(self, limit_s: float = 60.0) -> None:
        until = time.monotonic() + limit_s
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={self.token}", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"JupyterLab did not start:\n{(self.home / 'server.log').read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def run_all(self, page: Any, notebook: str, limit_s: float = 120.0) -> None:
        """Opens a notebook in the page, runs every cell and waits for the last one."""
        # in a workspace of its own: the common one would open what other pages have left open
        workspace = f"lab/workspaces/{Path(notebook).stem}"
        page.goto(f"http://127.0.0.1:{self.port}/{workspace}/tree/notebooks/{notebook}?token={self.token}")
        page.wait_for_function(CONNECTED, timeout=limit_s * 1000)
        page.set_default_timeout(limit_s * 1000)
        page.evaluate(RUN_ALL)

    def theme(self, page: Any, name: str) -> None:
        """Changes JupyterLab's theme: "JupyterLab Light" or "JupyterLab Dark"."""
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
        page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
