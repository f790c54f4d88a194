"""Figure 3, one prefix and many futures: samples that share a prompt's blocks, and copy one when they must.

Python makes the prompt's table in a real `BlockPool`, for every prompt length that the reader can choose. The samples
are forks of it; what the reader writes from there is done by the port of the manager in `js/manager.js`. Everything
that the figure says is also computed here, with `BlockTable` itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.book.figures.base import Figure, look
from pagedkv.errors import BadValue, require_count
from pagedkv.tables import BlockTable

NAMES = "ABCDEF"
SAMPLES = (2, 3, 4, 5, 6)
PROMPTS = (5, 6, 7, 8, 9, 10, 11, 12)
BLOCK_SIZE = 4
WRITES = 4
"""Tokens that the figure lets each sample write: enough to copy, to append in place and to need a new block."""
NUM_BLOCKS = 15
"""One more than any choice of prompt, samples and writes can need."""

EACH = "*"
"""The action that writes one token into each sample, in order, as decoding a batch does."""

STATES = ("tokens", "shared", "free")

CAPTION = (
    "One prefix, many futures: all samples point at the prompt's blocks, and a block that several tables share "
    "carries its reference count. Whoever first writes into a shared, partly filled block copies that one block; the "
    "last holder writes in place, and a prompt that ends on a block boundary copies nothing."
)
"""Two sentences for the paragraph beside the figure; the page without JavaScript opens with them."""


@dataclass(frozen=True, slots=True)
class Write:
    """One token written into one sample, and what it took.

    Attributes:
        sample: its letter.
        what: "copy" (a shared block was copied first), "last" (in place, as the last holder of a prompt's block),
            "own" (in place in a block of its own), "first" (a new block right after a prompt that ends on a block
            boundary) or "next" (a new block, the one before being full).
        position: of the token in its sequence.
        block: physical block that holds it.
        before: physical block that the sample's last table entry named before.
        holders: table entries that pointed at `before`, this sample's included.
    """

    sample: str
    what: str
    position: int
    block: int
    before: int
    holders: int


@dataclass(slots=True)
class Samples:
    """The samples of one prompt over their pool, and every write so far, grouped by action."""

    prompt: int
    pool: BlockPool
    tables: list[BlockTable]
    actions: list[list[Write]]

    @property
    def copies(self) -> int:
        """Blocks copied so far."""
        return sum(write.what == "copy" for action in self.actions for write in action)

    @property
    def without_sharing(self) -> int:
        """Blocks that separate caches of these lengths would hold."""
        return sum(blocks_needed(table.length, BLOCK_SIZE) for table in self.tables)

    @property
    def saved(self) -> float:
        """Blocks that sharing saves now, in percent of those without it."""
        return 100 * (self.without_sharing - self.pool.num_used) / self.without_sharing


def copy_on_write(prompt: int = 6, samples: int = 4, *, writes: Iterable[str] = ()) -> Figure:
    """Figure 3: write tokens into samples of one prompt, and see the one block that is copied.

    Args:
        prompt: its length in tokens, 5 to 12 at 4 tokens per block; 8 and 12 end on a block boundary.
        samples: how many, 2 to 6.
        writes: actions that have been taken already: a sample's letter, or "*" for one token into each.

    Raises:
        BadValue: for a prompt, a number of samples or a write that the figure cannot show.
    """
    if prompt not in PROMPTS or samples not in SAMPLES:
        raise BadValue(
            f"the figure shows prompts of {PROMPTS[0]} to {PROMPTS[-1]} tokens and {SAMPLES[0]} to {SAMPLES[-1]} "
            f"samples, not {prompt!r} and {samples!r}"
        )
    history = list(writes)
    shown = play(require_count("prompt", prompt), require_count("samples", samples), history)
    start: dict[str, Any] = {}
    for length in PROMPTS:
        fresh = play(length, 1, ())
        start[str(length)] = {"free": fresh.pool.free_list(), "blocks": tuple(fresh.tables[0].blocks)}
    return Figure(
        kind="copy-on-write",
        title="One prefix, many futures: samples of one prompt, their block tables, and the blocks they share",
        data={
            "block_size": BLOCK_SIZE,
            "num_blocks": NUM_BLOCKS,
            "names": NAMES,
            "samples": SAMPLES,
            "writes": WRITES,
            "each": EACH,
            "start": start,
        },
        state=selection(shown, history),
        states=STATES,
        fallback=_fallback(prompt, samples, history),
    )


def play(prompt: int, samples: int, actions: Sequence[str]) -> Samples:
    """Fork `samples` tables from one prompt and take `actions` in order.

    Raises:
        BadValue: for an action that is no sample's letter, or a sample without room for another token.
    """
    pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE)
    parent = BlockTable(pool)
    parent.extend(prompt)
    state = Samples(prompt, pool, [parent, *(parent.fork() for _ in range(samples - 1))], [])
    names = NAMES[:samples]
    for action in actions:
        if action != EACH and (len(action) != 1 or action not in names):
            raise BadValue(f"a write is one of {', '.join(names)} or {EACH!r} for each, not {action!r}")
        room = [
            name
            for name, table in zip(names, state.tables, strict=True)
            if action in (EACH, name) and table.length < prompt + WRITES
        ]
        if not room:
            raise BadValue(f"the figure has room for {WRITES} tokens per sample; {action!r} is one too many")
        state.actions.append([_write(state, name) for name in room])
    return state


def _write(state: Samples, name: str) -> Write:
    table = state.tables[NAMES.index(name)]
    position, before = table.length, table.blocks[-1]
    holders = state.pool.reference_count(before)
    in_place, in_new_block = ("last", "first") if position == state.prompt else ("own", "next")
    what = in_place if table.slack else in_new_block
    if table.append() is not None:
        what = "copy"
    return Write(name, what, position, table.blocks[-1], before, holders)


def selection(state: Samples, actions: Sequence[str]) -> dict[str, Any]:
    """What the figure reports to the kernel, under the names that its `state` has."""
    return {
        "prompt": state.prompt,
        "samples": len(state.tables),
        "writes": list(actions),
        "tables": [list(table.blocks) for table in state.tables],
        "references": [state.pool.reference_count(block) for block in range(NUM_BLOCKS)],
        "copies": state.copies,
        "live": state.pool.num_used,
        "without_sharing": state.without_sharing,
        "saved": state.saved,
    }


def read_out(state: Samples) -> str:
    """The sentence that says what the last action did, or how things stand before the first."""
    if not state.actions:
        blocks, slack = state.tables[0].blocks, state.tables[0].slack
        shared = f"{len(state.tables)} samples share the prompt's {len(blocks)} blocks"
        if not slack:
            return f"{shared}, and all of them are full: no sample will ever write into one."
        return (
            f"{shared}. Block {blocks[-1]} has {_plural(slack, 'slot')} left: "
            f"whoever writes there while others hold it must copy it first."
        )
    action = state.actions[-1]
    if len(action) == 1:
        return f"Sample {action[0].sample} writes{_alone(action[0])}."
    groups: dict[tuple[str, int], list[Write]] = {}
    for write in action:
        groups.setdefault((write.what, write.before if write.what == "copy" else -1), []).append(write)
    return f"One into each: {'; '.join(_together(group) for group in groups.values())}."


def _alone(write: Write) -> str:
    carried, left = write.position % BLOCK_SIZE, write.holders - 1
    keep = f"{left} others keep block {write.before}"
    return {
        "copy": f": block {write.before} is shared by {write.holders}, so its {_plural(carried, 'token')} "
        f"{'is' if carried == 1 else 'are'} copied to block {write.block}; "
        f"{keep if left > 1 else f'1 other keeps block {write.before}, now for itself'}",
        "last": f" token {write.position} in place: "
        f"it is the last holder of block {write.block}, so nothing is copied",
        "own": f" token {write.position} in place: block {write.block} is its own",
        "first": f": the prompt ends on a block boundary, so nothing is copied; "
        f"token {write.position} goes into new block {write.block}",
        "next": f": its block {write.before} is full, so token {write.position} goes into new block {write.block}",
    }[write.what]


def _together(group: Sequence[Write]) -> str:
    many = len(group) > 1
    who, blocks = _and([write.sample for write in group]), _and([write.block for write in group])
    block = f"block{'s' if many else ''} {blocks}"
    first = group[0]
    return {
        "copy": f"{who} {'copy' if many else 'copies'} block {first.before} "
        f"({_plural(first.position % BLOCK_SIZE, 'token')}) to {block}",
        "last": f"{who}, the last holder of block {blocks}, writes in place",
        "own": f"{who} {'write' if many else 'writes'} in place, into {block} of {'their' if many else 'its'} own",
        "first": f"the prompt ends on a block boundary, so nothing is copied; "
        f"{who} {'take' if many else 'takes'} new {block}",
        "next": f"{who} {'have' if many else 'has'} filled {'their blocks' if many else 'its block'} and "
        f"{'take' if many else 'takes'} new {block}",
    }[first.what]


def _and(words: Sequence[object]) -> str:
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def _plural(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """One decimal, and exactly half a step up, as the script rounds."""
    return f"{math.floor(10 * share + 0.5) / 10:.1f} %"


def _fallback(prompt: int, samples: int, history: Sequence[str]) -> str:
    """The story write by write, the pool at its end, and what other prompt lengths would cost."""
    story = list(history) or list(NAMES[:samples])
    steps = [play(prompt, samples, story[:count]) for count in range(len(story) + 1)]
    told = "".join(f"<tr><td>{read_out(step)}</td>{_numbers(step)}</tr>" for step in steps)
    lengths = "".join(
        f'<tr><th scope="row">{other.prompt} tokens{"" if other.prompt % BLOCK_SIZE else ", block boundary"}</th>'
        f"{_numbers(other)}</tr>"
        for other in (play(length, samples, (EACH,)) for length in PROMPTS)
    )
    counters = ("copies made", "blocks live", "blocks without sharing", "saved")
    heads = "".join(f'<th scope="col">{counter}</th>' for counter in counters)
    return (
        f"<p>{CAPTION}</p>"
        f'<table class="table"><caption>{samples} samples of a prompt of {prompt} tokens, write by write</caption>'
        f'<tr><th scope="col">what happens</th>{heads}</tr>{told}</table>'
        f"<p>The pool after that:</p>{_picture(steps[-1])}"
        f'<table class="table"><caption>After one token into each of {samples} samples, by prompt</caption>'
        f'<tr><th scope="col">prompt</th>{heads}</tr>{lengths}</table>'
    )


def _numbers(state: Samples) -> str:
    saved = percent(state.saved).replace(" ", "&nbsp;")
    return "".join(f"<td>{n}</td>" for n in (state.copies, state.pool.num_used, state.without_sharing, saved))


def _picture(state: Samples) -> str:
    """The live blocks of the pool: their tokens, and under each its reference count and who holds it."""
    palette, parts, named = look(STATES), [], list(zip(NAMES, state.tables, strict=False))
    held = {
        table.slot(position): f"{name if position >= state.prompt else ''}{position}"
        for name, table in named
        for position in range(table.length)
    }
    live = [block for block in range(NUM_BLOCKS) if state.pool.reference_count(block)]
    for at, block in enumerate(live):
        x, y, count = at % 5 * 120, at // 5 * 70, state.pool.reference_count(block)
        paint = palette["shared" if count > 1 else "tokens"]
        tokens = " ".join(held.get(block * BLOCK_SIZE + cell, "–") for cell in range(BLOCK_SIZE))
        who = " ".join(name for name, table in named if block in table.blocks)
        parts.append(
            f'<text x="{x}" y="{y + 12}" fill="currentColor">block {block}</text>'
            f'<rect x="{x}" y="{y + 17}" width="112" height="22" rx="3" fill="{paint["color"]}"/>'
            f'<text x="{x + 56}" y="{y + 32}" text-anchor="middle" fill="{paint["ink"]}">{tokens}</text>'
            f'<text x="{x}" y="{y + 54}" fill="currentColor">×{count} {who}</text>'
        )
    label = "Each live block with its tokens and, under it, its reference count and the samples that hold it."
    box = f'viewBox="-1 0 602 {70 * -(-len(live) // 5)}" width="100%" font-size="11"'
    return f'<svg {box} role="img" aria-label="{label}">{"".join(parts)}</svg>'
