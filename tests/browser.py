"""A real Chromium for tests: found, started once per module, and watched for errors and outside requests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagedkv.book.figures import JS_DIR, SCRIPTS, Figure

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium(playwright: Any) -> str | None:
    """The browser's path: $PAGEDKV_CHROMIUM, one on PATH, or Playwright's own download."""
    named = os.environ.get("PAGEDKV_CHROMIUM")
    if named:
        return named
    own = playwright.chromium.executable_path
    return next(filter(None, map(shutil.which, NAMES)), own if Path(own).exists() else None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser. Without one the test is skipped, or fails when $PAGEDKV_REQUIRE_BROWSER is 1."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            missing = (
                "no Chromium found; install one (Debian, Ubuntu: apt-get install chromium; elsewhere: "
                "python -m playwright install chromium), or set PAGEDKV_CHROMIUM to its path"
            )
            assert os.environ.get("PAGEDKV_REQUIRE_BROWSER") != "1", missing
            pytest.skip(missing)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def pages(
    browser: Any, folder: Path, default: Callable[[], Figure], height: int = 1200
) -> Iterator[Callable[..., Any]]:
    """A function that opens figures on a page of their own; afterwards nothing may have gone wrong on any."""
    opened = []

    def open_page(
        *shown: Figure,
        figure: Figure | None = None,
        theme: str = "light",
        html: str | None = None,
        **options: Any,
    ) -> Any:
        file = folder / f"page{len(opened)}.html"
        file.write_text(html or page_with(list(shown) or [figure or default()], theme), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1200, "height": height}, **options})
        page = context.new_page()
        opened.append((context, watch(page)))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context, trouble in opened:
        context.close()
        assert trouble == []


def watch(page: Any, allowed: str = "file:") -> list[str]:
    """The list that collects what should not happen on `page`: errors, and requests outside the `allowed` prefix."""
    trouble: list[str] = []
    page.on(
        "console", lambda m: trouble.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on("requestfailed", lambda request: trouble.append(f"failed: {request.url}"))

    def route(route: Any) -> None:
        url = route.request.url
        if url.startswith((allowed, "data:", "blob:")):
            route.continue_()
        else:
            trouble.append(f"outside: {url}")
            route.abort()

    page.route("**/*", route)
    return trouble


THEME = """
html{--pst-color-background:#fff;--pst-color-text-base:#222832;--pst-color-text-muted:#48566b;--pst-color-border:#d1d5da}
html[data-theme=dark]{--pst-color-background:#14181e;--pst-color-text-base:#ced6dd;--pst-color-text-muted:#9ca4af;
  --pst-color-border:#48566b;color-scheme:dark}
body{margin:0;background:var(--pst-color-background);color:var(--pst-color-text-base);font:16px sans-serif}
main{max-width:680px;margin:0 auto;padding:0 1rem}
"""
"""The variables of the book's theme that figures read, with its colours."""


def page_with(figures: list[Figure], theme: str = "light") -> str:
    """A page like one of the book, with these figures on it and their scripts deferred."""
    names = dict.fromkeys(name for figure in figures for name in SCRIPTS[figure.kind])
    scripts = "".join(f'<script defer src="{(JS_DIR / name).as_uri()}"></script>' for name in names)
    body = "".join(f'<div class="output text_html">{figure.to_html()}</div>' for figure in figures)
    return (
        f'<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8"><title>Figures</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{THEME}</style>{scripts}</head>'
        f"<body><main><h1>Figures</h1>{body}</main></body></html>"
    )
