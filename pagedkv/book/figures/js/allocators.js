/* Figure 1: one stream of requests through a contiguous and a paged pool. Python replayed both; a "stay" says where a
   request was and from when to when, and everything drawn here is looked up from that. */
(() => {
  "use strict";
  const {h, s, rects, plural, icon, define} = globalThis.pagedkv;

  const CSS = `
.pkv-allocators .sides{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:1rem 1.6rem;margin-top:.6rem}
@container (max-width:559px){.pkv-allocators .sides{grid-template-columns:minmax(0,1fr)}}
.pkv-allocators .name{font-size:15px;font-weight:650}
.pkv-allocators .how{font-size:12.5px;color:var(--muted)}
.pkv-allocators .now{display:grid;grid-template-columns:auto 1fr;align-items:center;gap:0 .6rem;margin:.1rem 0 .35rem;font-size:12px;line-height:1.3;white-space:nowrap}
.pkv-allocators .now b{font-size:27px;line-height:1.2;font-weight:650;letter-spacing:-.02em}
.pkv-allocators .now .m{grid-column:1/-1}
.pkv-allocators .pic{position:relative}
.pkv-allocators .cells{position:absolute;cursor:crosshair;touch-action:pan-y;border-radius:3px}
.pkv-allocators .chip{transition:transform .28s ease-out,opacity .28s}
.pkv-allocators .chip text{font-size:10.5px;text-anchor:middle;dominant-baseline:central}
.pkv-allocators .chip rect{fill:var(--bg);stroke:var(--edge)}
.pkv-allocators .chip.run rect{fill:var(--tok);stroke:var(--tok)}
.pkv-allocators .chip.run text{fill:var(--tok-ink)}
.pkv-allocators .chip.on rect{stroke:var(--fg);stroke-width:2.5}
.pkv-allocators .inspect{min-height:2.7em;margin-top:.3rem;font-size:12px;line-height:1.35;color:var(--muted)}
.pkv-allocators .end{font-size:12px;line-height:1.35;border-left:3px solid var(--line);padding-left:.6rem;margin-top:.2rem}
.pkv-allocators .end.done{border-color:var(--fg)}
.pkv-allocators .end div{font-size:14px;line-height:1.4}
.pkv-allocators .end b{font-weight:650}
.pkv-allocators .scrub{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 .8rem;align-items:center;margin-top:.35rem}
.pkv-allocators .scrub b{display:inline-block;min-width:2.6em;text-align:right}
.pkv-allocators .say{font-size:13px}
.pkv-allocators .push{margin-left:auto}
@container (max-width:559px){.pkv-allocators .scrub{grid-template-columns:minmax(0,1fr)}.pkv-allocators .scrub label{order:-1}.pkv-allocators .scrub b{min-width:0}.pkv-allocators .push{margin-left:0}}
@media (prefers-reduced-motion:reduce){.pkv-allocators .play{display:none!important}}`;

  const CHIP = 19, PITCH = 21, GUTTER = 20, LANE = 21;
  const share = (part, whole) => (whole ? (100 * part / whole).toFixed(1) + " %" : "-");

  /** What one side held in each iteration, summed up from its stays. */
  const history = (side, data) => {
    const paged = Array.isArray(side.stays[0][5]), size = data.block_size;
    const stays = side.stays.map(([request, queued, admitted, left, held, where]) => ({request, queued, admitted, left, held, where, total: data.totals[request]}));
    const tokens = (stay, step) => Math.min(stay.held + step + 1 - stay.admitted, stay.total);
    const at = step => {
      const running = stays.filter(stay => stay.admitted <= step && step < stay.left);
      const waiting = stays.filter(stay => stay.queued <= step && step < stay.admitted);
      const held = running.reduce((sum, stay) => sum + (paged ? Math.ceil(tokens(stay, step) / size) * size : data.reservation), 0);
      const hole = !paged && waiting.length ? data.slots - held : 0; // free, and too small for who is next
      const used = running.reduce((sum, stay) => sum + tokens(stay, step), 0);
      return {running, waiting, finished: Object.keys(data.totals).length - new Set(stays.filter(stay => stay.left > step).map(stay => stay.request)).size, used, taken: held + hole, hole};
    };
    const sums = [[0, 0]]; // slots used and taken, added up over the iterations before
    for (let step = 0; step < side.iterations; step++) {
      const {used, taken} = at(step), [u, t] = sums[step];
      sums.push([u + used, t + taken]);
    }
    return {paged, stays, tokens, at, sums};
  };

  const makeSide = (fig, key, name, how, touch) => {
    const {data} = fig, side = data[key], past = history(side, data), {paged, tokens} = past, size = data.block_size;
    const blocks = data.slots / size, columns = data.reservation / size, rows = Math.ceil(blocks / columns);
    const requests = Object.keys(data.totals).map(Number);
    const big = h("b"), used = h("span", {class: "m"}), end = h("div", {class: "end"}), inspect = h("div", {class: "inspect"});
    const title = () => s("text", {class: "m"});
    const lanes = {waiting: title(), running: title(), finished: title(), pool: title(), chart: title()};
    const fills = Object.fromEntries(["free", "external", "overprovisioned", "reserved", "sliver", "tokens"].map(state => [state,
      s("path", {"data-state": state, fill: state === "free" ? "none" : fig.paint(state), stroke: state === "free" ? "var(--line)" : "none"})]));
    const lines = s("path", {stroke: "var(--bg)", fill: "none", "stroke-width": 1}), ring = s("path", {fill: "none", stroke: "var(--fg)", "stroke-width": 2, "stroke-linejoin": "round"});
    const gutter = s("g"), note = s("text", {class: "m", style: "font-size:10.5px"}), caret = s("rect", {fill: "none", stroke: "var(--fg)", "stroke-width": 2.5, visibility: "hidden"});
    const chips = new Map(requests.map(id => [id, s("g", {class: "chip", "data-request": id, opacity: 0},
      s("rect", {width: CHIP, height: 17, rx: 4}), s("text", {x: CHIP / 2, y: 9}, id))]));
    const ghost = s("g", {opacity: .28}), trace = s("g"), clip = s("rect", {y: 0}), head = s("path", {stroke: "var(--fg)", "stroke-width": 1.5}), axis = s("g");
    const svg = s("svg", {"aria-hidden": "true"}, s("defs", {}, s("clipPath", {id: `${fig.id}${key}`}, clip)), ...Object.values(lanes),
      ...Object.values(fills), lines, gutter, note, ring, caret, axis, ghost, s("g", {"clip-path": `url(#${fig.id}${key})`}, trace), head, s("g", {}, ...chips.values()));
    const cells = h("div", {class: "cells", role: "slider", tabindex: 0, "aria-label": `${name} pool, one cell`, "aria-valuemin": 0, "aria-valuemax": blocks - 1, "aria-valuenow": 0, "aria-valuetext": "cell 0"});
    const pic = h("div", {class: "pic"}, svg, cells);
    const node = h("section", {class: "side " + key, "aria-label": name},
      h("div", {}, h("span", {class: "name"}, name), " ", h("span", {class: "how"}, how)),
      h("div", {class: "now"}, big, h("span", {}, "of the slots taken", h("br"), "hold tokens now"), used), pic, inspect, end);
    let geo = null, step = 0, state = null, cursor = null, hovered = null;

    const layout = (width, laneRows) => {
      const perLane = Math.max(1, Math.floor((width + PITCH - CHIP) / PITCH));
      const waitRows = laneRows(perLane, "waiting"), runRows = laneRows(perLane, "running");
      const waitY = 14, runY = waitY + waitRows * LANE + 15, poolY = runY + runRows * LANE + 20;
      const cell = (width - GUTTER) / columns, tall = cell > 12 ? 18 : 15, row = tall + 4;
      const chartY = poolY + rows * row + 22, line = 4, height = chartY + requests.length * line + 18;
      geo = {width, perLane, waitY, runY, poolY, cell, slot: cell / size, tall, row, chartY, line, scale: (width - GUTTER - 2) / data.iterations,
        x: block => GUTTER + (block % columns) * cell, y: block => poolY + Math.floor(block / columns) * row};
      svg.setAttribute("width", width);
      svg.setAttribute("height", height);
      cells.style.cssText = `left:${GUTTER}px;top:${poolY}px;width:${width - GUTTER}px;height:${rows * row - 4}px`;
      for (const [lane, y] of [["waiting", waitY], ["running", runY], ["finished", runY], ["pool", poolY - 1], ["chart", chartY - 4]]) lanes[lane].setAttribute("y", y - 4);
      lanes.finished.setAttribute("x", width);
      lanes.finished.setAttribute("text-anchor", "end");
      lanes.pool.textContent = paged ? `${blocks} blocks of ${size} slots, by number` : "pool: a row is a reservation, by request";
      lanes.chart.textContent = "each request in time: thin waits, thick runs";
      let d = "";
      for (let block = 0; block < blocks; block++) if (block % columns) d += `M${geo.x(block)} ${geo.y(block) - 1}v${tall + 2}`;
      lines.setAttribute("d", d);
      gutter.replaceChildren(...Array.from({length: rows}, (_, i) => s("text", {class: "m", x: GUTTER - 5, y: geo.y(i * columns) + tall / 2 + 3.5, "text-anchor": "end", style: "font-size:10px"}, paged ? i * columns : "")));
      note.setAttribute("x", geo.x(blocks % columns || columns) + (blocks % columns ? 5 : 0));
      note.setAttribute("y", geo.y(blocks - 1) + tall / 2 + 3.5);

      // Below the pool, a line for each request: thin while it waits, a bar while it runs.
      const bars = () => {
        const wait = [], run = [];
        past.stays.forEach(stay => {
          const y = chartY + requests.indexOf(stay.request) * line;
          if (stay.admitted > stay.queued) wait.push([GUTTER + stay.queued * geo.scale, y + 1, (stay.admitted - stay.queued) * geo.scale, .9]);
          run.push([GUTTER + stay.admitted * geo.scale, y, (stay.left - stay.admitted) * geo.scale, 2.8]);
        });
        return [s("path", {d: rects(wait), fill: "var(--fg)"}), s("path", {d: rects(run), fill: "var(--tok)"})];
      };
      ghost.replaceChildren(...bars());
      trace.replaceChildren(...bars());
      clip.setAttribute("height", height);
      const floor = chartY + requests.length * line + 1;
      const over = GUTTER + side.iterations * geo.scale, end_at = side.iterations.toLocaleString("en");
      axis.replaceChildren(s("path", {d: `M${GUTTER} ${floor}H${width}M${over} ${floor + 5}V${chartY}`, fill: "none", stroke: "var(--line)"}),
        s("text", {class: "m", x: GUTTER, y: floor + 13, style: "font-size:10px"}, "0"),
        s("text", {class: "m", x: over + 2, y: floor + 15, "text-anchor": "end", style: "font-size:10px"}, over - GUTTER > 180 ? `all finished at iteration ${end_at}` : `done at ${end_at}`));
      geo.floor = floor;
    };

    /** Slots of every state in reading order: [state, first slot, count, request]. */
    const runs = () => {
      const list = [], spoken = new Set();
      for (const stay of state.running) {
        const n = tokens(stay, step);
        if (!paged) {
          list.push(["tokens", stay.where, n, stay], ["reserved", stay.where + n, stay.total - n, stay], ["overprovisioned", stay.where + stay.total, data.reservation - stay.total, stay]);
          for (let i = 0; i < columns; i++) spoken.add(stay.where / size + i);
          continue;
        }
        stay.where.slice(0, Math.ceil(n / size)).forEach((block, i) => {
          const now = Math.min(size, n - i * size), later = Math.min(size, stay.total - i * size) - now;
          list.push(["tokens", block * size, now, stay], ["reserved", block * size + now, later, stay], ["sliver", block * size + now + later, size - now - later, stay]);
          spoken.add(block);
        });
      }
      for (let block = 0; block < blocks; block++) if (!spoken.has(block)) list.push([state.hole ? "external" : "free", block * size, size, null]);
      return list.filter(([, , count]) => count > 0);
    };

    /** Rectangles of a run of slots, cut where a row of the picture ends. */
    const boxes = (first, count) => {
      const list = [], wide = columns * size;
      for (let slot = first, left = count; left > 0;) {
        const here = Math.min(left, wide - (slot % wide)), block = Math.floor(slot / size);
        list.push([geo.x(block) + (slot % size) * geo.slot, geo.y(block), here * geo.slot, geo.tall]);
        slot += here;
        left -= here;
      }
      return list;
    };

    const describe = id => {
      const mine = past.stays.filter(stay => stay.request === id), stay = mine.find(one => step < one.left);
      if (!stay) return `Request ${id}: finished at iteration ${mine.at(-1).left} with ${plural(data.totals[id], "token")}.`;
      if (step < stay.queued) return `Request ${id}: has not arrived yet.`;
      if (step < stay.admitted) return `Request ${id}: waiting for ${plural(step + 1 - stay.queued, "iteration")}.`;
      const n = tokens(stay, step);
      if (!paged) return `Request ${id}: ${n} tokens, ${stay.total - n} reserved for later, ${data.reservation - stay.total} never used.`;
      const held = stay.where.slice(0, Math.ceil(n / size));
      return `Request ${id}: ${n} tokens in ${plural(held.length, "block")}: ${held.slice(0, 7).join(", ")}${held.length > 7 ? " …" : ""}`;
    };
    const describeCell = block => {
      const inside = runs().filter(([, first, count]) => first < (block + 1) * size && first + count > block * size);
      const who = inside[0][3], first = block * size;
      const parts = inside.map(([what, from, count]) => `${Math.min(from + count, first + size) - Math.max(from, first)} ${{tokens: "tokens", reserved: "reserved for later", overprovisioned: "never used", sliver: "rounding sliver", external: "in a hole that is too small", free: "free"}[what]}`);
      return `${paged ? `Block ${block}` : `Slots ${first} to ${first + size - 1}`}: ${who ? `request ${who.request}, ` : ""}${parts.join(", ")}.`;
    };

    const mark = () => {
      const picked = hovered ?? fig.state().request;
      const here = picked === null ? null : state.running.find(stay => stay.request === picked);
      const list = here ? (paged ? here.where.slice(0, Math.ceil(tokens(here, step) / size)).map(block => [block * size, size]) : [[here.where, data.reservation]]) : [];
      ring.setAttribute("d", rects(list.flatMap(([first, count]) => boxes(first, count))));
      chips.forEach((chip, id) => chip.classList.toggle("on", id === picked));
      caret.setAttribute("visibility", cursor === null ? "hidden" : "visible");
      if (cursor !== null) for (const [name, value] of Object.entries({x: geo.x(cursor) - .5, y: geo.y(cursor) - 1.5, width: geo.cell + 1, height: geo.tall + 3})) caret.setAttribute(name, value);
      inspect.textContent = cursor !== null ? describeCell(cursor) : picked !== null ? describe(picked) : paged ? "" : "Point at a cell, or walk through a pool with the arrow keys.";
      cells.setAttribute("aria-valuenow", cursor ?? 0);
      cells.setAttribute("aria-valuetext", describeCell(cursor ?? 0));
      trace.querySelectorAll(".pick").forEach(one => one.remove());
      if (picked !== null) trace.append(s("path", {class: "pick", fill: "none", stroke: "var(--fg)", d: rects(past.stays.filter(stay => stay.request === picked).map(stay =>
        [GUTTER + stay.queued * geo.scale, geo.chartY + requests.indexOf(picked) * geo.line - .6, (stay.left - stay.queued) * geo.scale, 4]))}));
    };

    const show = now => {
      step = now;
      state = past.at(step);
      const list = runs();
      for (const [name, path] of Object.entries(fills)) {
        const mine = list.filter(([what]) => what === name).flatMap(([, first, count]) => boxes(first, count));
        path.setAttribute("d", rects(name === "free" ? mine.map(([x, y, w, t]) => [x + 1, y + .5, w - 2, t - 1]) : mine));
      }
      if (!paged) [...gutter.children].forEach((text, i) => { const who = state.running.find(stay => stay.where === i * data.reservation); text.textContent = who ? who.request : ""; });
      const spare = data.slots - state.taken;
      note.textContent = blocks % columns === 0 ? "" : state.hole ? `a hole of ${state.hole} < ${data.reservation}` : `${spare.toLocaleString("en")} slots free`;
      lanes.waiting.textContent = `waiting: ${state.waiting.length}`;
      lanes.running.textContent = `running: ${state.running.length}`;
      lanes.finished.textContent = `finished: ${state.finished}`;
      const place = (id, i, y, run) => {
        const chip = chips.get(id);
        chip.setAttribute("class", "chip" + (run ? " run" : ""));
        chip.setAttribute("opacity", 1);
        chip.style.transform = `translate(${(i % geo.perLane) * PITCH}px,${y + Math.floor(i / geo.perLane) * LANE}px)`;
      };
      chips.forEach(chip => chip.setAttribute("opacity", 0));
      state.waiting.forEach((stay, i) => place(stay.request, i, geo.waitY));
      state.running.forEach((stay, i) => place(stay.request, i, geo.runY, true));
      big.textContent = share(state.used, state.taken);
      used.textContent = `of the pool: ${share(state.used, data.slots)} used, ${share(state.taken, data.slots)} taken`;
      const done = step >= side.iterations, [sumUsed, sumTaken] = past.sums[Math.min(step + 1, side.iterations)];
      end.classList.toggle("done", done);
      const spent = data.slots * Math.min(step + 1, side.iterations);
      end.replaceChildren(h("div", {}, done ? "Ending percentage: " : "Average so far: ", h("b", {class: "average"}, done ? side.of_taken.toFixed(1) + " %" : share(sumUsed, sumTaken))),
        `of the slots taken held tokens; of the whole pool, ${done ? side.of_pool.toFixed(1) + " %" : share(sumUsed, spent)}`);
      const x = GUTTER + Math.min(step, data.iterations) * geo.scale;
      clip.setAttribute("width", Math.max(0, x));
      head.setAttribute("d", `M${x} ${geo.chartY - 4}V${geo.floor}`);
      mark();
    };

    const cellAt = event => {
      const box = cells.getBoundingClientRect(), column = Math.floor((event.clientX - box.left) / geo.cell), row = Math.floor((event.clientY - box.top) / geo.row);
      const block = row * columns + column;
      return column >= 0 && column < columns && row >= 0 && block < blocks ? block : null;
    };
    const owner = block => { const found = block === null ? null : runs().find(([, first, count]) => first <= block * size && block * size < first + count); return found && found[3] ? found[3].request : null; };
    const over = block => { cursor = block; touch.hover(owner(block)); };
    cells.addEventListener("pointermove", event => over(cellAt(event)));
    cells.addEventListener("pointerleave", () => over(document.activeElement === cells ? cursor : null));
    cells.addEventListener("focus", () => over(cursor ?? 0));
    cells.addEventListener("blur", () => over(null));
    cells.addEventListener("click", event => touch.pick(owner(cellAt(event))));
    cells.addEventListener("keydown", event => {
      const move = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -blocks, End: blocks, PageDown: columns, PageUp: -columns}[event.key];
      if (event.key === "Enter" || event.key === " ") touch.pick(owner(cursor));
      else if (move) over(Math.max(0, Math.min(blocks - 1, (cursor ?? 0) + move)));
      else return;
      event.preventDefault();
    });
    chips.forEach((chip, id) => {
      chip.addEventListener("pointerenter", () => touch.hover(id));
      chip.addEventListener("pointerleave", () => touch.hover(null));
      chip.addEventListener("click", () => touch.pick(id));
    });
    svg.addEventListener("click", event => {
      const box = svg.getBoundingClientRect(), y = event.clientY - box.top;
      if (y >= geo.chartY - 6) touch.seek(Math.round((event.clientX - box.left - GUTTER) / geo.scale));
    });
    return {node, pic, past, layout, show, mark, key, name, hover: id => { hovered = id; }, most: lane => Math.max(...events(past, lane)), state: () => state, cursor: () => cursor};
  };

  /** Lengths of a lane, wherever they can change. */
  const events = (past, lane) => [...new Set(past.stays.flatMap(stay => [stay.queued, stay.admitted, stay.left]))].map(step => past.at(step)[lane].length);

  const draw = fig => {
    const {data, root} = fig, last = data.iterations;
    root.style.setProperty("--tok", fig.palette.tokens.color);
    root.style.setProperty("--tok-ink", fig.palette.tokens.ink);
    let playing = 0, clock = 0, poster = true, width = 0;

    const touch = {
      hover: id => { both.forEach(side => { side.hover(id); side.mark(); }); },
      pick: id => { const next = id === fig.state().request ? null : id; fig.set({request: next}); follow.value = next ?? ""; touch.hover(null); },
      seek: step => go(step),
    };
    const both = [
      makeSide(fig, "contiguous", "Contiguous", `${data.reservation} slots per request`, touch),
      makeSide(fig, "paged", "Paged", `${data.block_size}-token blocks`, touch),
    ];
    const stops = [...new Set([0, last, ...both.flatMap(({past}) => past.stays.flatMap(stay => [stay.queued, stay.admitted, stay.left]))])].sort((a, b) => a - b);

    const scrub = h("input", {type: "range", min: 0, max: last, step: 1, id: fig.id + "scrub", oninput: () => go(+scrub.value)});
    const play = h("button", {type: "button", class: "main play", onclick: () => (playing ? pause() : start())});
    const back = h("button", {type: "button", "aria-label": "Back to the previous event", onclick: () => go(stops.filter(stop => stop < now()).at(-1) ?? 0)}, icon("M0 1h2v10H0zM11 1v10L3 6z"), "event");
    const next = h("button", {type: "button", "aria-label": "On to the next event", onclick: () => go(stops.find(stop => stop > now()) ?? last)}, "event", icon("M10 1h2v10h-2zM1 1v10l8-5z"));
    const reset = h("button", {type: "button", onclick: () => go(0)}, "Reset");
    const speed = h("select", {id: fig.id + "speed"}, ...[[7.5, "¼×"], [15, "½×"], [30, "1×"], [60, "2×"], [120, "4×"]].map(([rate, label]) => h("option", {value: rate, selected: rate === 30}, label)));
    const follow = h("select", {id: fig.id + "follow", "aria-label": "Follow request", onchange: () => { fig.set({request: follow.value === "" ? null : +follow.value}); touch.hover(null); say(); }},
      h("option", {value: ""}, "none"), ...Object.keys(data.totals).map(id => h("option", {value: id}, id)));
    const at = h("span", {}), sentence = h("div", {class: "say"});
    root.append(
      h("div", {class: "pkv-row"}, play, back, next, reset,
        h("label", {class: "push pkv-row"}, "Speed ", speed), h("label", {class: "pkv-row"}, "Follow ", follow)),
      h("div", {class: "scrub"}, scrub, h("label", {for: fig.id + "scrub"}, "iteration ", at)),
      sentence, fig.key(["tokens", "reserved", "overprovisioned", "sliver", "external", "free"].map(name => [name, fig.palette[name].label])),
      h("div", {class: "sides"}, both[0].node, both[1].node));

    const now = () => Math.max(0, Math.min(last, fig.state().step));
    const what = () => {
      const step = now(), [left, right] = both.map(side => side.state()), parts = [];
      both.forEach(({past, key}) => {
        const ids = (list, verb) => list.length && parts.push(`${key} ${verb} ${list.length > 4 ? plural(list.length, "request") : list.join(", ")}`);
        ids(past.stays.filter(stay => stay.admitted === step).map(stay => stay.request), "admits");
        ids(past.stays.filter(stay => stay.left === step).map(stay => stay.request), "finishes");
      });
      if (parts.length) return parts.join("; ");
      return `contiguous: ${left.running.length} running, ${left.waiting.length || "none"} waiting; paged: ${right.running.length} running, ${right.waiting.length || "none"} waiting`;
    };
    const say = () => fig.announce(`Iteration ${now()}. ${sentence.textContent} ` + both.map(side =>
      `${side.name}: ${side.node.querySelector(".now").textContent.replace(/\s+/g, " ")}; ${side.state().running.length} running, ${side.state().waiting.length} waiting, ${side.state().finished} finished. ${now() === last ? side.node.querySelector(".end").textContent : ""}`).join(" "));
    const show = () => {
      const step = now();
      both.forEach(side => side.show(step));
      scrub.value = step;
      scrub.setAttribute("aria-valuetext", `iteration ${step} of ${last}`);
      at.replaceChildren(h("b", {}, step), ` of ${last}`);
      const text = what();
      sentence.textContent = text[0].toUpperCase() + text.slice(1) + ".";
      back.disabled = step === 0;
      next.disabled = step === last;
    };
    const face = () => play.replaceChildren(icon(playing ? "M1 1h4v10H1zM7 1h4v10H7z" : "M2 0v12l9-6z"), playing ? "Pause" : "Play");
    const go = step => { poster = false; pause(); fig.set({step: Math.max(0, Math.min(last, step))}); show(); say(); };
    const pause = () => { if (!playing) return; cancelAnimationFrame(playing); playing = 0; face(); say(); };
    const start = () => {
      if (fig.still()) return;
      // A figure that nobody has touched shows a telling moment, like the poster of a film: it plays from the start.
      if (poster || now() === last) fig.set({step: 0});
      poster = false;
      let owed = 0;
      clock = performance.now();
      const frame = time => {
        owed += Math.min(200, Math.max(0, time - clock)) / 1000 * +speed.value;
        clock = time;
        const due = Math.floor(owed);
        owed -= due;
        if (due) { fig.set({step: Math.min(last, now() + due)}); show(); }
        if (now() === last) pause(); else playing = requestAnimationFrame(frame);
      };
      playing = requestAnimationFrame(frame);
      face();
      show();
    };
    fig.onStill(() => fig.still() && pause());
    fig.onState(() => { pause(); poster = false; follow.value = fig.state().request ?? ""; show(); });
    fig.off(() => cancelAnimationFrame(playing));
    fig.listen(root, "keydown", event => { if (event.key === "Escape" && fig.state().request !== null) touch.pick(fig.state().request); });
    follow.value = fig.state().request ?? "";
    face();
    const most = Object.fromEntries(["waiting", "running"].map(lane => [lane, Math.max(...both.map(side => side.most(lane)))]));
    fig.onWidth(both[0].pic, w => {
      width = w;
      both.forEach(side => side.layout(width, (perLane, lane) => Math.max(1, Math.ceil(most[lane] / perLane))));
      show();
    });
  };

  define("allocators", draw, CSS);
})();
