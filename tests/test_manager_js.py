"""The JavaScript port of the block manager does what the Python one does, operation by operation."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from browser import chromium
from pagedkv.blocks import BlockPool
from pagedkv.book.figures import JS_DIR
from pagedkv.errors import OutOfBlocks, PagedKVError
from pagedkv.tables import BlockTable

pytestmark = pytest.mark.browser

TRACES = 400
REPLAY = """trace => {
  const {BlockPool, BlockTable} = globalThis.pagedkv.manager;
  const pool = new BlockPool(trace.num_blocks, trace.block_size), tables = [new BlockTable(pool)];
  return JSON.stringify(trace.ops.map(([name, i, argument]) => {
    let result = null, error = null;
    try {
      const table = tables[i];
      if (name === "append") result = table.append();
      else if (name === "extend") result = table.extend(argument);
      else if (name === "fork") tables.push(table.fork());
      else if (name === "free") table.free();
      else if (name === "new") tables.push(new BlockTable(pool));
      else if (name === "pool.share") pool.share(argument);
      else if (name === "pool.free") pool.free(argument);
    } catch (e) { error = [e.name, e.needed ?? null, e.free ?? null]; }
    return {result: result && [result.source, result.destination], error,
      free: pool.freeList(), references: [...pool.references],
      tables: tables.map(t => [[...t.blocks], t.length, t.slack])};
  }));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def python_replay(trace: dict[str, Any]) -> list[dict[str, Any]]:
    pool = BlockPool(trace["num_blocks"], trace["block_size"])
    tables = [BlockTable(pool)]
    states = []
    for name, i, argument in trace["ops"]:
        result = error = None
        try:
            if name == "append":
                result = tables[i].append()
            elif name == "extend":
                result = tables[i].extend(argument)
            elif name == "fork":
                tables.append(tables[i].fork())
            elif name == "free":
                tables[i].free()
            elif name == "new":
                tables.append(BlockTable(pool))
            elif name == "pool.share":
                pool.share(argument)
            elif name == "pool.free":
                pool.free(argument)
        except PagedKVError as refusal:
            out = isinstance(refusal, OutOfBlocks)
            error = [type(refusal).__name__, refusal.needed if out else None, refusal.free if out else None]
        states.append(
            {
                "result": result and list(result),
                "error": error,
                "free": list(pool.free_list()),
                "references": [pool.reference_count(block) for block in range(pool.num_blocks)],
                "tables": [[list(t.blocks), t.length, t.slack] for t in tables],
            }
        )
    return states


def random_trace(seed: int) -> dict[str, Any]:
    """Operations in a pool small enough to run dry; some are refused, some are mistakes."""
    rng = random.Random(seed)
    num_blocks, block_size = rng.choice([3, 6, 13, 29]), rng.choice([1, 2, 3, 4, 16])
    ops: list[list[Any]] = []
    tables = 1
    for _ in range(rng.randint(10, 60)):
        name = rng.choices(
            ["append", "extend", "fork", "free", "new", "pool.free", "pool.share"],
            [40, 14, 12, 8, 5, 1.5, 1.5],
        )[0]
        argument: Any = None
        if name == "extend":
            argument = rng.choice([0, 1, block_size, rng.randint(0, 5 * block_size)])
        elif name.startswith("pool"):
            # Of a block that is surely free, unknown, or listed twice: always a mistake.
            argument = rng.choice([[num_blocks], [0, 0], [num_blocks - 1, num_blocks - 1]])
        ops.append([name, rng.randrange(tables), argument])
        if name in ("fork", "new"):
            ops[-1][1] = rng.randrange(tables) if name == "fork" else 0
            tables = len(python_tables({"num_blocks": num_blocks, "block_size": block_size, "ops": ops}))
    return {"num_blocks": num_blocks, "block_size": block_size, "ops": ops}


def python_tables(trace: dict[str, Any]) -> list[Any]:
    return python_replay(trace)[-1]["tables"]


@pytest.fixture(scope="module")
def traces() -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    made = [random_trace(seed) for seed in range(TRACES)]
    return [(trace, python_replay(trace)) for trace in made]


def js_replays(browser: Any, source: str, traces: list[Any]) -> list[Any]:
    page = browser.new_page()
    try:
        page.add_script_tag(content=(JS_DIR / "core.js").read_text())
        page.add_script_tag(content=source)
        all_at_once = f"text => JSON.parse(text).map({REPLAY})"
        answers = page.evaluate(all_at_once, json.dumps([trace for trace, _ in traces]))
        return [json.loads(answer) for answer in answers]
    finally:
        page.close()


def test_random_traces_agree_after_every_operation(browser: Any, traces: list[Any]) -> None:
    seen = {state["error"] and state["error"][0] for _, states in traces for state in states}
    assert seen == {None, "OutOfBlocks", "FreedTable", "NotAllocated"}, "the traces miss a kind of refusal"
    assert any(state["result"] for _, states in traces for state in states), "no trace copies a shared block"
    answers = js_replays(browser, (JS_DIR / "manager.js").read_text(), traces)
    for (trace, states), answer in zip(traces, answers, strict=True):
        for op, ours, theirs in zip(trace["ops"], states, answer, strict=True):
            assert theirs == ours, f"after {op} with {trace['num_blocks']} blocks of {trace['block_size']}"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("this.stack.push(block)", "this.stack.unshift(block)"),
        ("this.slack > 0 && this.pool.references", "this.pool.references"),
        ("needed > this.pool.numFree", "needed > this.pool.numFree + 1"),
        ("this.pool.free([source]);", ""),
    ],
)
def test_a_wrong_port_is_caught(browser: Any, traces: list[Any], right: str, wrong: str) -> None:
    source = (JS_DIR / "manager.js").read_text()
    assert right in source
    answers = js_replays(browser, source.replace(right, wrong), traces[:120])
    assert answers != [states for _, states in traces[:120]]


def test_a_state_from_python_can_be_taken_up(browser: Any) -> None:
    pool = BlockPool(8, 4)
    first, second = BlockTable(pool), BlockTable(pool)
    first.extend(6)
    second.extend(9)
    first.free()
    third = BlockTable(pool)
    third.extend(5)
    start = {"free": list(pool.free_list()), "a": [list(second.blocks), 9], "b": [list(third.blocks), 5]}
    page = browser.new_page()
    for name in ("core.js", "manager.js"):
        page.add_script_tag(content=(JS_DIR / name).read_text())
    after = page.evaluate(
        """start => { const {BlockPool, BlockTable} = pagedkv.manager, pool = new BlockPool(8, 4, start.free);
        const [a, b] = [start.a, start.b].map(([blocks, length]) => BlockTable.restore(pool, blocks, length));
        a.extend(8); b.free(); return [a.blocks, pool.freeList(), pool.references]; }""",
        start,
    )
    page.close()
    second.extend(8)
    third.free()
    assert after == [
        second.blocks,
        list(pool.free_list()),
        [pool.reference_count(block) for block in range(8)],
    ]
