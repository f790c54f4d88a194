"""`pagedkv`: the verbs behind the Makefile.

A verb is a function that takes the parsed arguments and returns an exit status, and one entry in `VERBS` or
`BOOK_VERBS`. Imports that take time happen inside the verbs, so that `pagedkv --version` is instant.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagedkv import __version__
from pagedkv.errors import BadValue, PagedKVError

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

Arguments = argparse.Namespace


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """For verbs without arguments."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the command line.

    Attributes:
        name: the word typed.
        help: what it does, in one line.
        run: does it and returns the exit status.
        arguments: adds its arguments to a parser.
    """

    name: str
    help: str
    run: Callable[[Arguments], int]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    # Checked by `Parameters`, which takes longer to import than the rest of this.
    parser.add_argument("--profile", default="quick", help="how much to compute: quick, full (default quick)")
    parser.add_argument("--device", default="auto", help="where kernels run: auto, cpu, cuda (default auto)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of every generator (default 0)"
    )
    parser.add_argument("--force", action="store_true", help="execute even where nothing changed")
    parser.add_argument(
        "--cell-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds that one cell may take (default 300)",
    )


def _some_arguments(parser: argparse.ArgumentParser) -> None:
    _run_arguments(parser)
    parser.add_argument(
        "--notebook",
        action="append",
        default=[],
        metavar="NAME",
        help="only this (name or number); repeatable",
    )


def _book_run(arguments: Arguments) -> int:
    from pagedkv.book import build, layout, runner
    from pagedkv.book.parameters import Parameters

    parameters = Parameters(arguments.profile, arguments.device, arguments.seed)
    book = layout.find_layout()
    with build.locked(book):
        if arguments.force:
            runner.forget(book, arguments.notebook)
        runner.run(book, parameters, arguments.notebook, arguments.cell_timeout)
    return OK


def _book_build(arguments: Arguments) -> int:
    from pagedkv.book import build, layout, runner
    from pagedkv.book.parameters import Parameters

    parameters = Parameters(arguments.profile, arguments.device, arguments.seed)
    book = layout.find_layout()
    if arguments.force:
        runner.forget(book)
    build.build(book, parameters, arguments.cell_timeout)
    return OK


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=8000, help="port on this machine (default 8000; 0 for any)"
    )


def _book_serve(arguments: Arguments) -> int:
    from pagedkv.book import layout, serve

    serve.serve(layout.find_layout(), arguments.port)
    return OK


def _book_lint(arguments: Arguments) -> int:
    from pagedkv.book import layout, lint

    findings = lint.book(layout.find_layout())
    for finding in findings:
        print(finding, file=sys.stderr)
    return FAILED if findings else OK


def _book_clean(arguments: Arguments) -> int:
    from pagedkv.book import build, layout

    build.clean(layout.find_layout())
    return OK


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("_build/bench.json"), help="where the results go")


def _bench(arguments: Arguments) -> int:
    from pagedkv import bench

    return OK if bench.main(arguments.out) else FAILED


def _simulate_arguments(parser: argparse.ArgumentParser) -> None:
    from pagedkv.simulate import options

    options.add_arguments(parser)


def _simulate(arguments: Arguments) -> int:
    from pagedkv.simulate import verb

    return OK if verb.run(arguments) else FAILED


def _measure_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    parser.add_argument("--rounds", type=int, default=21, metavar="N", help="how often each case is timed")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("data/measurements"),
        help="folder for the record (default %(default)s)",
    )


def _measure(arguments: Arguments) -> int:
    from pagedkv.book.parameters import Parameters

    device = Parameters(device=arguments.device).device
    import torch

    from pagedkv.measure import measure_copies, records

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    measurement = measure_copies(device=device, rounds=arguments.rounds)
    print(records.describe_copies(measurement))
    print(f"recorded in {records.write_copies(measurement, arguments.out)}")
    return OK


BOOK_VERBS = (
    Verb("run", "execute the notebooks", _book_run, _some_arguments),
    Verb("build", "execute the notebooks and make the pages", _book_build, _run_arguments),
    Verb("serve", "serve the finished book on this machine", _book_serve, _serve_arguments),
    Verb("lint", "check the house rules of notebooks and pages", _book_lint),
    Verb("clean", "delete all that was made", _book_clean),
)


def _book_arguments(parser: argparse.ArgumentParser) -> None:
    _add_verbs(parser, BOOK_VERBS)


VERBS = (
    Verb("book", "run, build, serve and check the book", lambda arguments: MISUSED, _book_arguments),
    Verb("simulate", "what a trace of requests does to a pool of blocks", _simulate, _simulate_arguments),
    Verb("measure", "what moving blocks costs on this machine", _measure, _measure_arguments),
    Verb("bench", "what the memory manager's checks cost, as ratios", _bench, _bench_arguments),
)


def _add_verbs(parser: argparse.ArgumentParser, verbs: Sequence[Verb]) -> None:
    choices = parser.add_subparsers(title="verbs", metavar="VERB")
    for verb in verbs:
        added = choices.add_parser(
            verb.name, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}."
        )
        added.set_defaults(run=verb.run, parser=added)
        verb.arguments(added)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pagedkv", description="PagedAttention's memory manager, and its book."
    )
    parser.add_argument("--version", action="version", version=f"pagedkv {__version__}")
    parser.set_defaults(run=None, parser=parser)
    _add_verbs(parser, VERBS)
    return parser


def _stop(signum: int, frame: object) -> None:
    """Turn a request to terminate into an interrupt, so that kernels are shut down on the way out."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    arguments = make_parser().parse_args(argv)
    if arguments.run is None or arguments.run is VERBS[0].run:
        arguments.parser.print_help()
        return OK
    signal.signal(signal.SIGTERM, _stop)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        print("\nStopped; what was there before is unchanged.", file=sys.stderr)
        return INTERRUPTED
    except BadValue as error:
        print(f"pagedkv: {error}", file=sys.stderr)
        return MISUSED
    except PagedKVError as error:
        print(f"pagedkv: {error}", file=sys.stderr)
        return FAILED
    return status


if __name__ == "__main__":
    sys.exit(main())
