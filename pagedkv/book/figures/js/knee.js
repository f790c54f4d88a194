/* Figure 6: what a pool of each size does to the same arrivals, and some requests of that very run in time. Python ran
   every choice; a strip is the log of some requests, as lengths of waiting, running, being out, running, and so on. */
(() => {
  "use strict";
  const {h, s, rects, define} = globalThis.pagedkv;

  const CSS = `
.pkv.pkv-knee{max-width:760px;margin-inline:auto}
.pkv-knee .top{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:.3rem 2.2rem;align-items:start}
.pkv-knee .ticks text{text-anchor:middle}
.pkv-knee .check{display:flex;gap:.5rem;align-items:flex-start;cursor:pointer}
.pkv-knee .check input{width:24px;height:24px;margin:0;flex:none;accent-color:var(--fg)}
.pkv-knee .check .m{display:block;font-size:12.5px;line-height:1.35}
.pkv-knee .curves{margin-top:.2rem;cursor:ew-resize;touch-action:pan-y;user-select:none}
.pkv-knee .curves svg{pointer-events:none}
.pkv-knee :is(.grid,.axis){fill:none;stroke:var(--line)}
.pkv-knee .line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.pkv-knee .other{fill:none;stroke:var(--fg);stroke-width:1.3;stroke-dasharray:5 3;opacity:.75}
.pkv-knee .pre{--ink:var(--out)}.pkv-knee .good{--ink:var(--tok)}.pkv-knee .late{--ink:var(--fg)}
.pkv-knee .line{stroke:var(--ink)}.pkv-knee .dots{fill:var(--ink)}
.pkv-knee .here{fill:var(--bg);stroke:var(--fg);stroke-width:2.5}
.pkv-knee .post{fill:none;stroke:var(--fg);stroke-width:1.3}
.pkv-knee .name tspan.b{font-size:15px}
.pkv-knee .name{font-size:12.5px}
.pkv-knee .pool label{display:block;text-align:center}
.pkv-knee .say{margin:.7rem 0 0;border-left:3px solid var(--fg);padding-left:.6rem;font-size:14px;min-height:5.8em}
.pkv-knee .say b{display:block;font-weight:600}
.pkv-knee .strip{margin-top:.9rem;padding-top:.7rem;border-top:1px solid var(--line)}
.pkv-knee .tell{font-weight:600;margin-bottom:.3rem}
.pkv-knee .pic{position:relative}
.pkv-knee .rows{position:absolute;cursor:crosshair;touch-action:pan-y;border-radius:3px}
.pkv-knee .wait{fill:var(--edge)}.pkv-knee .run{fill:var(--tok)}.pkv-knee .back{fill:var(--mov)}
.pkv-knee .frame{fill:none;stroke:var(--fg);stroke-width:1.5}
.pkv-knee .inspect{min-height:1.45em;font-size:12.5px;color:var(--muted)}
@container (max-width:699px){.pkv-knee .say{min-height:7.25em}.pkv-knee .tell{min-height:2.9em}}
@container (max-width:559px){.pkv-knee .say{min-height:8.7em}.pkv-knee .top{grid-template-columns:minmax(0,1fr)}.pkv-knee .tell{min-height:4.35em}.pkv-knee .inspect{min-height:2.9em}}
@container (max-width:439px){.pkv-knee .say{min-height:13.05em}.pkv-knee .inspect{min-height:4.35em}}
@media (forced-colors:active){.pkv-knee .grid{opacity:.3}}`;

  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", ONE = 48;
  const GUTTER = 38, RIGHT = 12, TALL = [60, 60, 92], ROW = 8, SPACE = "\u00a0";

  /** The lanes of one strip, as `encode` in knee.py wrote them. */
  const decode = (text, arrivals, first, span) => text.split(".").slice(0, -1).map((codes, i) => {
    const spells = [];
    for (let at = 0; at < codes.length; at++) {
      const digit = DIGITS.indexOf(codes[at]);
      spells.push(digit < ONE ? digit : ONE + (digit - ONE) * 64 + DIGITS.indexOf(codes[++at]));
    }
    const end = spells.reduce((sum, spell) => sum + spell, arrivals[i]);
    return {request: first + i, arrival: arrivals[i], spells, end, done: end < span, evictions: (spells.length - 1) >> 1};
  });

  const percent = (other, one) => `${Math.round(Math.abs(100 * other / one - 100))}${SPACE}%`;
  const times = n => (n === 1 ? "once" : `${n} times`);
  /** At most four round marks from 0 to `top`. */
  const marks = top => {
    const step = [.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find(one => top / one < 4);
    return Array.from({length: Math.floor(top / step) + 1}, (_, i) => i * step);
  };

  const draw = fig => {
    const {data, root, id} = fig, {rates, pools, span, unit, first} = data, least = pools[0], most = pools.at(-1), step = pools[1] - least;
    let run, other, lanes, width = 0, hovered = null;
    for (const [name, state] of [["tok", "tokens"], ["out", "external"], ["mov", "moving"]]) root.style.setProperty("--" + name, fig.palette[state].color);
    const blocks = n => n.toLocaleString("en"), count = data.arrivals[0].length, requests = blocks(data.requests), seconds = units => `${(units * unit).toFixed(1)}${SPACE}s`, window = `${span * unit}${SPACE}s`;
    const tops = [0, 1, 2].map(i => Math.max(...data.runs.flat(2).map(numbers => numbers[i])) * 1.06);

    // --- the run -------------------------------------------------------------------------------------------------
    const nearest = (list, value) => list.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));
    /** Look the chosen run up; what cannot be shown becomes what can. */
    const settle = () => {
      const held = fig.state(), size = nearest(pools, held.blocks), rate = nearest(rates, held.rate), watermarks = Boolean(held.watermarks);
      const pair = data.runs[rates.indexOf(rate)], at = pools.indexOf(size);
      run = {at, size, rate, watermarks, line: pair[+watermarks]};
      other = pair[+!watermarks];
      const [preemptions_per_request, goodput, completion_p99, recompute_multiple, strip] = run.line[at];
      lanes = decode(data.strips[strip], data.arrivals[rates.indexOf(rate)], first, span);
      const request = lanes.some(lane => lane.request === held.request) ? held.request : null;
      const state = {blocks: size, rate, watermarks, request, preemptions_per_request, goodput, completion_p99, recompute_multiple};
      if (JSON.stringify(state) !== JSON.stringify(held)) fig.set(state);
    };

    // The sentences: in step with knee.py.
    const sentences = () => {
      const {at, size, rate, watermarks, line} = run, [preemptions, good, late, multiple] = line[at];
      const next = [["more", at + 1], ["fewer", at - 1]].filter(([, i]) => line[i]).map(([word, i]) =>
        `with ${percent(pools[i], size)} ${word} (${blocks(pools[i])}), ${line[i][0].toFixed(2)} and ${line[i][2].toFixed(1)}${SPACE}s`).join("; ");
      return [`${blocks(size)} blocks at ${rate} requests per second, ${watermarks ? "with" : "without"} watermarks: ${preemptions.toFixed(2)} preemptions per request, p99 ${late.toFixed(1)}${SPACE}s.`,
        ` W${next.slice(1)}. ${good.toFixed(2)} requests per second are good; prefill does ${multiple.toFixed(2)} times the work of the prompts alone.`];
    };
    const total = () => {
      const evictions = lanes.reduce((sum, lane) => sum + lane.evictions, 0), hit = lanes.filter(lane => lane.evictions).length;
      return `This very run: of requests ${first} to ${first + count - 1}, ${hit} ${hit === 1 ? "is" : "are"} evicted${evictions ? `, ${times(evictions)}` : ""}; `
        + `${lanes.filter(lane => lane.done).length} finish within ${window}.`;
    };
    const describe = ({request, arrival, spells, end, done, evictions}) => {
      const came = `Request ${request}: came at ${seconds(arrival)}, `;
      if (spells.length === 1) return `${came}still waits at ${window}.`;
      const out = spells.reduce((sum, spell, i) => sum + (i && i % 2 === 0 ? spell : 0), 0);
      return `${came}waited ${seconds(spells[0])}, ${evictions ? `was evicted ${times(evictions)} and out for ${seconds(out)} in all, ` : ""}`
        + (done ? `finished at ${seconds(end)}.` : `${spells.length % 2 ? "is out" : "runs"} at ${window}.`);
    };

    // --- the skeleton --------------------------------------------------------------------------------------------
    const act = patch => { fig.set(patch); redraw(); fig.announce(`${say.textContent} ${tell.textContent}`); };
    const load = h("input", {type: "range", id: id + "l", min: 0, max: rates.length - 1, step: 1, oninput: () => act({rate: rates[load.value]})});
    const loadName = h("b", {class: "rate"}), ticks = s("svg", {class: "ticks", height: 14, "aria-hidden": "true"});
    const gate = h("input", {type: "checkbox", onchange: () => act({watermarks: gate.checked})});
    const curves = h("div", {class: "curves"}), svg = s("svg", {"aria-hidden": "true"});
    const slider = h("input", {type: "range", id: id + "p", min: least, max: most, step, oninput: () => act({blocks: +slider.value})});
    const poolName = h("b", {class: "blocks"}), poolBytes = h("span", {class: "m"});
    const say = h("div", {class: "say"}), tell = h("div", {class: "tell"}), inspect = h("div", {class: "inspect"});
    const strip = s("svg", {"aria-hidden": "true"}), mark = s("rect", {class: "frame", rx: 3, height: ROW + 2});
    const rows = h("div", {class: "rows", role: "slider", tabindex: 0, "aria-label": "One request", "aria-valuemin": first, "aria-valuemax": first + count - 1});
    const pic = h("div", {class: "pic"}, strip, rows);
    const bar = (state, tall, width_ = 26) => s("svg", {width: width_, height: 12, "aria-hidden": "true"}, s("rect", {y: 6 - tall / 2, width: width_, height: tall, class: state, fill: state === "gone" ? fig.paint("external") : null}));
    const dash = s("svg", {width: 26, height: 12, "aria-hidden": "true"}, s("path", {class: "other", d: "M0 6h26"})), dashName = h("span", {});
    curves.append(svg);
    const [goodFirst, goodNext] = data.limits;
    root.append(
      h("div", {class: "top"},
        h("div", {}, h("label", {for: id + "l"}, "Load: ", loadName), load, ticks),
        h("label", {class: "check"}, gate, h("span", {}, `Watermarks ${data.marks.join(" / ")}`, h("span", {class: "m"}, `Nobody comes in from when fewer than ${data.marks[0]} of the blocks are free until ${data.marks[1]} are.`)))),
      fig.key([[dash, dashName]]), curves,
      h("div", {class: "pool"}, slider, h("label", {for: id + "p"}, "KV pool: ", poolName, " ", poolBytes)), say,
      h("div", {class: "strip"}, tell, pic, inspect,
        fig.key([[bar("wait", 1.5), "waits to be let in"], [bar("run", 6), "runs"], [bar("gone", 4), "evicted, waits to come back"], [bar("back", 11, 3), "recomputes what it had (one iteration)"]])));

    // --- drawing -------------------------------------------------------------------------------------------------
    const x = size => GUTTER + (size - least) / (most - least) * (width - GUTTER - RIGHT);
    const drawControls = () => {
      const w = Math.floor(load.clientWidth), {size, rate, watermarks} = run;
      load.value = rates.indexOf(rate);
      load.setAttribute("aria-valuetext", `${rate} requests per second`);
      loadName.textContent = `${rate} requests per second`;
      ticks.setAttribute("width", w);
      ticks.replaceChildren(...rates.map((one, i) => s("text", {x: 8 + i * (w - 16) / (rates.length - 1), y: 11, class: one === rate ? "b" : "m"}, one)));
      gate.checked = watermarks;
      slider.value = size;
      slider.setAttribute("aria-valuetext", `${blocks(size)} blocks`);
      slider.style.cssText = `margin-left:${GUTTER - 8}px;width:${width - GUTTER - RIGHT + 16}px`;
      poolName.textContent = `${blocks(size)} blocks`;
      poolBytes.textContent = `(${(size * data.block_bytes / 2 ** 30).toFixed(1)} GiB)`;
      dashName.textContent = `the same ${watermarks ? "without" : "with"} watermarks`;
    };
    const drawCurves = () => {
      const wide = width >= 560, good = `first token ${wide ? "with" : ""}in ${goodFirst}${SPACE}s, ${wide ? "then at most " : ""}${goodNext}${SPACE}ms per token`;
      const starts = [22, 112, 202].map((top, i) => top + (wide || !i ? 0 : 14));
      const names = ["preemptions per request", `good requests per second${wide ? `: ${good}` : ""}`, wide ? `seconds until a request is finished, 99th percentile of ${requests}` : "seconds to finish, p99"];
      const parts = [], post = x(run.size);
      ["pre", "good", "late"].forEach((kind, i) => {
        const top = starts[i], floor = top + TALL[i], y = value => floor - value / tops[i] * TALL[i];
        const way = line => "M" + line.map((numbers, at) => `${x(pools[at]).toFixed(1)} ${y(numbers[i]).toFixed(1)}`).join("L"), value = run.line[run.at][i];
        parts.push(
          ...marks(tops[i]).flatMap(one => [s("path", {class: one ? "grid" : "axis", d: `M${GUTTER} ${y(one)}H${width - RIGHT}`}), s("text", {class: "m", x: GUTTER - 6, y: y(one) + 4, "text-anchor": "end"}, one)]),
          s("g", {class: kind, "data-curve": kind}, s("path", {class: "other", d: way(other)}), s("path", {class: "line", d: way(run.line)}),
            s("g", {class: "dots"}, ...run.line.map((numbers, at) => s("circle", {cx: x(pools[at]), cy: y(numbers[i]), r: 2.6})))),
          s("text", {class: "name halo", x: GUTTER, y: top - (wide || i !== 1 ? 8 : 22)}, s("tspan", {class: "b"}, value.toFixed(i === 2 ? 1 : 2)), s("tspan", {class: "m", dx: 5}, names[i])));
        parts.push(s("circle", {class: "here", cx: post, cy: y(value), r: 5}));
      });
      const end = starts[2] + TALL[2];
      if (!wide) parts.push(s("text", {class: "m halo", x: GUTTER, y: starts[1] - 7}, good));
      parts.splice(0, 0, s("path", {class: "post", d: `M${post} 12V${end + 26}`}));
      pools.forEach((size, at) => parts.push(s("path", {class: "axis", d: `M${x(size)} ${end}v${at % 4 ? 3 : 6}`}), at % 4 ? "" : s("text", {class: "m halo", x: x(size), y: end + 18, "text-anchor": at === pools.length - 1 ? "end" : "middle"}, blocks(size) + (at ? "" : " blocks"))));
      svg.setAttribute("width", width);
      svg.setAttribute("height", end + 24);
      svg.replaceChildren(...parts);
    };
    const drawStrip = () => {
      const scale = (width - GUTTER - RIGHT) / span, boxes = {wait: [], run: [], gone: [], back: []}, floor = count * ROW + 2;
      lanes.forEach(({arrival, spells}, row) => {
        let at = arrival;
        spells.forEach((spell, i) => {
          const kind = !i ? "wait" : i % 2 ? "run" : "gone", [down, tall] = {wait: [3.2, 1.5], run: [1, 6], gone: [2, 4]}[kind];
          if (spell) boxes[kind].push([GUTTER + at * scale, row * ROW + down, spell * scale, tall]);
          if (i % 2 && i > 1) boxes.back.push([GUTTER + at * scale - .5, row * ROW - .5, 2.5, ROW + 1]);
          at += spell;
        });
      });
      const labels = lanes.filter((_, row) => row % 5 === 0).map(({request}) => s("text", {class: "m", x: GUTTER - 6, y: (request - first) * ROW + 8, "text-anchor": "end"}, request));
      const clock = Array.from({length: Math.ceil(span * unit / 5)}, (_, i) => 5 * i), axis = clock.map(one => s("text", {class: "m", x: GUTTER + one / unit * scale, y: floor + 15, "text-anchor": one ? "middle" : "start"}, `${one} s`));
      const grid = clock.map(one => `M${GUTTER + one / unit * scale} 0V${floor + 3}`).join("") + `M${GUTTER} ${floor}H${width - RIGHT}`;
      strip.setAttribute("width", width);
      strip.setAttribute("height", floor + 20);
      strip.replaceChildren(s("path", {class: "grid", d: grid}), ...labels, ...axis,
        ...Object.entries(boxes).map(([kind, list]) => s("path", {class: kind, "data-lane": kind, d: rects(list), fill: kind === "gone" ? fig.paint("external") : null})), mark);
      rows.style.cssText = `left:${GUTTER}px;top:0;width:${width - GUTTER - RIGHT}px;height:${count * ROW}px`;
      point();
    };
    /** The request at hand: its row and its sentence. */
    const point = () => {
      const picked = hovered ?? fig.state().request, lane = lanes[(picked ?? first) - first];
      mark.setAttribute("visibility", picked === null ? "hidden" : "visible");
      for (const [name, value] of Object.entries({x: GUTTER - 34, y: (lane.request - first) * ROW - 1, width: width - GUTTER - RIGHT + 34})) mark.setAttribute(name, value);
      inspect.textContent = picked === null ? "Point at a request, or walk through them with the arrow keys." : describe(lane);
      rows.setAttribute("aria-valuenow", lane.request);
      rows.setAttribute("aria-valuetext", describe(lane));
    };
    const redraw = () => {
      settle();
      const [now, next] = sentences();
      say.replaceChildren(h("b", {}, now), next);
      tell.textContent = total();
      drawControls();
      drawCurves();
      drawStrip();
    };

    // --- the pointer ---------------------------------------------------------------------------------------------
    const drag = event => {
      const place = event.clientX - curves.getBoundingClientRect().left, size = nearest(pools, least + (place - GUTTER) / (width - GUTTER - RIGHT) * (most - least));
      if (size !== fig.state().blocks) act({blocks: size});
    };
    curves.addEventListener("pointerdown", event => { if (event.button === 0) { curves.setPointerCapture(event.pointerId); drag(event); } });
    curves.addEventListener("pointermove", event => { if (curves.hasPointerCapture(event.pointerId)) drag(event); });
    const rowAt = event => first + Math.max(0, Math.min(count - 1, Math.floor((event.clientY - rows.getBoundingClientRect().top) / ROW)));
    const pick = request => { fig.set({request}); point(); };
    rows.addEventListener("pointermove", event => { hovered = rowAt(event); point(); });
    rows.addEventListener("pointerleave", () => { hovered = null; point(); });
    rows.addEventListener("click", event => pick(rowAt(event) === fig.state().request ? null : rowAt(event)));
    rows.addEventListener("keydown", event => {
      const move = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 5, PageUp: -5, Home: -count, End: count}[event.key], held = fig.state().request;
      if (event.key === "Escape") pick(null);
      else if (move) pick(held === null ? (move < 0 && event.key !== "Home" ? first + count - 1 : first) : Math.max(first, Math.min(first + count - 1, held + move)));
      else return;
      event.preventDefault();
    });

    fig.onState(redraw);
    settle();
    fig.onWidth(curves, w => { width = w; redraw(); });
  };

  define("knee", draw, CSS);
})();
