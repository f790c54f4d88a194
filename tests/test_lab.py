"""In a real JupyterLab a figure is live: the kernel sees what the reader selects, and moves the picture."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import chromium

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[1]
TOKEN = "course"
CELLS = [
    "from pagedkv.book import figures\nfig = figures.block_table()\nfig",
    "print(fig.state['token'], fig.state['block_size'], fig.state['slot'])",
    "fig.state = {'token': 3}",
]


def notebook() -> dict[str, Any]:
    cells = [
        {
            "cell_type": "code",
            "id": f"c{i}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for i, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """Address of a JupyterLab that serves one notebook, with settings of its own."""
    pytest.importorskip("jupyterlab")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "figure.ipynb").write_text(json.dumps(notebook()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
    ]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={tmp_path / 'files'}"]
    command += ["--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(f"{address}/api/status?token={TOKEN}", server, tmp_path / "log")
            yield f"{address}/lab/tree/figure.ipynb?token={TOKEN}"
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.25)
    raise AssertionError(log.read_text()[-2000:])


def test_the_figure_is_live_and_the_kernel_sees_the_selection(lab: str) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(lab)
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=60_000)
        run(page, 0)
        figure = page.locator(".jp-OutputArea-output .pkv")
        figure.wait_for(timeout=30_000)
        assert page.locator("pagedkv-figure").count() == 0, (
            "the notebook shows the live widget, not the static twin"
        )
        read = figure.locator(".read")
        assert read.inner_text() == "Token 21: logical block 1, offset 5 -> physical block 7, slot 117"

        # The reader selects, the kernel knows.
        figure.get_by_role("radio", name="Token 9", exact=True).check()
        figure.locator("input[type=range]").press("ArrowRight")
        shown = read.inner_text()
        page.wait_for_timeout(400)
        run(page, 1)
        said = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
        said.wait_for()
        assert said.inner_text().split() == ["9", "32", shown.rsplit(" ", 1)[1]]

        # The kernel sets, the picture follows.
        run(page, 2)
        page.wait_for_function("document.querySelector('.pkv .read').textContent.startsWith('Token 3:')")
        assert figure.locator(".chart label").inner_text() == "Block size: 32 tokens"
        assert errors == []


PROMPT = "i => document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')[i].textContent"
ANSWERED = f"i => /\\[\\d+\\]:/.test(({PROMPT})(i))"


def run(page: Any, cell: int) -> None:
    """Run one cell, and wait until its kernel has answered."""
    for _ in range(10):
        page.locator(".jp-CodeCell").nth(cell).locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(500)
        # Keys pressed while the page is still settling can be lost: the prompt says whether they were heard.
        if page.evaluate(PROMPT, cell) != "[ ]:":
            break
    page.wait_for_function(ANSWERED, arg=cell)
