"""The real book, built through the real pipeline, in a real browser: what a reader gets, on any screen, offline."""

from __future__ import annotations

import gzip
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import toybook
from browser import chromium, watch
from pagedkv.book import build, records, runner, serve, staging
from pagedkv.book.exercises import CHECK_MIME, CHECKERS
from pagedkv.book.layout import Layout
from pagedkv.book.pages import anchor
from pagedkv.book.parameters import Parameters

# One worker, so that the book is built once and one browser serves all.
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.browser]

BOOK = Layout(toybook.ROOT)
PAGES = [*build.expected_pages(BOOK), "search", "genindex"]
PAGE_BUDGET = 400_000
FIGURE_BUDGET = 40_000
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
SETTLED = """async () => {
  await document.fonts.ready;
  if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise;
}"""


@pytest.fixture(scope="session")
def site() -> Path:
    """The finished book; made first where it is not up to date."""
    return build.build(BOOK, Parameters())


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the book is served."""
    with serve.make_server(BOOK, 0) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def visit(browser: Any, site: Path, address: str) -> Iterator[Any]:
    """Opens a page of the book, waits until it has settled, and checks that nothing went wrong on the way."""
    contexts = []

    def open_page(name: str, from_disk: bool = False, **options: Any) -> Any:
        base = site.as_uri() if from_disk else address
        context = browser.new_context(**{"viewport": DESK, **options})
        contexts.append(context)
        page = context.new_page()
        trouble = watch(page, base)
        page.goto(f"{base}/{name}.html", wait_until="load")
        if options.get("java_script_enabled", True):
            page.evaluate(SETTLED)
            page.wait_for_timeout(350)  # the theme marks scrollable boxes a moment late
        else:  # a browser without scripts gives up those that the page asked it to load ahead
            trouble = [entry for entry in trouble if not re.match(r"failed: .*\.js\b", entry)]
        assert trouble == []
        return page

    yield open_page
    for context in contexts:
        context.close()


def violations(page: Any) -> list[str]:
    """What axe-core finds wrong, as "rule: element"."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]


