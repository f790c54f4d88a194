"""Tables on a page: pandas does the work, with a caption, header cells that screen readers understand, and a box
that scrolls instead of the page."""

from __future__ import annotations

import html
from collections.abc import Mapping


def table(rows: Mapping[str, Mapping[str, object]], caption: str, digits: int = 1) -> None:
    """Display a table.

    Args:
        rows: row label -> {column -> value}; a missing value is shown as a dash, an underscore in a column as a space.
        caption: what the table says.
        digits: decimals of floats; whole numbers get thousands separators.
    """
    import pandas as pd
    from IPython.display import display

    plain_rows = {row: {str(c).replace("_", " "): v for c, v in cells.items()} for row, cells in rows.items()}
    columns = list(dict.fromkeys(column for cells in plain_rows.values() for column in cells))
    body_rows = [[cells.get(column) for column in columns] for cells in plain_rows.values()]
    frame = pd.DataFrame(body_rows, index=list(plain_rows), columns=columns, dtype=object)

    def text(value: object) -> str:
        if value is None or value != value:
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return f"{value:,.{digits}f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    body = frame.map(text).to_html(border=0, classes="pkv-table", justify="left")
    body = body.replace("<thead>", f"<caption>{html.escape(caption)}</caption><thead>")
    # pandas leaves header cells without a scope, and the corner empty.
    head, rest = body.split("</thead>")
    head = head.replace("<th></th>", "<td></td>").replace("<th>", '<th scope="col">')
    body = head + "</thead>" + rest.replace("<th>", '<th scope="row">')
    plain = f"{caption}\n{frame.map(text).to_string()}"
    display(
        {"text/html": f'<div class="pkv-scroll" tabindex="0">{body}</div>', "text/plain": plain}, raw=True
    )
