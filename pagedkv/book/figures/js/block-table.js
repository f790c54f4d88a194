/* Figure 2: a token's way through the block table to its slot. The first state for each block size comes from a real
   BlockPool in Python; appending and freeing is done by the port in manager.js. */
(() => {
  "use strict";
  const {h, s, rects, plural, percent, define} = globalThis.pagedkv;

  const CSS = `
.pkv.pkv-block-table{max-width:720px;margin-inline:auto}
.pkv-block-table .top{display:grid;grid-template-columns:minmax(0,1fr) 12.8rem;gap:.25rem 2.2rem}
@container (max-width:559px){.pkv-block-table .top{grid-template-columns:minmax(0,1fr)}}
.pkv-block-table .sizes text{font-size:10.5px;text-anchor:middle}
.pkv-block-table .facts{display:flex;flex-flow:row wrap;gap:.3rem 1.4rem}
@container (min-width:560px){.pkv-block-table .facts{flex-direction:column;gap:.6rem}}
.pkv-block-table .facts span{display:block;font-size:12px;color:var(--muted)}
.pkv-block-table .facts b{font-weight:600}
.pkv-block-table .actions{margin:.7rem 0 .35rem;gap:.4rem 1.1rem}
.pkv-block-table .actions span{display:inline-flex;gap:.35rem}
.pkv-block-table .actions button{padding:0 .55rem}
.pkv-block-table .read{font:600 13px/1.5 var(--mono);margin:.7rem 0 .1rem;padding-top:.6rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
.pkv-block-table .pic{position:relative}
.pkv-block-table .pic>svg{position:absolute;inset:0;pointer-events:none}
.pkv-block-table .under .pool{pointer-events:auto}.pkv-block-table .under .pool .a{cursor:pointer}
.pkv-block-table fieldset,.pkv-block-table ol{position:absolute;inset:0 0 auto;margin:0;padding:0;border:0;min-width:0;list-style:none}
.pkv-block-table .tok,.pkv-block-table .entry{position:absolute;margin:0;text-align:center}
.pkv-block-table .tok input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;cursor:pointer}
.pkv-block-table .tok span{position:absolute;inset:1px;display:grid;place-items:center;border-radius:4px;background:var(--a);color:var(--a-ink);font-size:12px;pointer-events:none}
.pkv-block-table .tok:hover span{text-decoration:underline}
.pkv-block-table .tok :checked+span{background:var(--fg);color:var(--bg);font-weight:700}
.pkv-block-table .tok :focus-visible{outline:none}
.pkv-block-table .tok :focus-visible+span{outline:3px solid var(--fg);outline-offset:2px}
.pkv-block-table .entry{font-size:13px;border:1px solid var(--edge);border-radius:5px;background:var(--bg);overflow:hidden}
.pkv-block-table .entry i{display:block;font-style:normal;font-size:10px;line-height:14px;color:var(--muted);background:var(--tint)}
.pkv-block-table .entry b{display:block;font:600 13px/20px var(--mono)}
.pkv-block-table .entry.on{border-color:var(--fg);box-shadow:0 0 0 1.5px var(--fg)}
.pkv-block-table .entry.on b{background:var(--fg);color:var(--bg)}
.pkv-block-table .entry.on i{color:var(--fg)}
.pkv-block-table .wire{fill:none;stroke:var(--fg);stroke-width:2}
.pkv-block-table .wire.back{stroke:var(--bg);stroke-width:6}
.pkv-block-table .wire{transition:d .22s ease-out}
.pkv-block-table .fresh{animation:pkv-fresh 1.1s ease-out}
@keyframes pkv-fresh{from{stroke-width:7px;stroke-opacity:.9}to{stroke-opacity:1}}
.pkv-block-table .freelist{font-size:12.5px;margin-top:.45rem;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.pkv-block-table .freelist b{border:1.5px dashed var(--fg);border-radius:4px;padding:0 .3rem}
@media (forced-colors:active){.pkv-block-table .tok span{border:1px solid CanvasText}
  .pkv-block-table .tok :checked+span,.pkv-block-table .entry.on b{forced-color-adjust:none;background:Highlight;color:HighlightText}}`;

  const powerOfTwo = n => 2 ** Math.floor(Math.log2(Math.max(1, n)));

  /** Where blocks of `size` units lie when `columns` of them make a row; both are powers of two. */
  const grid = (size, columns, unit, gap, head, tall, between) => {
    const perRow = Math.max(1, columns / size), rows = Math.max(1, size / columns);
    const rowsTall = rows * tall + head + between;
    return {
      perRow, rows, head,
      width: Math.min(size, columns) * unit,
      block: i => [(i % perRow) * (size * unit + gap), Math.floor(i / perRow) * rowsTall],
      cell(i) {
        const [x, y] = this.block(Math.floor(i / size)), at = i % size;
        return [x + (at % columns) * unit, y + head + Math.floor(at / columns) * tall];
      },
    };
  };

  /** A wire leaves and arrives straight down. */
  const bend = (y0, y1) => Math.max(24, (y1 - y0) * .45);
  const wire = ([x0, y0], [x1, y1]) => `M${x0} ${y0}C${x0} ${y0 + bend(y0, y1)} ${x1} ${y1 - bend(y0, y1)} ${x1} ${y1}`;
  /** Where a wire is at height `y`. */
  const abscissa = ([[x0, y0], [x1, y1]], y) => {
    let low = 0, high = 1, t = 0;
    for (let i = 0; i < 12; i++) {
      t = (low + high) / 2;
      const u = 1 - t, at = u * u * u * y0 + 3 * u * u * t * (y0 + bend(y0, y1)) + 3 * u * t * t * (y1 - bend(y0, y1)) + t * t * t * y1;
      if (at < y) low = t; else high = t;
    }
    const u = 1 - t;
    return x0 * (u * u * u + 3 * u * u * t) + x1 * (t * t * t + 3 * u * t * t);
  };

  const draw = fig => {
    const {BlockPool, BlockTable, OutOfBlocks} = globalThis.pagedkv.manager;
    const {data, root, id} = fig, sizes = Object.keys(data.start).map(Number);
    const ops = []; // what the reader did since the start: ["a" | "b", tokens] or ["free"]
    let pool, a, b, width = 0, layout = null, fresh = null;
    root.style.setProperty("--a", fig.palette.tokens.color);
    root.style.setProperty("--a-ink", fig.palette.tokens.ink);

    // --- the manager ---------------------------------------------------------------------------------------------
    const apply = ([what, tokens]) => {
      if (what === "free") { b.free(); b = new BlockTable(pool); } else (what === "a" ? a : b).extend(tokens);
    };
    /** The state that Python made for this block size, and what the reader did since. */
    const rebuild = () => {
      const size = fig.state().block_size, start = data.start[size];
      pool = new BlockPool(data.slots / size, size, start.free);
      a = BlockTable.restore(pool, start.a, data.lengths[0]);
      b = BlockTable.restore(pool, start.b, data.lengths[1]);
      for (const op of ops) try { apply(op); } catch (refusal) { if (!(refusal instanceof OutOfBlocks)) throw refusal; }
    };
    const slotsOf = table => Array.from({length: table.length}, (_, i) => table.slot(i));
    const act = op => {
      const [what, tokens] = op, before = {a: slotsOf(a), b: slotsOf(b)}, had = pool.freeList(), held = b.blocks;
      const table = what === "a" ? a : b, filled = table.slack ? table.blocks.at(-1) : null, name = what.toUpperCase();
      let text;
      try {
        apply(op);
        ops.push(op);
        fresh = had.filter(block => pool.references[block] > 0);
        const part = filled === null ? "" : fresh.length ? `filled block ${filled}, then ` : `wrote into block ${filled}, `;
        text = what === "free" ? `Freed B: pushed ${plural(held.length, "block")}; ${pool.freeList()[0]} is handed out next.`
          : `${name} +${tokens}: ${part}${fresh.length ? `popped ${fresh.slice(0, 8).join(", ")} off the free list` : "no new block"}.`;
      } catch (refusal) {
        if (!(refusal instanceof OutOfBlocks)) throw refusal;
        fresh = null;
        text = `Refused: ${refusal.message}. Nothing was changed.`;
      }
      const moved = ["a", "b"].map(key => {
        const now = slotsOf(key === "a" ? a : b);
        return before[key].filter((slot, i) => i < now.length && now[i] !== slot).length;
      }).reduce((x, y) => x + y);
      what_happened.textContent = text;
      moves.textContent = `Moved: ${plural(moved, "token")}`;
      fig.announce(`${text} ${moves.textContent}.`);
      redraw();
    };

    // --- the skeleton --------------------------------------------------------------------------------------------
    const slider = h("input", {type: "range", min: 0, max: sizes.length - 1, step: 1, id: id + "size",
      oninput: () => { fresh = null; fig.set({block_size: sizes[slider.value]}); rebuild(); redraw(); speak(); }});
    const size_label = h("b"), unused = h("b", {class: "unused"}), bytes = h("b", {class: "bytes"});
    const bars = s("svg", {class: "sizes", height: 58, "aria-hidden": "true"}), ticks = s("svg", {class: "sizes", height: 30, "aria-hidden": "true"});
    const button = (label, op, title) => h("button", {type: "button", title, onclick: () => act(op)}, label);
    const buttons = {
      a1: button("A +1", ["a", 1], "Append 1 token to sequence A"), a16: button("A +16", ["a", 16], "Append 16 tokens to sequence A"),
      b1: button("B +1", ["b", 1], "Append 1 token to sequence B"), b16: button("B +16", ["b", 16], "Append 16 tokens to sequence B"),
      free: button("Free B", ["free"], "Give B's blocks back to the pool"),
    };
    const reset = h("button", {type: "button", onclick: () => {
      ops.length = 0; fresh = null; what_happened.textContent = "Back at the start."; moves.textContent = "";
      rebuild(); redraw(); speak();
    }}, "Reset");
    const what_happened = h("span", {class: "event"}, "Append a token: what is there already stays where it is."), moves = h("b", {class: "moved"});
    const read = h("div", {class: "read"});
    const under = s("svg", {class: "under", "aria-hidden": "true"}), over = s("svg", {class: "over", "aria-hidden": "true"});
    const strip = h("fieldset", {}, h("legend", {class: "pkv-sr"}, "Tokens of sequence A")), entries = h("ol", {"aria-label": "Block table of sequence A"});
    const wires = s("svg", {class: "wires", "aria-hidden": "true"}), top = s("g"), marks = s("g", {class: "marks"});
    over.append(top, marks);
    const pic = h("div", {class: "pic"}, under, wires, strip, entries, over), picture = h("p", {class: "pkv-sr"}), freelist = h("div", {class: "freelist"});
    const b_swatch = s("svg", {width: 18, height: 12, "aria-hidden": "true"},
      s("rect", {x: .5, y: .5, width: 17, height: 11, rx: 2, fill: "none", stroke: "var(--edge)"}), s("rect", {x: 1, y: 6.5, width: 16, height: 5, fill: "var(--a)"}));
    root.append(
      h("div", {class: "top"},
        h("div", {class: "chart"}, h("label", {for: id + "size"}, "Block size: ", size_label), bars, slider, ticks),
        h("div", {class: "facts"}, h("div", {}, h("span", {}, "Internal fragmentation of A"), unused), h("div", {}, h("span", {}, "Block table of A, int32"), bytes))),
      h("div", {class: "pkv-row actions"}, h("span", {}, buttons.a1, buttons.a16), h("span", {}, buttons.b1, buttons.b16, buttons.free), reset),
      h("div", {class: "say"}, what_happened, " ", moves), read, pic, freelist, picture,
      fig.key([["tokens", "tokens of A"], [b_swatch, "tokens of B (half height)"], ["sliver", "unused: " + fig.palette.sliver.label], ["free", fig.palette.free.label]]));
    const radios = [];

    // --- drawing -------------------------------------------------------------------------------------------------
    const drawSizes = () => {
      const size = pool.blockSize, w = Math.floor(slider.clientWidth), step = (w - 16) / (sizes.length - 1);
      const waste = sizes.map(one => { const n = Math.ceil(a.length / one); return {n, part: n * one - a.length, whole: n * one}; });
      [bars, ticks].forEach(svg => svg.setAttribute("width", w));
      bars.replaceChildren(...waste.flatMap(({part, whole}, i) => {
        const x = 8 + i * step, tall = 36 * part / whole, on = sizes[i] === size;
        return [s("rect", {x: x - step * .3, y: 56 - tall, width: step * .6, height: tall, fill: fig.paint("sliver"), stroke: on ? "var(--fg)" : "none", "stroke-width": 1.5}),
          s("line", {x1: x - step * .3, x2: x + step * .3, y1: 56.5, y2: 56.5, stroke: on ? "var(--fg)" : "var(--line)"}),
          s("text", {x, y: 51 - tall, class: on ? "b" : "m"}, (100 * part / whole).toFixed(0) + " %")];
      }));
      ticks.replaceChildren(...sizes.flatMap((one, i) => {
        const x = 8 + i * step, on = one === size ? "b" : "m";
        return [s("text", {x, y: 10, class: on}, one), s("text", {x, y: 25, class: on}, waste[i].n * data.entry_bytes + " B")];
      }));
      slider.value = sizes.indexOf(size);
      slider.setAttribute("aria-valuetext", `${plural(size, "token")} per block`);
      size_label.textContent = plural(size, "token");
      const here = waste[sizes.indexOf(size)];
      unused.textContent = `${here.part} of ${plural(here.whole, "slot")}, ${percent(here.part, here.whole)}`;
      bytes.textContent = `${plural(a.blocks.length, "entry", "entries")} × ${data.entry_bytes} B = ${a.blocks.length * data.entry_bytes} B`;
    };

    /** Everything that does not depend on which token is selected. */
    const redraw = () => {
      const size = pool.blockSize, columns = Math.min(16, powerOfTwo(width / 25)), n = a.blocks.length;
      const gap = size === 1 ? 3 : 8, gaps = Math.max(0, columns / size - 1) * gap;
      const unit = Math.min(40, Math.floor((width - gaps) / columns));
      const logical = grid(size, columns, unit, gap, 15, unit, 7);
      logical.y = 2;
      const lastRows = Math.ceil((a.length - (n - 1) * size) / columns); // rows of the last block that hold a token
      const shown = Math.min(logical.rows, lastRows + 1), cut = logical.rows > shown;
      const stripEnd = logical.y + logical.block(n - 1)[1] + logical.head + shown * unit + (cut ? 18 : 0);

      // The table: its heads at the left, an entry for each logical block beside them, in as many rows as it takes.
      const head = width < 480 ? 54 : 92, room = width - head;
      const wide = n * 60 <= room, entry = wide ? 54 : 34, step = wide ? 60 : 37, perRow = Math.max(1, Math.floor((room + step - entry) / step));
      const table = {y: stripEnd + 44, entry, at: i => [head + (i % perRow) * step, Math.floor(i / perRow) * 42]};
      const tableEnd = table.y + table.at(n - 1)[1] + 36;

      const poolGap = size === 1 ? 1 : 4, row = 64, slot = Math.min(12, (width - Math.max(0, row / size - 1) * poolGap) / row);
      const labelled = Math.min(size, row) * slot >= 19;
      const physical = grid(size, row, slot, size >= row ? 0 : poolGap, labelled ? 13 : 2, 15, 6);
      physical.y = tableEnd + 62;
      const height = physical.y + physical.block(pool.numBlocks - 1)[1] + physical.head + physical.rows * 15 + 4;
      layout = {logical, table, physical, unit, slot, stripEnd, tableEnd};
      pic.style.height = height + "px";
      [under, wires, over].forEach(svg => { svg.setAttribute("width", width); svg.setAttribute("height", height); });

      // The strip: block outlines and unused slots below, one radio button per token above.
      const outline = [], slack = [], labels = [];
      for (let i = 0; i < n; i++) {
        const [x, y] = logical.block(i), last = i === n - 1, tall = (last ? shown : logical.rows) * unit, top = logical.y + y + logical.head;
        outline.push(last && cut ? s("path", {class: "lb", fill: "none", d: `M${x} ${top + tall + 12}V${top}h${logical.width}v${tall + 12}`}) : s("rect", {class: "lb", fill: "none", x, y: top, width: logical.width, height: tall, rx: 5}));
        const label = logical.width >= 84 ? `logical block ${i}` : logical.width >= 52 ? `block ${i}` : i;
        labels.push(s("text", {class: "m lbl", x: logical.width >= 52 ? x + 2 : x + logical.width / 2, y: top - 4, "text-anchor": logical.width >= 52 ? "start" : "middle"}, label));
      }
      for (let i = a.length; i < n * size; i++) {
        if (Math.floor((i % size) / columns) >= shown) break;
        const [x, y] = logical.cell(i);
        slack.push([x + 1, logical.y + y + 1, unit - 2, unit - 2]);
      }
      const parts = [s("path", {class: "slack", d: rects(slack), fill: fig.paint("sliver")}), ...outline];
      if (a.slack) {
        const [x, y] = logical.block(n - 1), note = `${plural(a.slack, "slot")} unused`;
        if (cut) labels.push(s("text", {x: 8, y: stripEnd - 5}, `${note}: the block goes on to ${size}`));
        else if (logical.width > 190) labels.push(s("text", {x: x + logical.width - 2, y: logical.y + y + logical.head - 4, "text-anchor": "end"}, note));
      }

      // The pool: every slot at its address, block after block, row after row.
      const cells = {a: [], b: [], slack: []}, boxes = [], names = [];
      for (const [key, one] of [["a", a], ["b", b]]) {
        for (let i = 0; i < one.blocks.length * size; i++) {
          const [x, y] = physical.cell(one.blocks[Math.floor(i / size)] * size + (i % size)), inset = slot > 7 ? .6 : .3;
          if (i >= one.length) cells.slack.push([x + inset, y + physical.y + 1, slot - 2 * inset, 12]);
          else cells[key].push([x + inset, y + physical.y + (key === "a" ? 1 : 7), slot - 2 * inset, key === "a" ? 12 : 6]);
        }
      }
      const owner = new Map([...a.blocks.map((block, i) => [block, "A" + i]), ...b.blocks.map((block, i) => [block, "B" + i])]);
      const next = pool.freeList()[0], free = [], used = [];
      for (let block = 0; block < pool.numBlocks; block++) {
        const [x, y] = physical.block(block), box = [x, physical.y + y + physical.head - .5, physical.width, physical.rows * 15];
        (owner.has(block) ? used : free).push(box);
        if (block === next) boxes.push(s("rect", {x: box[0], y: box[1], width: box[2], height: box[3], fill: "none", stroke: "var(--fg)", "stroke-width": 1.5, "stroke-dasharray": "3 2"}));
        if (fresh && fresh.includes(block)) boxes.push(s("rect", {class: "fresh", x: box[0], y: box[1], width: box[2], height: box[3], fill: "none", stroke: "var(--fg)", "stroke-width": 1.5}));
        if (labelled) {
          const held = owner.get(block), roomy = physical.width > 38;
          names.push(s("text", {x, "data-name": block, y: box[1] - 3, class: (held ? "b" : "m") + " halo", style: "font-size:10px"}, block,
            roomy && held ? s("tspan", {dx: 4, style: "font-weight:400"}, held) : roomy && block === next ? s("tspan", {dx: 4}, "next") : null));
        }
      }
      under.replaceChildren(...parts,
        s("g", {class: "pool", onclick: pick},
          s("path", {d: rects(free), fill: "none", stroke: "var(--line)"}),
          s("path", {d: rects(used), fill: "none", stroke: "var(--edge)"}),
          s("path", {class: "slack", d: rects(cells.slack), fill: fig.paint("sliver")}),
          s("path", {class: "b", d: rects(cells.b), fill: "var(--a)"}),
          s("path", {class: "a", d: rects(cells.a), fill: "var(--a)"}), ...boxes));
      top.replaceChildren(...labels, ...names,
        ...(head > 60 ? [["Block table", "b", 0], ["logical block", "m", 14], ["physical block", "m", 29]] : [["table", "b", 0], ["logical", "m", 14], ["physical", "m", 29]])
          .map(([text, style, y]) => s("text", {class: style + " halo", x: 0, y: table.y + (y ? y - 3 : -8)}, text)),
        s("text", {x: 0, y: physical.y - 7, class: "halo"}, s("tspan", {class: "b"}, "Physical pool"), s("tspan", {class: "m", dx: 6}, `${plural(pool.numBlocks, "block")} × ${size} = ${data.slots} slots`)));

      // Radio buttons and entries are kept, so that focus stays where the reader has it.
      while (radios.length > a.length) radios.pop().remove();
      while (radios.length < a.length) {
        const i = radios.length;
        const input = h("input", {type: "radio", name: id + "t", value: i, "aria-label": `Token ${i}`, onchange: () => choose(i)});
        const label = h("label", {class: "tok"}, input, h("span", {"aria-hidden": "true"}, i));
        radios.push(label);
        strip.append(label);
      }
      radios.forEach((label, i) => {
        const [x, y] = logical.cell(i);
        label.style.cssText = `left:${x}px;top:${logical.y + y}px;width:${unit}px;height:${unit}px`;
      });
      entries.replaceChildren(...a.blocks.map((block, i) => {
        const [x, y] = table.at(i);
        return h("li", {class: "entry", style: `left:${x}px;top:${table.y + y}px;width:${entry}px;height:36px`},
          h("i", {}, h("span", {class: "pkv-sr"}, "logical block "), i), h("b", {}, h("span", {class: "pkv-sr"}, "physical block "), block));
      }));
      const list = pool.freeList();
      freelist.replaceChildren(h("span", {class: "m"}, "Free list, next first: "), list.length ? h("b", {class: "mono"}, list[0]) : "empty", list.length > 1 ? ` ${list.slice(1, 40).join("  ")}` : "");
      freelist.title = `${plural(list.length, "free block")}`;
      picture.textContent = `Physical pool: ${plural(pool.numBlocks, "block")} of ${plural(size, "slot")}, ${list.length} free. `
        + `A holds blocks ${a.blocks.join(", ")}; B holds ${b.length ? "blocks " + b.blocks.join(", ") : "none"}.`;
      for (const [key, table, limit] of [["a", a, data.limits[0]], ["b", b, data.limits[1]]]) {
        buttons[key + 1].disabled = table.length + 1 > limit;
        buttons[key + 16].disabled = table.length + 16 > limit;
      }
      buttons.free.disabled = !b.length;
      drawSizes();
      select();
    };

    /** The selected token's way: strip, table, pool. */
    const select = () => {
      const token = Math.min(fig.state().token, a.length - 1), size = pool.blockSize;
      const block = Math.floor(token / size), offset = token % size, physical = a.blocks[block], slot = a.slot(token);
      const state = {token, block_size: size, logical_block: block, offset, physical_block: physical, slot, table: [...a.blocks], length: a.length};
      if (JSON.stringify(state) !== JSON.stringify(fig.state())) fig.set(state);
      const input = radios[token].firstChild;
      input.checked = true;
      [...entries.children].forEach((node, i) => node.classList.toggle("on", i === block));
      under.querySelectorAll(".lb").forEach((node, i) => { node.setAttribute("stroke", i === block ? "var(--fg)" : "var(--edge)"); node.setAttribute("stroke-width", i === block ? 2.5 : 1); });
      read.textContent = `Token ${token}: logical block ${block}, offset ${offset} -> physical block ${physical}, slot ${slot}`;

      const {logical, table, physical: pl, unit, slot: sw} = layout;
      const [tx, ty] = logical.cell(token), from = [tx + unit / 2, ty + logical.y + unit - 1];
      const [ex, ey] = table.at(block), mid = [ex + table.entry / 2, ey + table.y];
      const [px, py] = pl.cell(slot), to = [px + sw / 2, py + pl.y];
      const [bx, by] = pl.block(physical);
      const leave = [mid[0], mid[1] + 36], enter = [to[0], to[1] - 6], one = wire(from, mid), two = wire(leave, enter);
      /** Arithmetic beside a wire, at the height of a gap in which there is nothing else. */
      const note = (curve, y, text) => {
        const long = text.length * 6.7, x = abscissa(curve, y);
        const start = x + 12 + long <= width ? x + 12 : Math.max(0, x - 12 - long);
        return s("text", {class: "halo", x: start, y, style: "font-family:var(--mono)"}, text);
      };
      // The name of the block at hand makes way for the arrow.
      top.querySelectorAll("[data-name]").forEach(text => {
        const at = +text.dataset.name, [x] = pl.block(at);
        const moved = to[0] - pl.block(physical)[0] < 44;
        text.setAttribute("x", at === physical && moved ? to[0] + 8 : x);
        text.setAttribute("visibility", at === physical + 1 && moved && pl.width < 44 && pl.block(at)[0] > to[0] ? "hidden" : "visible");
      });
      const paths = [one, one, two, two];
      if (!wires.firstChild) wires.append(...paths.map((_, i) => s("path", {class: i % 2 ? "wire" : "wire back"})));
      [...wires.children].forEach((path, i) => { path.setAttribute("d", paths[i]); path.style.d = `path("${paths[i]}")`; });
      marks.replaceChildren(
        s("path", {d: `M${mid[0] - 4.5} ${mid[1] - 8}h9l-4.5 7z`, fill: "var(--fg)"}),
        s("rect", {class: "slot", "data-slot": slot, x: px - 1, y: py + pl.y, width: sw + 2, height: 14, fill: "var(--fg)", stroke: "var(--bg)", "stroke-width": 1}),
        s("rect", {class: "block", "data-block": physical, x: bx - 1, y: by + pl.y + pl.head - 1.5, width: pl.width + 2, height: pl.rows * 15 + 2, rx: 2, fill: "none", stroke: "var(--fg)", "stroke-width": 2.5}),
        s("path", {d: `M${to[0] - 4.5} ${to[1] - 8}h9l-4.5 7z`, fill: "var(--fg)", stroke: "var(--bg)", "stroke-width": 2, "paint-order": "stroke"}),
        note([from, mid], layout.stripEnd + 19, `${token} = ${block} × ${size} + ${offset}`),
        note([leave, enter], layout.tableEnd + 21, `${physical} × ${size} + ${offset} = slot ${slot}`));
    };
    const speak = () => fig.announce(`${read.textContent}. ${unused.textContent} unused.`);
    const choose = token => { fig.set({token}); select(); fig.announce(read.textContent); };

    /** A click on one of A's slots in the pool selects its token. */
    const pick = event => {
      const box = under.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, {physical, slot} = layout;
      const hit = slotsOf(a).findIndex(at => { const [cx, cy] = physical.cell(at); return x >= cx && x < cx + slot && y >= cy + physical.y - physical.head && y < cy + physical.y + 15; });
      if (hit >= 0) choose(hit);
    };
    fig.listen(strip, "keydown", event => {
      const columns = Math.min(16, powerOfTwo(width / 25));
      const move = {ArrowUp: -columns, ArrowDown: columns, Home: -1e9, End: 1e9}[event.key];
      if (!move) return;
      event.preventDefault();
      const token = Math.max(0, Math.min(a.length - 1, fig.state().token + move));
      radios[token].firstChild.focus();
      choose(token);
    });
    fig.onState(() => { rebuild(); redraw(); });
    rebuild();
    fig.onWidth(pic, w => { width = w; redraw(); });
  };

  define("block-table", draw, CSS);
})();