@pytest.mark.parametrize(
    ("theme", "viewport"),
    [("light", DESK), ("dark", DESK), ("light", PHONE)],
    ids=["light", "dark", "phone"],
)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_and_quiet(name: str, theme: str, viewport: dict[str, int], visit: Any) -> None:
    page = visit(name, viewport=viewport, color_scheme=theme)
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]  # no sideways scroll
    assert violations(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_from_disk(name: str, visit: Any) -> None:
    page = visit(name, from_disk=True)
    assert page.locator("main h1:visible").count() == 1
    assert page.locator("pagedkv-figure").count() == page.locator("pagedkv-figure[data-ready]").count()


@pytest.mark.parametrize("name", build.expected_pages(BOOK))
def test_a_page_reads_without_javascript(name: str, visit: Any) -> None:
    page = visit(name, java_script_enabled=False)
    assert page.locator("main h1:visible").count() == 1
    figures = page.locator("pagedkv-figure")
    for figure in range(figures.count()):
        assert figures.nth(figure).inner_text().strip()


@pytest.mark.parametrize("name", build.expected_pages(BOOK))
def test_a_page_is_light(name: str, browser: Any, site: Path, address: str) -> None:
    sizes: dict[str, int] = {}
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.on(
        "requestfinished",
        lambda request: sizes.setdefault(request.url, compressed(site, address, request.url)),
    )
    page.goto(f"{address}/{name}.html", wait_until="networkidle")
    context.close()
    counted = {url: size for url, size in sizes.items() if not re.search(r"/mathjax/|\.woff2?(\?|$)", url)}
    assert sum(counted.values()) < PAGE_BUDGET, sorted(counted.items(), key=lambda item: -item[1])[:8]
    for kind, figure in re.findall(
        r'<pagedkv-figure kind="([\w-]+)">(.*?)</pagedkv-figure>',
        (site / f"{name}.html").read_text(),
        re.DOTALL,
    ):
        code = (site / f"_static/pagedkv/{kind}.js").read_bytes()
        assert len(gzip.compress(code + figure.encode())) < FIGURE_BUDGET, kind


def compressed(site: Path, address: str, url: str) -> int:
    """Size of what `url` brings, as a server that compresses would send it."""
    file = site / re.sub(r"[?#].*", "", url.removeprefix(address)).lstrip("/")
    return len(gzip.compress(file.read_bytes())) if file.is_file() else 0


def test_searching_finds_a_page(visit: Any) -> None:
    page = visit("search")
    page.goto(f"{page.url}?q=block")
    page.wait_for_selector("#search-results li a", timeout=10_000)


def test_the_front_door_leads_home(browser: Any, site: Path) -> None:
    home = f"{build.expected_pages(BOOK)[0]}.html"
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url(f"**/{home}")
    context.close()
    assert f'<a href="{home}">' in (site / "index.html").read_text()  # for who does not follow a refresh


def test_every_claim_is_listed_and_leads_to_its_cell(site: Path) -> None:
    claims = records.read_json(BOOK.claims)
    assert claims
    listed = (site / "book/claims.html").read_text()
    for claim in claims:
        assert {"key", "section", "kind", "value", "unit", "low", "high", "holds", "source", "device"} <= set(
            claim
        )
        assert claim["holds"]
        target = f"notebooks/{claim['notebook']}.html"
        assert f'href="../{target}#{anchor(claim["key"])}"' in listed
        assert f'id="{anchor(claim["key"])}"' in (site / target).read_text()


def test_two_builds_agree(site: Path, tmp_path: Path) -> None:
    # Unseeded generators would draw other figures at each build: QuantEcon/lecture-python-intro#833.
    shutil.copytree(BOOK.notebooks, tmp_path / "notebooks")
    again = Layout(tmp_path)
    runner.run(again, Parameters())
    for notebook in sorted(BOOK.notebooks.glob("*.ipynb")):
        first, second = (
            staging.present(nbformat.read(layout.executed / notebook.name, as_version=4), notebook)
            for layout in (BOOK, again)
        )
        for number, (one, two) in enumerate(zip(first.cells, second.cells, strict=True), 1):
            assert one == two, f"{notebook.name}, cell {number}"
    assert records.read_json(again.claims) == records.read_json(BOOK.claims)


def test_every_internal_link_leads_somewhere(site: Path) -> None:
    ids: dict[Path, set[str]] = {}
    for path in site.rglob("*.html"):
        for href in re.findall(r'<a\b[^>]*?href="([^"]+)"', path.read_text()):
            if re.match(r"[a-z]+:", href):
                continue
            name, _, fragment = href.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), f"{path.name}: {href}"
            if fragment and target.suffix == ".html":
                if target not in ids:
                    ids[target] = set(re.findall(r'\bid="([^"]+)"', target.read_text()))
                assert fragment in ids[target], f"{path.name}: {href}"


def test_pages_tell_nothing_of_the_machine_they_were_made_on(site: Path) -> None:
    private = re.compile(
        "|".join(map(re.escape, (str(BOOK.root), str(Path.home()) + "/", "site-packages", "/tmp/")))
    )
    for path in [*site.rglob("*.html"), *site.rglob("*.ipynb"), *site.rglob("*.js")]:
        found = private.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found}"


@pytest.mark.parametrize("path", sorted(BOOK.notebooks.glob("*.ipynb")), ids=lambda path: path.stem)
def test_solutions_pass_and_unfilled_stubs_do_not(path: Path, site: Path) -> None:
    verdicts: dict[str, dict[str, bool]] = {"exercise": {}, "solution": {}}
    for cell in nbformat.read(BOOK.executed / path.name, as_version=4).cells:
        for output in cell.get("outputs", []):
            if (check := output.get("data", {}).get(CHECK_MIME)) is not None:
                (tag,) = {"exercise", "solution"} & set(cell.metadata.get("tags", []))
                assert check["id"] not in verdicts[tag]
                verdicts[tag][check["id"]] = check["passed"]
    assert len(verdicts["solution"]) >= 3
    assert set(verdicts["solution"]) == set(verdicts["exercise"])
    assert all(verdicts["solution"].values()) and not any(verdicts["exercise"].values())


def test_every_exercise_stands_in_a_notebook() -> None:
    numbers = re.findall(
        r'check\(\\"(\d\.\d)\\"', "".join(p.read_text() for p in BOOK.notebooks.glob("*.ipynb"))
    )
    assert set(numbers) == set(CHECKERS)
