/* Figure 3: samples that share a prompt's blocks. Python made the prompt's table for every prompt length; forks and
   writes are done by the port in manager.js, so that the reader can take them in any order. */
(() => {
  "use strict";
  const {h, s, plural, percent, define} = globalThis.pagedkv;

  const CSS = `
.pkv.pkv-copy-on-write{max-width:720px;margin-inline:auto}
.pkv-copy-on-write .top{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.25rem 2.2rem;align-items:start}
.pkv-copy-on-write .top>div{min-width:0}
.pkv-copy-on-write .top label{display:block;margin-bottom:.3rem}
.pkv-copy-on-write .ticks text{font-size:11px;text-anchor:middle}
.pkv-copy-on-write .actions{margin:.7rem 0 .5rem}
.pkv-copy-on-write .say{min-height:2.9em;font-size:14px;font-weight:600;border-left:3px solid var(--fg);padding-left:.6rem}
.pkv-copy-on-write dl{display:grid;grid-template-columns:repeat(4,auto) ;justify-content:space-between;gap:.2rem 1rem;margin:.7rem 0 .3rem;padding-top:.6rem;border-top:1px solid var(--line)}
.pkv-copy-on-write dl>div{display:flex;flex-direction:column}
.pkv-copy-on-write dt{font-weight:400;font-size:12px;color:var(--muted);margin:0}
.pkv-copy-on-write dd{margin:0;font-size:20px;line-height:1.25;font-weight:650}
@container (max-width:479px){.pkv-copy-on-write .top{grid-template-columns:minmax(0,1fr)}.pkv-copy-on-write dl{grid-template-columns:auto auto}.pkv-copy-on-write .actions{gap:.3rem}.pkv-copy-on-write .actions button{padding:0 .35rem;font-size:12.5px}.pkv-copy-on-write .say{min-height:5.8em}}
.pkv-copy-on-write .pic{position:relative;margin-top:.7rem}
.pkv-copy-on-write .pic>svg{position:absolute;inset:0;pointer-events:none}
.pkv-copy-on-write ol{position:absolute;inset:0 0 auto;margin:0;padding:0;list-style:none}
.pkv-copy-on-write li.lane{position:absolute;left:0;right:0;margin:0}
.pkv-copy-on-write .lane button{position:absolute;min-height:0;padding:0 .5rem}
.pkv-copy-on-write .lane button:focus-visible{outline-offset:1px}
.pkv-copy-on-write .cell text{text-anchor:middle}
.pkv-copy-on-write .s rect{fill:var(--sh)}.pkv-copy-on-write .s text{fill:var(--sh-ink)}
.pkv-copy-on-write .p rect{fill:var(--a)}.pkv-copy-on-write .p text{fill:var(--a-ink)}
.pkv-copy-on-write .gone{text-decoration:line-through}
.pkv-copy-on-write .wire{fill:none;stroke:var(--fg);stroke-width:2;stroke-linejoin:round;stroke-dasharray:1;stroke-dashoffset:0}
.pkv-copy-on-write .wire.back{stroke:var(--bg);stroke-width:6}
.pkv-copy-on-write .go .wire{animation:pkv-draw .7s ease-in-out backwards}
.pkv-copy-on-write .go .late{animation:pkv-late .7s backwards}
.pkv-copy-on-write .go .pulse{animation:pkv-pulse 1s ease-out backwards}
@keyframes pkv-draw{from{stroke-dashoffset:1}}
@keyframes pkv-late{from,70%{opacity:0}}
@keyframes pkv-pulse{from{stroke-width:8px}}
@media (forced-colors:active){.pkv-copy-on-write .cell rect{fill:Canvas;stroke:CanvasText}.pkv-copy-on-write .cell text{fill:CanvasText}}`;

  const and = words => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : `${words[0]}`);

  /** The sentence for one write, and the clause for several writes of one kind: in step with copy_on_write.py. */
  const alone = ({what, position, block, before, holders}, size) => {
    const carried = position % size, left = holders - 1;
    return {
      copy: `: block ${before} is shared by ${holders}, so its ${plural(carried, "token")} ${carried === 1 ? "is" : "are"} copied to block ${block}; `
        + (left > 1 ? `${left} others keep block ${before}` : `1 other keeps block ${before}, now for itself`),
      last: ` token ${position} in place: it is the last holder of block ${block}, so nothing is copied`,
      own: ` token ${position} in place: block ${block} is its own`,
      first: `: the prompt ends on a block boundary, so nothing is copied; token ${position} goes into new block ${block}`,
      next: `: its block ${before} is full, so token ${position} goes into new block ${block}`,
    }[what];
  };
  const together = (group, size) => {
    const [one] = group, many = group.length > 1, or = (several, single) => (many ? several : single);
    const who = and(group.map(write => write.sample)), blocks = and(group.map(write => write.block)), block = `block${or("s", "")} ${blocks}`;
    return {
      copy: `${who} ${or("copy", "copies")} block ${one.before} (${plural(one.position % size, "token")}) to ${block}`,
      last: `${who}, the last holder of block ${blocks}, writes in place`,
      own: `${who} ${or("write", "writes")} in place, into ${block} of ${or("their", "its")} own`,
      first: `the prompt ends on a block boundary, so nothing is copied; ${who} ${or("take", "takes")} new ${block}`,
      next: `${who} ${or("have", "has")} filled ${or("their blocks", "its block")} and ${or("take", "takes")} new ${block}`,
    }[one.what];
  };

  /** Path data through right-angled corners, rounded. */
  const elbows = points => points.map(([x, y], i) => {
    if (!i || i === points.length - 1) return `${i ? "L" : "M"}${x} ${y}`;
    const toward = ([a, b]) => { const far = Math.hypot(a - x, b - y) || 1, r = Math.min(6, far / 2); return `${x + (a - x) / far * r} ${y + (b - y) / far * r}`; };
    return `L${toward(points[i - 1])}Q${x} ${y} ${toward(points[i + 1])}`;
  }).join("");

  const CELL = 24, ENTRY = 19;

  const draw = fig => {
    const {BlockPool, BlockTable} = globalThis.pagedkv.manager;
    const {data, root, id} = fig, {block_size: size, names, each} = data, prompts = Object.keys(data.start).map(Number);
    let pool, tables, actions, copies, prompt, width = 0, layout = null, undone = false, pointed = null;
    for (const [name, state] of [["a", "tokens"], ["sh", "shared"]]) {
      root.style.setProperty("--" + name, fig.palette[state].color);
      root.style.setProperty(`--${name}-ink`, fig.palette[state].ink);
    }

    // --- the manager ---------------------------------------------------------------------------------------------
    const room = i => tables[i].length < prompt + data.writes;
    const write = i => {
      const table = tables[i], position = table.length, before = table.blocks.at(-1), holders = pool.references[before], full = !table.slack;
      const what = table.append() ? "copy" : position === prompt ? (full ? "first" : "last") : full ? "next" : "own";
      if (what === "copy") copies += 1;
      return {sample: names[i], i, what, position, block: table.blocks.at(-1), before, holders};
    };
    /** From Python's prompt, fork the samples and take every action again; what cannot be done here is passed over. */
    const replay = () => {
      const held = fig.state(), writes = [...held.writes], nearest = (list, value) => list.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));
      const samples = nearest(data.samples, held.samples);
      prompt = nearest(prompts, held.prompt);
      const start = data.start[prompt];
      pool = new BlockPool(data.num_blocks, size, start.free);
      tables = [BlockTable.restore(pool, start.blocks, prompt)];
      while (tables.length < samples) tables.push(tables[0].fork());
      copies = 0;
      actions = writes.map(action => tables.map((_, i) => i).filter(i => (action === each || action === names[i]) && room(i)).map(write));
      const without = tables.reduce((sum, table) => sum + Math.ceil(table.length / size), 0), live = pool.numBlocks - pool.numFree;
      const state = {prompt, samples, writes, tables: tables.map(table => [...table.blocks]), references: [...pool.references],
        copies, live, without_sharing: without, saved: 100 * (without - live) / without};
      if (JSON.stringify(state) !== JSON.stringify(fig.state())) fig.set(state);
    };
    const lastAction = () => actions.findLast(action => action.length) || [];
    const sentence = () => {
      const action = lastAction(), [table] = tables;
      if (!action.length) {
        const shared = `${tables.length} samples share the prompt's ${table.blocks.length} blocks`;
        return table.slack ? `${shared}. Block ${table.blocks.at(-1)} has ${plural(table.slack, "slot")} left: whoever writes there while others hold it must copy it first.`
          : `${shared}, and all of them are full: no sample will ever write into one.`;
      }
      if (action.length === 1) return `Sample ${action[0].sample} writes${alone(action[0], size)}.`;
      const groups = new Map();
      action.forEach(one => { const key = one.what + (one.what === "copy" ? one.before : ""); groups.set(key, [...(groups.get(key) || []), one]); });
      return `One into each: ${[...groups.values()].map(group => together(group, size)).join("; ")}.`;
    };

    /** Every change goes through here: the patch, the manager, the picture, the words. */
    const act = (patch, {took = false, moves = false} = {}) => {
      fig.set(patch);
      undone = took;
      replay();
      redraw(moves);
      const {copies: made, live, without_sharing, saved} = fig.state();
      fig.announce(`${say.textContent} ${plural(made, "copy", "copies")} made, ${live} blocks live, ${without_sharing} without sharing, ${percent(saved, 100)} saved.`);
    };
    const undo = () => {
      const writes = [...fig.state().writes];
      // An action of a sample that is not shown now took no token: go back past it.
      while (writes.length && !actions[writes.length - 1].length) writes.pop();
      writes.pop();
      act({writes}, {took: true});
    };

    // --- the skeleton --------------------------------------------------------------------------------------------
    const count = h("select", {id: id + "n", onchange: () => act({samples: +count.value})}, ...data.samples.map(n => h("option", {value: n}, n)));
    const slider = h("input", {type: "range", min: prompts[0], max: prompts.at(-1), step: 1, id: id + "p", oninput: () => act({prompt: +slider.value})});
    const prompt_label = h("b", {class: "prompt"}), ticks = s("svg", {class: "ticks", height: 32, "aria-hidden": "true"});
    const all = h("button", {type: "button", class: "main", onclick: () => act({writes: [...fig.state().writes, each]}, {moves: true})}, "Write one into each");
    const back = h("button", {type: "button", onclick: undo}, "Undo");
    const reset = h("button", {type: "button", onclick: () => act({writes: []})}, "Reset");
    const say = h("div", {class: "say"});
    const facts = Object.fromEntries(["copies", "live", "without", "saved"].map(name => [name, h("dd", {class: name})]));
    const fact = (label, name) => h("div", {}, h("dt", {}, label), facts[name]);
    const tally = s("svg", {class: "tally", "aria-hidden": "true"});
    const svg = s("svg", {class: "under", "aria-hidden": "true"}), rings = s("g", {class: "rings"}), scene = s("g");
    svg.append(scene, rings);
    const list = h("ol", {"aria-label": "Samples"}), pic = h("div", {class: "pic"}, svg, list), picture = h("p", {class: "pkv-sr"});
    const swatch = state => s("svg", {width: 30, height: 14, "aria-hidden": "true", class: state === "s" ? "cell s" : "cell p"},
      s("rect", {x: .5, y: .5, width: 29, height: 13, rx: 2}), s("text", {x: 15, y: 11, style: "font-size:10px;font-weight:600"}, state === "s" ? "×3" : "A6"));
    root.append(
      h("div", {class: "top"},
        h("div", {}, h("label", {for: id + "n"}, "Samples"), count),
        h("div", {}, h("label", {for: id + "p"}, "Prompt: ", prompt_label), slider, ticks)),
      h("div", {class: "pkv-row actions"}, all, back, reset), say,
      h("dl", {}, fact("copies made", "copies"), fact("blocks live", "live"), fact("blocks without sharing", "without"), fact("saved", "saved")),
      tally, pic, picture,
      fig.key([[swatch("s"), "shared, with its reference count: the table entries that point at it"], [swatch("p"), "held by one sample (A6: token 6 of A)"], ["free", "free"]]));
    const lanes = [...names].map((name, i) => {
      const label = h("span", {class: "pkv-sr", id: `${id}l${i}`});
      const button = h("button", {type: "button", "aria-label": `Write a token into sample ${name}`, "aria-describedby": `${id}l${i}`,
        onclick: () => act({writes: [...fig.state().writes, name]}, {moves: true})}, "Write");
      const lane = h("li", {class: "lane", onpointerenter: () => point(i), onpointerleave: () => point(null), onfocusin: () => point(i), onfocusout: () => point(null)}, button, label);
      return {lane, button, label};
    });

    // --- drawing -------------------------------------------------------------------------------------------------
    const drawControls = () => {
      const {samples} = fig.state(), w = Math.floor(slider.clientWidth), step = (w - 16) / (prompts.length - 1);
      count.value = samples;
      slider.value = prompt;
      const edge = prompt % size ? `last block holds ${prompt % size} of ${size}` : "ends on a block boundary";
      slider.setAttribute("aria-valuetext", `${plural(prompt, "token")}, ${edge}`);
      prompt_label.textContent = `${plural(prompt, "token")}, ${edge}`;
      ticks.setAttribute("width", w);
      ticks.replaceChildren(...prompts.flatMap((one, i) => {
        const x = 8 + i * step, on = one === prompt ? "b" : "m";
        if (one % size) return [s("text", {x, y: 12, class: on}, one)];
        const end = one === prompts.at(-1); // no room to its right
        return [s("text", {x, y: 12, class: on}, one), s("text", {x: end ? w : x, y: 27, class: on, style: end ? "text-anchor:end" : null, "data-boundary": one}, w < 240 ? "boundary" : "block boundary")];
      }));
      const {copies: made, live, without_sharing: without, saved} = fig.state();
      facts.copies.textContent = made;
      facts.live.textContent = live;
      facts.without.textContent = without;
      facts.saved.textContent = percent(saved, 100);
      const unit = Math.min(16, Math.floor(width / 24)), shared = pool.references.filter(n => n > 1).length;
      tally.setAttribute("width", width);
      tally.setAttribute("height", 16);
      tally.replaceChildren(...Array.from({length: without}, (_, i) => s("g", {class: i < shared ? "cell s" : i < live ? "cell p" : "cell"},
        s("rect", {x: i * unit + .5, y: .5, width: unit - 4, height: unit - 5, rx: 2, style: i < live ? null : "fill:none;stroke:var(--edge);stroke-dasharray:2 2"}))),
        without * unit + 130 < width ? s("text", {x: without * unit + 4, y: unit / 2 + 2, class: "m"}, `${live} live, ${without - live} saved`) : "");
    };

    /** Who holds what: letters of each block's holders, and the text of each slot. */
    const census = () => {
      const holders = pool.references.map(() => []), slots = new Map();
      tables.forEach((table, i) => {
        table.blocks.forEach(block => holders[block].push(names[i]));
        for (let at = 0; at < table.length; at++) slots.set(table.slot(at), at < prompt ? `${at}` : names[i] + at);
      });
      return {holders, slots};
    };

    const redraw = (moves = false) => {
      const {holders, slots} = census(), action = lastAction(), fresh = undone ? [] : action;
      const gap = 12, perRow = width >= 472 ? 5 : width >= 262 ? 3 : 2, cell = Math.min(30, Math.floor((width - (perRow - 1) * gap) / perRow / size)), wide = cell * size, step = wide + gap;
      const head = width >= 472 ? 86 : 0, perLane = Math.min(4, Math.floor((width - head + gap) / step));
      const laneHead = head ? 0 : 33, row = CELL + ENTRY + 8, tops = [head ? 36 : 20];
      tables.forEach((table, i) => tops.push(tops[i] + laneHead + Math.ceil(table.blocks.length / perLane) * row + (head ? 6 : 2)));
      const at = (i, n) => [head + (n % perLane) * step, tops[i] + laneHead + Math.floor(n / perLane) * row];
      const poolTop = tops.at(-1) + 40, poolPitch = CELL + ENTRY + 40, floorBelow = CELL + ENTRY + 13;
      const place = block => [(block % perRow) * step, poolTop + Math.floor(block / perRow) * poolPitch];
      // Rows of the pool that hold something, and the next free block; the rest are free as well.
      const next = pool.freeList()[0], used = pool.references.findLastIndex(Boolean);
      const rows = Math.max({5: 2, 3: 3, 2: 4}[perRow], 1 + Math.floor(Math.max(used, next ?? 0) / perRow)), shown = Math.min(pool.numBlocks, rows * perRow);
      const height = place(shown - 1)[1] + CELL + ENTRY + 16;
      layout = {wide, at, place, marked: new Set()};
      pic.style.height = height + "px";
      svg.setAttribute("width", width);
      svg.setAttribute("height", height);
      scene.setAttribute("class", moves ? "go" : "");
      const parts = [], over = [];
      const delay = order => `animation-delay:${order * 160}ms`;
      const text = (x, y, words, kind, style) => s("text", {x, y, class: kind, style}, words);

      /** The cells of a physical block at [x, y]; empty slots are outlines. */
      const cells = (block, x, y, pooled) => {
        const kind = holders[block].length > 1 ? "s" : "p", copied = pooled ? fresh.findIndex(one => one.what === "copy" && one.block === block) : -1;
        return Array.from({length: size}, (_, n) => {
          const held = slots.get(block * size + n), left = x + n * cell;
          if (held === undefined) return s("rect", {x: left + 1.5, y: y + 1.5, width: cell - 3, height: CELL - 3, rx: 3, fill: "none", stroke: "var(--line)"});
          const now = fresh.findIndex(one => one.block === block && one.position % size === n);
          return s("g", {class: `cell ${kind}${copied >= 0 || now >= 0 ? " late" : ""}`, style: copied >= 0 ? delay(copied) : now >= 0 ? delay(now) : null},
            s("rect", {x: left + .5, y: y + .5, width: cell - 1, height: CELL - 1, rx: 3, style: now >= 0 ? "stroke:var(--fg);stroke-width:2.5" : null}),
            s("text", {x: left + cell / 2, y: y + CELL / 2 + 4, style: `font-weight:${now >= 0 ? 700 : 400};font-size:${cell < 27 && held.length > 2 ? "9px;letter-spacing:-.5px" : "11px"}`}, held));
        });
      };
      /** The strip under a block's cells. */
      const foot = (block, x, y, ...words) => {
        const shared = holders[block].length > 1;
        return s("g", {class: shared ? "cell s" : "plain"},
          s("rect", {x: x + .5, y: y + CELL + .5, width: wide - 1, height: ENTRY - 1, rx: 3, style: shared ? null : "fill:var(--tint);stroke:var(--line)"}), ...words);
      };
      const word = (x, y, words, anchor = "start", bold = true) => s("text", {x, y: y + CELL + 14, style: `text-anchor:${anchor};font-weight:${bold ? 650 : 400};font-size:${wide < 88 ? 9.5 : 11}px`}, ...[words].flat());

      // The samples: a lane each, its logical blocks with the table entry of each underneath.
      parts.push(s("text", {x: 0, y: 11}, s("tspan", {class: "b"}, "Samples"), s("tspan", {class: "m", dx: 6}, perRow < 3 ? "" : head ? "tokens by logical block; under each, its entry in the block table" : "tokens, block table entries below")));
      if (head) for (let n = 0; n < Math.max(...tables.map(table => table.blocks.length)); n++) parts.push(text(at(0, n)[0], tops[0] - 6, `logical block ${n}`, "m"));
      tables.forEach((table, i) => {
        parts.push(text(0, tops[i] + (head ? 11 : 22), `Sample ${names[i]}`, "b", "font-size:12.5px"));
        table.blocks.forEach((block, n) => {
          const [x, y] = at(i, n), n_refs = holders[block].length, moved = fresh.find(one => one.i === i && one.what === "copy" && one.block === block);
          parts.push(s("g", {"data-lane": names[i], "data-logical": n}, foot(block, x, y, word(x + 5, y, moved ? ["block ", s("tspan", {class: "gone", style: "font-weight:400"}, moved.before), " → ", block] : `block ${block}`), n_refs > 1 ? word(x + wide - 5, y, `×${n_refs}`, "end") : ""), ...cells(block, x, y)));
        });
      });

      // The pool: every block with its reference count and its holders.
      parts.push(s("text", {x: 0, y: poolTop - 28}, s("tspan", {class: "b"}, "Physical pool"), s("tspan", {class: "m", dx: 6}, perRow < 3 ? "" : `${pool.numBlocks} blocks of ${size} slots, ${pool.numFree} free${head && shown < pool.numBlocks ? ` (${pool.numBlocks - shown} not drawn)` : ""}`)));
      pool.references.slice(0, shown).forEach((references, block) => {
        const [x, y] = place(block), new_one = fresh.find(one => one.block === block && one.before !== block);
        const note = new_one ? (new_one.what === "copy" ? `copy of ${new_one.before}` : "new") : block === next ? "next" : "";
        parts.push(s("text", {x, y: y - 4}, s("tspan", {class: references ? "b" : "m"}, block), note && s("tspan", {class: "m", dx: 6}, note)));
        if (!references) {
          parts.push(s("rect", {x: x + .5, y: y + .5, width: wide - 1, height: CELL + ENTRY - 1, rx: 3, fill: "none", stroke: block === next ? "var(--fg)" : "var(--line)", "stroke-dasharray": block === next ? "3 2" : null}));
          return;
        }
        const lost = fresh.filter(one => one.what === "copy" && one.before === block).length;
        parts.push(s("g", {"data-block": block, "data-references": references, "data-holders": holders[block].join("")},
          foot(block, x, y, word(x + 5, y, lost ? [s("tspan", {class: "gone", style: "font-weight:400"}, `×${references + lost}`), s("tspan", {dx: 3}, `×${references}`)] : `×${references}`), word(x + wide - 5, y, holders[block].join(wide >= 100 && !(lost && references > 4) ? " " : ""), "end", references > 1)), ...cells(block, x, y, true)));
        if (new_one || lost) layout.marked.add(block);
        if (new_one || lost) over.push(s("rect", {class: "pulse", x: x - 1, y: y - 1, width: wide + 2, height: CELL + ENTRY + 2, rx: 4, fill: "none", stroke: "var(--fg)", "stroke-width": 2}));
      });

      // Copies: an arrow each, along the gaps between the blocks; lines first, so that none is cut by another's halo.
      const copied = fresh.filter(one => one.what === "copy").map(({before, block}, order) => {
        const [x0, y0] = place(before), name = `${before}>${block}`, [x1, y1] = place(block), from = x0 + wide * .72, to = x1 + wide * .88, below = y1 > y0;
        const floor = y0 + floorBelow, last = y1 - poolPitch + floorBelow, points = [[from, y0 + CELL + ENTRY + 1], [from, floor]];
        if (below && last > floor) { const gutter = x1 ? x1 - gap / 2 : x1 + step - gap / 2; points.push([gutter, floor], [gutter, last]); }
        points.push([to, below ? last : floor], [to, below ? y1 - 7 : y1 + CELL + ENTRY + 7]);
        return {name, d: elbows(points), tip: [to, below ? y1 - 1 : y1 + CELL + ENTRY + 1], side: below ? -8 : 8, style: delay(order)};
      });
      for (const kind of ["wire back", "wire"]) over.push(...copied.map(({name, d, style}) => s("path", {class: kind, "data-copy": name, d, pathLength: 1, style})));
      over.push(...copied.map(({tip: [x, y], side, style}) => s("path", {class: "late", d: `M${x - 5} ${y + side}h10l-5 ${-side}z`, fill: "var(--fg)", style})));
      scene.replaceChildren(...parts, ...over);

      // Lanes stay where they are in the page, so that focus stays where the reader has it.
      lanes.forEach(({lane: node}, i) => { if (i >= tables.length) node.remove(); else if (!node.isConnected) list.append(node); });
      lanes.slice(0, tables.length).forEach(({lane: node, button, label}, i) => {
        node.style.cssText = `top:${tops[i] - 4}px;height:${tops[i + 1] - tops[i] - 4}px`;
        button.style.cssText = head ? "left:0;top:21px;width:68px;height:26px" : "right:0;top:2px;width:76px;height:28px";
        button.disabled = !room(i);
        label.textContent = `${plural(tables[i].length, "token")}; block table: ${tables[i].blocks.map(block => `${block}${holders[block].length > 1 ? ` (shared by ${holders[block].length})` : ""}`).join(", ")}`;
      });
      all.disabled = !tables.some((_, i) => room(i));
      back.disabled = !action.length;
      reset.disabled = !fig.state().writes.length;
      say.textContent = (undone ? "Undone, back to: " : "") + sentence();
      picture.textContent = `Physical pool: ${holders.flatMap((who, block) => (who.length ? [`block ${block}: ${plural(who.length, "reference")}, ${who.join(" ")}`] : [])).join("; ")}; ${pool.numFree} free.`;
      drawControls();
      ring();
    };

    /** The blocks of the sample at hand, in its lane and in the pool. */
    const ring = () => {
      const box = (x, y) => s("rect", {x: x - 2, y: y - 2, width: layout.wide + 4, height: CELL + ENTRY + 4, rx: 5, fill: "none", stroke: "var(--fg)", "stroke-width": 1.5, "stroke-dasharray": "4 2"});
      rings.replaceChildren(...(pointed === null || pointed >= tables.length ? [] : tables[pointed].blocks.flatMap((block, n) => [box(...layout.at(pointed, n)), layout.marked.has(block) ? "" : box(...layout.place(block))])));
    };
    const point = i => { pointed = i; if (layout) ring(); };

    fig.onState(() => { undone = false; replay(); redraw(); });
    replay();
    fig.onWidth(pic, w => { width = w; redraw(); });
  };

  define("copy-on-write", draw, CSS);
})();
