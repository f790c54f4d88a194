"""Sphinx extension of the book: claims in prose, generated tables, and pages that fetch nothing from elsewhere.

In a page, {claim}`waste.contiguous.used` is the claim's text and {claim}`waste.contiguous.used:.0f` its bare number;
an unknown key is a warning, and warnings stop the build. The directives `claims-table` and `run-table` make the
generated tables.
"""

from __future__ import annotations

import html
import posixpath
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from pagedkv.book import assets, pages, polish, records
from pagedkv.errors import BadValue

logger = logging.getLogger(__name__)

DESCRIPTION_LENGTH = 200


class ClaimRole(SphinxRole):
    """A claim's text within a sentence, leading to the cell that makes it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The claim as a link; an unknown key is a warning."""
        try:
            text, record = pages.fill(self.text, _claims(self.env.app))
        except BadValue as error:
            logger.warning(str(error), location=self.get_location())
            return [nodes.inline(text=self.text)], []
        link = pages.Link(text, f"notebooks/{record['notebook']}", pages.anchor(record["key"]))
        node = _reference(link, self.env.docname)
        node["classes"].append("pkv-number")
        return [node], []


class ClaimsTable(SphinxDirective):
    """All claims, a section and a table per notebook."""

    def run(self) -> list[nodes.Node]:
        """Sections of tables."""
        app = self.env.app
        tables = pages.claims_tables(list(_claims(app).values()), _record(app, "run.json"))
        made: list[nodes.Node] = []
        for table in tables:
            section = nodes.section("", nodes.title(text=table.title))
            self.state.document.note_implicit_target(section)
            section += _table(table, self.env.docname)
            made.append(section)
        return made or [nodes.paragraph(text="No notebook has stated a claim yet.")]


class RunTable(SphinxDirective):
    """One table about how the notebooks were run: notebooks, inputs, machine or versions."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table; an unknown name is a warning."""
        try:
            table = pages.run_table(self.arguments[0], _record(self.env.app, "run.json"))
        except BadValue as error:
            logger.warning(str(error), location=self.get_location())
            return []
        return [_table(table, self.env.docname)] if table.rows else [nodes.paragraph(text="None.")]


def _record(app: Sphinx, name: str) -> Any:
    return records.read_json(Path(app.srcdir) / name) or {}


def _claims(app: Sphinx) -> dict[str, records.Record]:
    return {record["key"]: record for record in _record(app, "claims.json")}


def _reference(link: pages.Link, docname: str) -> nodes.reference:
    target = posixpath.relpath(f"{link.document}.html", posixpath.dirname(docname) or ".")
    target += f"#{link.anchor}" if link.anchor else ""
    return nodes.reference("", link.text, internal=True, refuri=target)


def _part(part: pages.Part, docname: str) -> nodes.Node:
    if isinstance(part, pages.Link):
        return nodes.paragraph("", "", _reference(part, docname))
    if isinstance(part, pages.Code):
        return nodes.paragraph("", "", nodes.literal(text=part.text))
    return nodes.paragraph(text=part)


def _row(cells: Any, docname: str) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        parts = cell if isinstance(cell, tuple) else (cell,)
        row += nodes.entry("", *(_part(part, docname) for part in parts))
    return row


def _table(table: pages.Table, docname: str) -> nodes.table:
    group = nodes.tgroup(cols=len(table.heads))
    group.extend(nodes.colspec(colwidth=1) for _ in table.heads)
    group += nodes.thead("", _row(table.heads, docname))
    body = nodes.tbody()
    body.extend(_row(cells, docname) for cells in table.rows)
    group += body
    return nodes.table("", group, classes=["pkv-records", "colwidths-auto"])


def _configure(app: Sphinx, config: Any) -> None:
    config.mathjax_path = assets.MATHJAX_PATH
    config.templates_path = [*config.templates_path, str(assets.TEMPLATES)]
    edition = _record(app, "edition.json")
    if edition:
        dated = f", {edition['date']}" if edition["date"] else ""
        footer = f"<p>Version {html.escape(edition['version'])}{html.escape(dated)}</p>"
        config.html_theme_options = {**config.html_theme_options, "extra_footer": footer}


def _install(app: Sphinx) -> None:
    if app.builder.format == "html":
        assets.install(Path(app.outdir) / "_static")


def _page(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    body = context["body"] = polish.body(context.get("body", ""))
    context["without_icon_script"] = polish.without_icon_script
    app.add_css_file(assets.STYLESHEET)
    for script in assets.figure_scripts(body):
        app.add_js_file(script, loading_method="defer")
    if 'name="description"' not in context.get("metatags", ""):
        text = html.escape(describe(doctree) or app.config.html_title, quote=True)
        context["metatags"] = f'{context.get("metatags", "")}\n<meta name="description" content="{text}" />\n'


def _only_needed(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop scripts that come twice, live code (which names another host), and MathJax where there is no formula."""
    unwanted = ["thebe", "THEBE"]
    if not polish.has_math(context["body"]):
        unwanted += ["mathjax", "MathJax"]
    kept: dict[tuple[str, str], Any] = {}
    for script in context.get("script_files", []):
        name = str(getattr(script, "filename", script))
        code = getattr(script, "attributes", {}).get("body") or ""
        if not any(word in f"{name} {code}" for word in unwanted):
            kept.setdefault((name, code), script)
    context["script_files"] = list(kept.values())
    context["css_files"] = [style for style in context["css_files"] if "thebe" not in str(style)]


def _finish(app: Sphinx, error: Exception | None) -> None:
    if app.builder.format == "html" and error is None:
        polish.prune(Path(app.outdir) / "_static")


def describe(doctree: nodes.document | None) -> str:
    """First paragraph of prose, cut at a word, for search engines and link previews."""
    for paragraph in doctree.findall(nodes.paragraph) if doctree is not None else ():
        text = paragraph.astext().strip()
        if isinstance(paragraph.parent, nodes.section) and text:
            return textwrap.shorten(text, DESCRIPTION_LENGTH, placeholder=" …")
    return ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register roles, directives and page hooks."""
    app.add_role("claim", ClaimRole())
    app.add_directive("claims-table", ClaimsTable)
    app.add_directive("run-table", RunTable)
    app.connect("config-inited", _configure)
    app.connect("builder-inited", _install)
    app.connect("html-page-context", _page)
    app.connect("html-page-context", _only_needed, priority=900)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
