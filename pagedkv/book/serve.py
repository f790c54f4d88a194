"""Serves the finished book on this machine, for reading and for looking at a change."""

from __future__ import annotations

import functools
import http.server

from pagedkv.book.layout import Layout
from pagedkv.errors import BookFailed


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and does not print a line for each."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def make_server(layout: Layout, port: int) -> http.server.ThreadingHTTPServer:
    """A server of the finished book, bound to this machine only; port 0 takes a free one.

    Raises:
        BookFailed: when there is no book yet, or the port is taken.
    """
    if not (layout.html / "index.html").is_file():
        raise BookFailed(f"there is no book at {layout.html} yet; make it with: make book")
    handler = functools.partial(QuietHandler, directory=str(layout.html))
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise BookFailed(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from error


def serve(layout: Layout, port: int) -> None:
    """Serve until interrupted."""
    with make_server(layout, port) as server:
        print(f"The book is at http://127.0.0.1:{server.server_port}/  (Ctrl-C stops)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nStopped.")
