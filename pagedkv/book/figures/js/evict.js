/* Figure 5: what it costs to evict a sequence and bring it back, by recompute and by swap. The formulas are in
   preemption.js; what a model and a device put into them comes from Python. */
(() => {
  "use strict";
  const {h, s, define} = globalThis.pagedkv;
  const {costs, recompute, swap, slope, crossover, slowestLink} = globalThis.pagedkv.preemption;

  const CSS = `
.pkv.pkv-evict{max-width:760px;margin-inline:auto;
.knobs{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:.5rem 2rem}
.knobs label{display:flex;justify-content:space-between;gap:.5rem}
.knobs b{white-space:nowrap}
.ticks text{font-size:11px}
.picks{gap:.4rem 1.1rem;margin:.7rem 0 .9rem}
.picks label{display:inline-flex;align-items:center;gap:.4rem;min-height:30px}
.picks input{width:16px;height:16px;margin:0;accent-color:var(--fg)}
.chart{cursor:crosshair;touch-action:pan-y}
.curve{fill:none;stroke-width:2.6;stroke-linejoin:round}
.recompute{stroke:var(--rec)}.swap{stroke:var(--swp);stroke-dasharray:9 5}
.gap.recompute{fill:var(--rec);stroke:none;opacity:.13}.gap.swap{fill:var(--swp);stroke:none;opacity:.16}
.grid{fill:none;stroke:var(--line)}
.cross{fill:none;stroke:var(--fg);stroke-width:1.3;stroke-dasharray:3 3}
.now{fill:none;stroke:var(--fg);stroke-width:1.5}
.dot{fill:var(--fg);stroke:var(--bg);stroke-width:1.5}
.ring{fill:var(--bg);stroke:var(--fg);stroke-width:2}
.said{border-left:3px solid var(--fg);padding-left:.6rem;margin-top:.5rem}
.say{font-size:16px;font-weight:650}
.verdict{min-height:2.9em}
.length{display:block;padding-left:2.5rem;font-size:13px}
@container (max-width:479px){.knobs{grid-template-columns:minmax(0,1fr)}.say{min-height:2.9em;font-size:15px}.verdict{min-height:5.8em}}
@media (forced-colors:active){.curve{stroke:CanvasText}.gap.gap{fill:none}}}`;

  // In step with evict.py, to the last digit.
  const rounded = (value, digits) => (Math.floor(value * 10 ** digits + .5) / 10 ** digits).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const number = n => n.toLocaleString("en");
  const milliseconds = (...seconds) => {
    let texts;
    for (let digits = Math.min(...seconds) >= .01 ? 0 : 1; digits < 4; digits++) {
      texts = seconds.map(one => rounded(1e3 * one, digits));
      if (new Set(texts).size === texts.length) break;
    }
    return texts;
  };
  /** A crossover in digits: whole tokens when blocks blur it. */
  const place = ({perBlock}, where) => rounded(where, where < 10000 && !perBlock ? 1 : 0);
  const decision = state => {
    const [again, moved] = milliseconds(state.recompute_seconds, state.swap_seconds);
    return `At ${number(state.tokens)} tokens: recompute ${again} ms, swap ${moved} ms: ${state.mode}.`;
  };
  const verdict = (data, state) => {
    const {recompute: again, swap: moved} = costs(data, state), where = state.crossover;
    if (where === null) {
      const link = slowestLink(data, state);
      return `No crossover: swap costs ${rounded(1e6 * slope(moved), 1)} µs per token and recompute ${rounded(1e6 * again.perToken, 1)}, so recompute is cheaper at every length. `
        + (link === null ? "No host link is fast enough: the overhead of the blocks alone costs as much." : `It takes a host link of more than ${rounded(link, 2)} GB/s.`);
    }
    if (where === 0) return `Swap has no set-up to win back: it is cheaper from the first ${moved.perBlock ? "block" : "token"} on.`;
    const at = place(moved, where);
    return moved.perBlock ? `Crossover near ${at} tokens, counting full blocks: beyond it swap is cheaper.` : `Crossover at ${at} tokens: from ${number(Math.floor(where) + 1)} on swap is cheaper.`;
  };

  const GUTTER = 48, RIGHT = 10, TOP = 26, TALL = 270, FLOOR = TOP + TALL, BAND = 20;

  const draw = fig => {
    const {data, root, id} = fig;
    let width = 0;
    for (const [name, state] of [["rec", "tokens"], ["swp", "moving"]]) root.style.setProperty("--" + name, fig.palette[state].color);

    // --- the state ------------------------------------------------------------------------------------------------
    const among = (list, value) => list.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));
    /** Complete the state: keep every setting within its limits, and work out what follows from it. */
    const settle = () => {
      const held = fig.state(), inside = name => { const [least, most] = data.limits[name]; return Math.max(least, Math.min(most, Number(held[name]) || 0)); };
      const span = among(data.spans, held.span);
      const setting = {model: held.model in data.models ? held.model : data.start.model, gigabytes_per_second: inside("gigabytes_per_second"), setup_ms: inside("setup_ms"),
        efficiency_percent: inside("efficiency_percent"), block_size: among(data.block_sizes, held.block_size), per_block_us: inside("per_block_us"), attention: Boolean(held.attention),
        tokens: Math.max(0, Math.min(span, Math.round(held.tokens) || 0)), span};
      const {recompute: again, swap: moved} = costs(data, setting), recompute_seconds = recompute(again, setting.tokens), swap_seconds = swap(moved, setting.tokens);
      const state = {...setting, crossover: crossover(again, moved), recompute_seconds, swap_seconds, mode: swap_seconds < recompute_seconds ? "swap" : "recompute"};
      if (JSON.stringify(state) !== JSON.stringify(held)) fig.set(state);
    };
    const choose = patch => { fig.set(patch); settle(); redraw(); fig.announce(`${say.textContent} ${told.textContent}`); };

    // --- the skeleton ---------------------------------------------------------------------------------------------
    /** A slider with its value beside its label, and marks below it: [value, label]. */
    const knob = (name, label, unit, marks) => {
      const [min, max, step] = data.limits[name], value = h("b"), ticks = s("svg", {class: "ticks", height: 15, "aria-hidden": "true"});
      const input = h("input", {type: "range", min, max, step, id: id + name, oninput: () => choose({[name]: +input.value})});
      return {node: h("div", {}, h("label", {for: id + name}, label, value), input, ticks), show(state) {
        const w = Math.floor(input.clientWidth), at = one => 8 + (one - min) / (max - min) * (w - 16);
        input.value = state[name];
        value.textContent = `${state[name]} ${unit}`;
        input.setAttribute("aria-valuetext", value.textContent);
        ticks.setAttribute("width", w);
        ticks.replaceChildren(...marks(state).flatMap(([one, words]) => {
          const x = at(one), anchor = x < 40 ? "start" : x > w - 40 ? "end" : "middle";
          return [s("path", {d: `M${x} 0v4`, stroke: "var(--edge)"}), s("text", {class: "m", x: anchor === "start" ? x - 4 : anchor === "end" ? w : x, y: 14, "text-anchor": anchor}, words)];
        }));
      }};
    };
    const select = (name, label, options) => {
      const node = h("select", {onchange: () => choose({[name]: typeof options[0][0] === "number" ? +node.value : node.value})}, ...options.map(([value, words]) => h("option", {value}, words)));
      return {node: h("label", {}, label, node), show: state => { node.value = state[name]; }};
    };
    const max = data.limits.gigabytes_per_second[1];
    const knobs = [
      knob("gigabytes_per_second", "Host link", "GB/s", state => {
        const least = state.attention ? null : slowestLink(data, state);
        const links = Object.entries(data.links).map(([name, speed]) => [speed, name]);
        return least && least < max ? [[least, `${rounded(least, 2)} break-even`], ...links.filter(([speed]) => Math.abs(speed - least) > 18)] : links;
      }),
      knob("setup_ms", "Set-up of a swap", "ms", () => [[0, "pinned once"], [20, "20"], [40, "40"]]),
      knob("efficiency_percent", "Prefill efficiency", `% of ${Math.round(data.flops / 1e12)} TFLOP/s`, () => [[20, "20"], [40, "40"], [60, "60"], [80, "80"]]),
      knob("per_block_us", "Overhead per block", "µs", () => [[0, "0"], [50, "50"], [100, "100"]]),
    ];
    const picks = [
      select("model", "Model", Object.entries(data.models).map(([key, {name}]) => [key, name])),
      select("block_size", "Block size", data.block_sizes.map(n => [n, n])),
      select("span", "Axis to", data.spans.map(n => [n, number(n)])),
    ];
    const attention = h("input", {type: "checkbox", onchange: () => choose({attention: attention.checked})});
    const reset = h("button", {type: "button", onclick: () => choose(data.start)}, "Reset");
    const chart = s("svg", {class: "chart", height: FLOOR + BAND + 18, "aria-hidden": "true"});
    const length = h("input", {type: "range", min: 0, step: 1, id: id + "tokens", oninput: () => choose({tokens: +length.value})});
    const held = h("b"), swatch = kind => s("svg", {width: 30, height: 12, "aria-hidden": "true"}, s("path", {class: `curve ${kind}`, d: "M0 6h30"}));
    const formula = {recompute: h("span", {class: "formula"}), swap: h("span", {class: "formula"})}, key = fig.key(["recompute", "swap"].map(kind => [swatch(kind), formula[kind]]));
    const say = h("div", {class: "say"}), told = h("div", {class: "verdict"}), pic = h("div", {}, chart, length);
    root.append(h("div", {class: "knobs"}, ...knobs.map(one => one.node)),
      h("div", {class: "pkv-row picks"}, ...picks.map(one => one.node), h("label", {}, attention, "Attention"), reset),
      pic, h("label", {class: "length", for: id + "tokens"}, "Cached tokens of the sequence: ", held), key, h("div", {class: "said"}, say, told));

    // --- drawing --------------------------------------------------------------------------------------------------
    const text = (x, y, words, kind = "m", anchor = "start") => s("text", {x, y, class: kind, "text-anchor": anchor}, words);
    const nice = value => { const unit = 10 ** Math.floor(Math.log10(value)); return unit * [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].find(step => step * unit >= value * (1 - 1e-9)); };

    const redraw = () => {
      const state = fig.state(), {span, tokens, crossover: where} = state, {recompute: again, swap: moved} = costs(data, state);
      [...knobs, ...picks].forEach(one => one.show(state));
      attention.checked = state.attention;
      length.max = span;
      length.value = tokens;
      length.setAttribute("aria-valuetext", `${number(tokens)} tokens`);
      held.textContent = number(tokens);
      length.style.cssText = `width:${width - GUTTER - RIGHT + 16}px;margin-left:${GUTTER - 8}px`;
      say.textContent = decision(state);
      told.textContent = verdict(data, state);

      // The height of the picture depends on the model and the axis alone, so that curves move when a slider does.
      const top = nice(Math.max(.06, 1.3 * recompute(costs(data, {...state, efficiency_percent: data.start.efficiency_percent}).recompute, span)));
      const right = width - RIGHT, plot = right - GUTTER, x = n => GUTTER + n * plot / span, y = seconds => FLOOR - seconds * TALL / top;
      const cost = {recompute: n => recompute(again, n), swap: n => swap(moved, n)};
      const every = Math.max(1, Math.ceil(span / plot / 2));
      const lengths = Array.from({length: Math.floor(span / every) + 1}, (_, i) => i * every);
      const points = kind => lengths.map(n => [n, cost[kind](n)]).concat([[span, cost[kind](span)]]);
      const line = list => list.map(([n, seconds], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(seconds).toFixed(1)}`).join("");
      const both = {recompute: points("recompute"), swap: points("swap")}, clip = `url(#${id}clip)`, edge = where === null ? span : Math.min(where, span);
      // Between the curves lies what the wrong choice costs, in the colour of the right one.
      const gap = (kind, from, to) => {
        const part = (list, cut) => [[from, cost[cut](from)], ...list.filter(([n]) => n > from && n < to), [to, cost[cut](to)]];
        return to > from ? s("path", {class: `gap ${kind}`, "clip-path": clip, d: `${line(part(both.recompute, "recompute"))}L${line(part(both.swap, "swap").reverse()).slice(1)}z`}) : "";
      };
      const band = (kind, state_name, from, to) => {
        const wide = x(to) - x(from), {color, ink} = fig.palette[state_name], words = wide > 150 ? `${kind} is cheaper` : kind;
        return wide > 0 ? s("g", {class: "band", "data-cheaper": kind}, s("rect", {x: x(from), y: FLOOR + 1, width: wide, height: BAND - 2, style: `fill:${color}`}),
          wide > 70 ? s("text", {x: x(from) + wide / 2, y: FLOOR + 14, "text-anchor": "middle", style: `fill:${ink}`}, words) : "") : "";
      };
      const here = x(tokens), {recompute_seconds: a, swap_seconds: b} = state, costs_here = milliseconds(a, b);
      /** Words by a point of a curve: above it to the left, or below it to the right, where a rising curve is not. */
      const by = (px, kind, over, words) => {
        const wide = 10 + 7 * words.length, end = over ? px > GUTTER + wide : px > right - wide, from = over === end ? px : px + (end ? -wide : wide);
        const py = y(cost[kind](Math.max(0, from - GUTTER) * span / plot));
        return text(px + (end ? -8 : 8), over ? Math.max(TOP + 12, py - 8) : Math.min(FLOOR - 5, py + 18), words, "halo b", end ? "end" : "start");
      };
      const us = one => rounded(1e6 * one, 1), dot = (kind, words, over) => {
        const cy = y(cost[kind](tokens));
        return [cy < TOP ? "" : s("circle", {class: "dot", cx: here, cy, r: 4.5}), by(here, kind, over, `${kind}: ${words} ms${cy < TOP ? " ↑" : ""}`)];
      };
      formula.recompute.textContent = `recompute: ${us(again.perToken)} µs per token${again.perPair ? ", attention on top" : ""}`;
      formula.swap.textContent = `swap: ${moved.fixed ? `${state.setup_ms} ms and ` : ""}${us(moved.perToken)} µs per token${moved.perBlock ? `, ${state.per_block_us} µs per block` : ""}`;
      const parts = [0, 1, 2, 3, 4], at = edge < span && where ? x(edge) : null;
      const headline = where === null ? "no crossover" : where === 0 ? "swap is cheaper at once" : where > span ? `crossover: ${place(moved, where)} tokens →` : `crossover: ${place(moved, where)} tokens`;
      const middle = where === null || where === 0 ? (GUTTER + right) / 2 : where > span ? right : Math.max(GUTTER + 75, Math.min(right - 75, at));
      chart.setAttribute("width", width);
      chart.replaceChildren(s("defs", {}, s("clipPath", {id: `${id}clip`}, s("rect", {x: GUTTER, y: TOP, width: plot, height: TALL}))),
        gap("recompute", 0, edge), where === null ? "" : gap("swap", edge, span),
        s("path", {class: "grid", d: parts.map(i => `M${GUTTER} ${FLOOR - i * TALL / 4}H${right}`).join("") + `M${GUTTER} ${TOP}V${FLOOR}`}),
        ...parts.map(i => text(GUTTER - 6, FLOOR - i * TALL / 4 + 4, rounded(250 * top * i, top < .04 ? 1 : 0), "m", "end")), text(GUTTER - 6, TOP - 9, "ms", "m", "end"),
        ...parts.filter(i => plot > 300 || i % 2 === 0).map(i => text(x(span * i / 4), FLOOR + BAND + 14, number(span * i / 4), "m", i === 4 ? "end" : "middle")),
        band("recompute", "tokens", 0, edge), where === null ? "" : band("swap", "moving", edge, span),
        ...["recompute", "swap"].map(kind => s("path", {class: `curve ${kind}`, "clip-path": clip, d: line(both[kind])})),
        at === null ? "" : s("path", {class: "cross", d: `M${at} ${TOP - 4}V${FLOOR}`}), at === null ? "" : s("circle", {class: "ring", cx: at, cy: y(cost.recompute(where)), r: 4.5}),
        text(middle, TOP - 9, headline, "halo b", where > span ? "end" : "middle"),
        s("path", {class: "now", d: `M${here} ${TOP}V${FLOOR}`}), ...dot("recompute", costs_here[0], a > b), ...dot("swap", costs_here[1], b >= a));
    };
    const seek = event => { if (event.buttons) choose({tokens: Math.round((event.clientX - chart.getBoundingClientRect().left - GUTTER) * fig.state().span / (width - GUTTER - RIGHT))}); };
    for (const type of ["pointerdown", "pointermove"]) chart.addEventListener(type, seek);
    fig.onState(() => { settle(); redraw(); });
    settle();
    fig.onWidth(pic, w => { width = w; redraw(); });
  };

  define("evict", draw, CSS);
})();
