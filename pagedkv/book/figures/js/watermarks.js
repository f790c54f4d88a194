/* Figure 4: free blocks over time, and who came in and who was evicted. Python ran the simulator for every choice; a run
   comes as its log of admissions and evictions, and what every iteration held is counted again from there. */
(() => {
  "use strict";
  const {h, s, rects, plural, icon, define} = globalThis.pagedkv;

  const CSS = `
.pkv.pkv-watermarks{max-width:760px;margin-inline:auto;
.top{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr) auto;gap:.4rem 1.6rem;align-items:start}
.ticks text{text-anchor:middle}
fieldset{border:0;margin:0;padding:0;min-width:0}
fieldset label{display:flex;align-items:center;gap:.45rem;min-height:25px;cursor:pointer}
fieldset label:has(:disabled){color:var(--muted);cursor:default}
fieldset input{width:16px;height:16px;margin:0;flex:none;accent-color:var(--fg)}
table{width:100%;margin:.7rem 0 1rem;border-collapse:collapse;font-size:13px;line-height:1.3}
caption{caption-side:top;padding:0 0 .2rem;text-align:left;font-weight:650;color:var(--fg)}
th,td{padding:.22rem .3rem;text-align:right;font-weight:400;border:0;border-top:1px solid var(--line)}
thead th{border:0;color:var(--muted);font-size:12px;vertical-align:bottom}
tr>:first-child{text-align:left;padding-left:1.1rem;position:relative}
[aria-current]>*{font-weight:700;background:var(--tint)}
[aria-current]>th::before{content:"▸";position:absolute;left:.25rem}
td{position:relative}td i{position:absolute;right:.3rem;bottom:1px;height:3px;background:var(--pre)}
:is(.whole,.near){cursor:crosshair;touch-action:pan-y}
.used{fill:color-mix(in srgb,var(--tok) 26%,var(--bg))}
.veil{fill:var(--fg);opacity:.12}
.shut{fill:var(--fg)}
:is(.edge,.mark,.axis,.now,.finished,.preempted,.rise){fill:none;stroke:var(--fg);stroke-width:1.3}
.high{stroke-dasharray:6 3}
.axis{stroke:var(--line);stroke-width:1}
.admitted{fill:var(--tok)}.resumed{fill:var(--mov)}.gone{fill:var(--pre)}
.preempted{stroke:var(--pre);stroke-width:1.8}
:is(.finished,.rise){stroke-width:1}
.dot{fill:var(--fg);stroke:var(--bg);stroke-width:1.5}
.moves{align-items:start;margin:.5rem 0 .9rem;gap:.4rem .8rem}
.say{flex:1 1 16rem;font-size:14px;font-weight:600;border-left:3px solid var(--fg);padding-left:.6rem;min-height:5.8em}
@container (max-width:599px){.top{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}fieldset{grid-column:1/-1}}
@container (max-width:479px){.say{min-height:8.7em}table{font-size:12px}thead th{font-size:11px}th,td{padding-inline:.15rem}}
@media (forced-colors:active){.used{fill:Canvas}.veil{opacity:.3}}}`;

  /** The entries of an encoded log: [iteration, sequences let in, or evicted when negative]. */
  const decode = (log, {alphabet, kinds}) => {
    let iteration = 0;
    return [...log].map(letter => {
      const code = alphabet.indexOf(letter);
      iteration += Math.floor(code / kinds.length);
      return [iteration, kinds[code % kinds.length]];
    });
  };

  /** The length whose two digits stand there. */
  const length = ({requests, alphabet}, at) => alphabet.indexOf(requests[at]) * alphabet.length + alphabet.indexOf(requests[at + 1]);

  /** Every iteration of a run, as `follow` in watermark_runs.py notes them. */
  const unroll = (data, pool, concurrency, policy, log) => {
    const blocks = tokens => Math.ceil(tokens / data.block_size), sum = list => list.reduce((a, b) => a + b, 0);
    const {marks, shed} = data.policies[policy], [low, high] = marks[data.pools.indexOf(pool)], [base, perToken, perSequence, linear, pair] = data.clock;
    const come = [...Array(data.requests.length / 4).keys()].map(i => ({prompt: length(data, 4 * i), output: length(data, 4 * i + 2), paused: 0}));
    const queue = [], moves = decode(log, data), moments = [];
    let running = [], open = true, read = 0, ran = 0, entries = 0;
    const free = () => pool - sum(running.map(one => blocks(one.held)));
    for (let iteration = 1; ; iteration++) {
      while (come.length && running.length + queue.length < concurrency) queue.push(come.shift());
      if (!running.length && !queue.length) return {pool, low, high, shed, moments};
      running.forEach(one => { one.held += 1; });
      const left = Math.max(0, free());
      if (open ? left < low : left >= high) open = !open;
      let preempted = 0, admitted = 0, resumed = 0, entry = 0, taken = 0;
      for (; moves.length && moves[0][0] <= iteration; moves.shift()) {
        for (let n = moves[0][1]; n < 0; n++, preempted++) {
          const one = running.pop(); // the youngest
          queue.unshift(Object.assign(one, {paused: one.output - one.remaining, victim: true}));
        }
        for (let n = moves[0][1]; n > 0; n--) {
          const one = queue.shift(), held = one.prompt + one.paused;
          running.push(Object.assign(one, {held, remaining: one.output - one.paused}));
          entry += linear * held + pair * (held * (held + 1) / 2);
          taken += blocks(held);
          if (one.victim) resumed += 1; else admitted += 1;
        }
      }
      entries += entry;
      read += sum(running.map(one => one.held));
      ran += running.length;
      running.forEach(one => { one.remaining -= 1; });
      const now = free(), [head] = queue, held = head && head.prompt + head.paused;
      const need = head ? blocks(head.victim ? Math.min(held + 1, head.prompt + head.output - 1) : held) : 0;
      const why = !head ? "" : preempted ? "evicted" : need > now ? "memory" : open ? "low" : "gate", stay = running.filter(one => one.remaining);
      moments.push({iteration, seconds: base * iteration + perToken * read + perSequence * ran + entries, before: now + taken, free: now, open,
        running: running.length, waiting: queue.length, admitted, resumed, preempted, finished: running.length - stay.length, why, need});
      running = stay;
    }
  };

  const number = n => n.toLocaleString("en");
  /** In step with `read_out` in watermark_runs.py. */
  const sentence = ({pool, low, high}, m) => {
    const entered = m.admitted + m.resumed, needs = ` The next in line needs ${plural(m.need, "block")}`;
    const events = [[m.preempted, "preempted"], [entered, m.resumed < entered ? `let in${m.resumed ? `, ${m.resumed} of them again` : ""}` : "let in again, to be recomputed"], [m.finished, m.finished === 1 ? "finishes" : "finish"]]
      .filter(([n]) => n).map(event => event.join(" ")).join(", ");
    return `Iteration ${number(m.iteration)}, ${m.seconds.toFixed(2)} s: ${number(m.free)} of ${number(pool)} blocks free${low ? `, gate ${m.open ? "open" : "closed"}` : ""}; `
      + `${m.running} running, ${m.waiting} waiting.${events && ` ${events}.`}` + {"": "", evicted: " An iteration that preempts lets nobody in.", memory: `${needs}: more than are free.`,
        gate: `${needs} and would fit, but the gate stays closed until ${high} are free.`, low: `${needs} and would fit, but would leave fewer than ${low}.`}[m.why];
  };

  /** Runs of equal values: [value, first index, count]. */
  const spans = list => list.reduce((all, value, i) => { const end = all.at(-1); if (end && end[0] === value) end[2] += 1; else all.push([value, i, 1]); return all; }, []);

  const GUTTER = 66, TOP = 20, TALL = 112, FLOOR = TOP + TALL, SHUT = FLOOR + 6, IN = FLOOR + 27, OUT = FLOOR + 44;
  const NEAR = 150, BASE = TOP + NEAR, LANES = [["finished", BASE + 21], ["let in", BASE + 45], ["preempted", BASE + 67]];

  const draw = fig => {
    const {data, root, id} = fig, names = data.policies.map(policy => policy.name);
    let run, known = "", width = 0, scale = 1, near = {first: 1}, last = {hysteresis: true, shedding: true};
    for (const [name, state] of [["tok", "tokens"], ["pre", "external"], ["mov", "moving"]]) root.style.setProperty("--" + name, fig.palette[state].color);

    // --- the run --------------------------------------------------------------------------------------------------
    const nearest = (list, value) => list.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));
    const outcomes = ({pool, concurrency}) => data.runs[data.pools.indexOf(pool)][data.concurrencies.indexOf(concurrency)];
    /** Look the chosen run up; every change of the state goes through here. */
    const settle = () => {
      const held = fig.state(), pool = nearest(data.pools, held.pool), concurrency = nearest(data.concurrencies, held.concurrency);
      const which = Math.max(0, names.indexOf(held.policy)), policy = names[which], key = [pool, concurrency, policy].join();
      const [log, [preemptions, held_back, flips, tokens_per_second]] = outcomes({pool, concurrency})[which];
      if (key !== known) run = unroll(data, pool, concurrency, which, log);
      known = key;
      if (policy !== "none") last = {hysteresis: policy.startsWith("two"), shedding: run.shed};
      const iteration = Math.max(1, Math.min(run.moments.length, Math.round(held.iteration) || 1)), {free, open, running, waiting} = run.moments[iteration - 1];
      const state = {pool, concurrency, policy, iteration, preemptions, held_back, flips, tokens_per_second, free, open, running, waiting};
      if (JSON.stringify(state) !== JSON.stringify(held)) fig.set(state);
    };
    const choose = patch => {
      fig.set(patch);
      settle();
      redraw();
      const {policy, preemptions, held_back, flips, tokens_per_second} = fig.state();
      fig.announce(`${title(policy)}: ${plural(preemptions, "preemption")}, ${plural(held_back, "iteration")} held back, ${plural(flips, "gate flip")}, ${number(tokens_per_second)} output tokens/s. ${say.textContent}`);
    };
    const go = iteration => { fig.set({iteration}); settle(); move(); fig.announce(say.textContent); };
    const toggle = (name, on) => {
      if (name !== "marks") last = {...last, [name]: on};
      choose({policy: boxes.marks.checked ? `${last.hysteresis ? "two marks" : "one mark"}${last.shedding ? ", shedding" : ""}` : "none"});
    };
    const title = policy => (policy === "none" ? "no marks" : policy);

    // --- the skeleton ---------------------------------------------------------------------------------------------
    const range = (name, label, unit, list) => {
      const input = h("input", {type: "range", min: 0, max: list.length - 1, step: 1, id: id + name, oninput: () => choose({[name]: list[input.value]})});
      const value = h("b"), ticks = s("svg", {class: "ticks", height: 15, "aria-hidden": "true"});
      return {node: h("div", {}, h("label", {for: id + name}, label, value), input, ticks), show(now) {
        const w = Math.floor(input.clientWidth);
        input.value = list.indexOf(now);
        value.textContent = number(now);
        input.setAttribute("aria-valuetext", `${number(now)} ${unit}`);
        ticks.setAttribute("width", w);
        ticks.replaceChildren(...list.map((one, i) => s("text", {x: 8 + i * (w - 16) / (list.length - 1), y: 11, class: one === now ? "b" : "m"}, number(one))));
      }};
    };
    const pools = range("pool", "Pool: ", "blocks", data.pools), crowd = range("concurrency", "Concurrency: ", "requests", data.concurrencies);
    const boxes = {}, option = (name, label, note) => h("label", {},
      boxes[name] = h("input", {type: "checkbox", onchange: event => toggle(name, event.target.checked)}), h("span", {}, label, " ", h("span", {class: "m"}, note)));
    const rows = names.map(name => h("tr", {"data-policy": name}, h("th", {scope: "row"}, title(name)), ...[1, 2, 3, 4].map(() => h("td"))));
    const head = list => h("thead", {}, h("tr", {}, ...list.map(label => h("th", {scope: "col"}, label))));
    const whole = s("svg", {class: "whole", "aria-hidden": "true"}), still = s("g"), frame = s("g"), close = s("svg", {class: "near", "aria-hidden": "true"});
    whole.append(still, frame);
    const scrub = h("input", {type: "range", min: 1, step: 1, "aria-label": "Iteration", oninput: () => go(+scrub.value)});
    const stop = step => { const now = fig.state().iteration, at = run.moments.filter(m => (m.admitted || m.resumed || m.preempted) && (m.iteration - now) * step > 0).at(step > 0 ? 0 : -1); go(at ? at.iteration : step > 0 ? Infinity : 1); };
    const back = h("button", {type: "button", "aria-label": "Back to the previous event", onclick: () => stop(-1)}, icon("M0 1h2v10H0zM11 1v10L3 6z"), "event");
    const next = h("button", {type: "button", "aria-label": "On to the next event", onclick: () => stop(1)}, "event", icon("M10 1h2v10h-2zM1 1v10l8-5z"));
    const say = h("div", {class: "say"}), pic = h("div", {}, whole, scrub);
    /** One sequence that is let in, let in again, preempted or finished. */
    const glyph = (what, x, y) => s("path", {class: what, d: `M${x} ${y}` + {preempted: "m-2.5-2.5l5 5m0-5l-5 5", finished: "m-2 0a2 2 0 1 1 0 .01z", resumed: "m0-3.4l3.4 3.4l-3.4 3.4l-3.4-3.4z", admitted: "m-2.5-2.5h5v5h-5z"}[what]});
    const path = (kind, d) => s("path", {class: kind, d});
    const swatch = (...parts) => s("svg", {width: 18, height: 12, "aria-hidden": "true"}, ...parts), sign = what => swatch(glyph(what, 9, 6));
    root.append(
      h("div", {class: "top"}, pools.node, crowd.node, h("fieldset", {}, h("legend", {class: "pkv-sr"}, "Policy"),
        option("marks", "Watermark", "nobody comes in below 4\u00a0%"), option("hysteresis", "Hysteresis", "until 8\u00a0% are free again"), option("shedding", "Shedding", "also preempts below 4\u00a0%"))),
      h("table", {}, h("caption", {}, "The same requests under every policy"), head(["policy", "preemp\u00adtions", "iterations held back", "gate flips", "output tokens/s"]), h("tbody", {}, ...rows)),
      pic, h("div", {class: "pkv-row moves"}, say, h("div", {class: "pkv-row"}, back, next)), close,
      fig.key([[swatch(path("used", "M0 0h18v12h-18z"), path("edge", "M0 6h18")), "in use above the line, free below it"],
        [swatch(path("veil", "M0 0h18v12h-18z"), path("shut", "M0 9h18v3h-18z")), "gate closed"],
        [swatch(path("rise", "M9 11V2m-2 0h4")), "free before letting in"], [sign("admitted"), "let in"], [sign("resumed"), "let in again, to be recomputed"], [sign("preempted"), "preempted"], [sign("finished"), "finished"]]));

    // --- drawing --------------------------------------------------------------------------------------------------
    const text = (x, y, words, kind = "m", anchor = "start") => s("text", {x, y, class: kind, "text-anchor": anchor}, words);
    const gutter = (y, words) => text(GUTTER - 6, y, words, "m", "end");
    const heading = (name, words) => s("text", {y: 11}, s("tspan", {class: "b"}, name), s("tspan", {class: "m", dx: 6}, words));
    /** The pool from one iteration on: what is in use above the curve of free blocks, and when the gate is closed. */
    const area = (moments, wide, y, floor) => {
      const curve = spans(moments.map(m => m.free)).map(([free, at, n], i) => `${i ? "V" : `M${GUTTER} `}${y(free).toFixed(1)}H${(GUTTER + (at + n) * wide).toFixed(1)}`).join("");
      const shut = spans(moments.map(m => m.open)).filter(([open]) => !open).map(([, at, n]) => [GUTTER + at * wide, n * wide]);
      return {shut, back: [path("used", `${curve}V${TOP}H${GUTTER}z`), path("veil", rects(shut.map(([x, w]) => [x, TOP, w, floor - TOP])))], curve: path("edge", curve)};
    };
    const drawWhole = () => {
      const {moments, pool, low, high} = run, end = GUTTER + moments.length * scale, right = width - 8, y = free => FLOOR - free * TALL / pool;
      const {shut, back: under, curve} = area(moments, scale, y, FLOOR), wide = Math.max(1, scale);
      const rug = (kind, of, base) => path(kind, rects(moments.flatMap((m, i) => { const tall = 4 + Math.min(9, 2.5 * of(m)); return of(m) ? [[GUTTER + i * scale, base - tall, wide, tall]] : []; })));
      whole.setAttribute("width", width);
      whole.setAttribute("height", OUT + 17);
      still.replaceChildren(heading("Free blocks", `of ${number(pool)}, the whole run`), ...under,
        path("axis", [FLOOR, SHUT + 3, IN, OUT].map(line => `M${GUTTER} ${line + .5}H${right}`).join("") + `M${end} ${TOP}V${OUT + 4}`),
        low ? path("mark", `M${GUTTER} ${y(low)}H${right}M${GUTTER} ${y(high)}H${right}`) : "", curve,
        text(GUTTER + (end - GUTTER) * .7, TOP + 16, "in use", "halo", "middle"), text(end - 8, FLOOR - 14, "free", "halo", "end"),
        gutter(TOP + 8, number(pool)), gutter(FLOOR - 2, 0), gutter(SHUT + 5, "closed"), gutter(IN - 1, "let in"), gutter(OUT - 1, "preempted"),
        path("shut", rects(shut.map(([x, w]) => [x, SHUT - 3, Math.max(.7, w), 6]))),
        rug("admitted", m => m.admitted + m.resumed, IN), rug("resumed", m => m.resumed, IN), rug("gone", m => m.preempted, OUT),
        text(end, OUT + 15, `all finished: iteration ${number(moments.length)}`, "m", end > width * .6 ? "end" : "middle"));
      scrub.max = moments.length;
      scrub.style.cssText = `width:${16 + (moments.length - 1) * scale}px;margin-left:${GUTTER - 8 + scale / 2}px`;
    };

    const drawNear = () => {
      const {moments, pool, low, high, shed} = run, {iteration} = fig.state(), roomy = width > 520, step = roomy ? 6 : 5;
      const count = Math.min(moments.length, Math.floor((width - GUTTER - (roomy ? 92 : 8)) / step)), first = Math.max(1, Math.min(moments.length - count + 1, iteration - (count >> 1)));
      const shown = moments.slice(first - 1, first - 1 + count), now = moments[iteration - 1], right = GUTTER + count * step, most = Math.max(...shown.map(m => m.before));
      const top = pool * [.16, .32, .64, 1].find(part => most <= pool * part), y = free => BASE - free * NEAR / top, x = i => GUTTER + (i - first + .5) * step;
      const {shut, back: under, curve} = area(shown, step, y, BASE), [done, entered, out] = LANES.map(([, base]) => base), here = x(iteration), late = here > right - 60;
      near = {first, count, step};
      const pile = (base, ...kinds) => shown.flatMap(m => {
        const list = kinds.flatMap(kind => Array(m[kind]).fill(kind)), at = x(m.iteration);
        return list.length > 4 ? [glyph(list[0], at, base - 4), text(at, base - 9, list.length, "", "middle")] : list.map((kind, i) => glyph(kind, at, base - 4 - i * 5));
      });
      const grid = [0, 1, 2, 3, 4].map(i => top * i / 4), then = shed ? "preempts" : "";
      // The names of the marks: beside the plot where there is room, else on it.
      const mark = (at, dy, ...words) => words.map((word, i) => text(roomy ? right + 6 : right - 4, dy + at + i * 13, word, "halo", roomy ? "start" : "end"));
      const marks = !low ? [] : high === low ? mark(y(low), 4, `${low}: opens`, "and closes", then) : [...mark(Math.min(y(high), y(low) - 13), roomy ? 4 : -4, `high ${high}: opens`), ...mark(y(low), roomy ? 4 : 13, `low ${low}: closes${shed ? "," : ""}`, then)];
      const ticks = []; for (let i = Math.ceil(first / 20) * 20; i < first + count; i += 20) ticks.push(i);
      close.setAttribute("width", width);
      close.setAttribute("height", out + 17);
      close.replaceChildren(heading("Close-up", `${count} iterations around the cursor`), ...under,
        path("axis", [...grid.map(y), ...LANES.map(([, base]) => base + .5)].map(line => `M${GUTTER} ${line}H${right}`).join("")),
        ...grid.map(free => gutter(y(free) + 4, number(Math.round(free)))), ...LANES.map(([name, base]) => gutter(base - 1, name)), gutter(out + 15, "iteration"),
        low ? path("mark", `M${GUTTER} ${y(low)}H${right}`) : "", high > low ? path("mark high", `M${GUTTER} ${y(high)}H${right}`) : "", curve,
        path("rise", shown.map(m => (m.before > m.free ? `M${x(m.iteration)} ${y(m.free)}V${y(m.before)}m-2 0h4` : "")).join("")),
        path("shut", rects(shut.map(([at, w]) => [at, BASE, w, 5]))), ...shut.filter(([, w]) => w > 72).map(([at, w]) => text(at + w / 2, TOP + 13, "gate closed", "halo", "middle")), ...marks,
        ...pile(done, "finished"), ...pile(entered, "admitted", "resumed"), ...pile(out, "preempted"), ...ticks.map(i => text(x(i), out + 15, number(i), "m", "middle")),
        path("now", `M${here} ${TOP}V${out + 3}`), s("circle", {class: "dot", cx: here, cy: y(now.free), r: 4}), text(here + (late ? -8 : 8), Math.max(TOP + 28, y(now.free) - 8), `${number(now.free)} free`, "halo b", late ? "end" : "start"));
    };
    /** What follows the cursor. */
    const move = () => {
      drawNear();
      const {iteration} = fig.state(), x = GUTTER + (iteration - .5) * scale, all = run.moments.length;
      frame.replaceChildren(path("now", `M${x} ${TOP - 2}V${OUT + 2}M${GUTTER + (near.first - 1) * scale} ${TOP - 2}h${near.count * scale}v${TALL + 4}h${-near.count * scale}z`));
      say.textContent = sentence(run, run.moments[iteration - 1]);
      scrub.value = iteration;
      scrub.setAttribute("aria-valuetext", `${number(iteration)} of ${number(all)}`);
      back.disabled = iteration === 1;
      next.disabled = iteration === all;
    };
    const redraw = () => {
      const {pool, concurrency, policy} = fig.state(), all = outcomes({pool, concurrency}).map(([, numbers]) => numbers), most = Math.max(1, ...all.map(([n]) => n));
      pools.show(pool);
      crowd.show(concurrency);
      boxes.marks.checked = policy !== "none";
      for (const name of ["hysteresis", "shedding"]) Object.assign(boxes[name], {checked: last[name], disabled: policy === "none"});
      rows.forEach((row, i) => {
        if (names[i] === policy) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
        [...row.children].slice(1).forEach((cell, column) => cell.replaceChildren(number(all[i][column]), column ? "" : h("i", {style: `width:${90 * all[i][0] / most}%`})));
      });
      drawWhole();
      move();
    };
    const seek = (svg, find) => ["pointerdown", "pointermove"].forEach(type => svg.addEventListener(type, event => {
      if (event.buttons) go(find(event.clientX - svg.getBoundingClientRect().left - GUTTER));
    }));
    seek(whole, x => Math.ceil(x / scale));
    close.addEventListener("click", event => go(near.first + Math.floor((event.clientX - close.getBoundingClientRect().left - GUTTER) / near.step)));
    fig.onState(() => { settle(); redraw(); });
    settle();
    fig.onWidth(pic, w => { width = w; scale = (w - GUTTER - 8) / data.longest; redraw(); });
  };

  globalThis.pagedkv.unroll = unroll;
  define("watermarks", draw, CSS);
})();
