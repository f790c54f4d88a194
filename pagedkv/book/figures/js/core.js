/* What all figures of the course share: mounting, state, small drawing helpers, the look.
   One classic script. The book loads it as it is (from file:// too); a notebook loads it as an anywidget module
   with one `export default` line behind it. A kind file calls `pagedkv.define(kind, draw)`. */
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const kinds = new Map(); // kind -> {draw, css}
  const early = new Map(); // kind -> elements that were on the page before their kind file ran
  let count = 0;

  const CSS = `
.pkv{--bg:var(--pst-color-background,var(--jp-layout-color0,var(--vscode-editor-background,#fff)));
  --fg:var(--pst-color-text-base,var(--jp-ui-font-color1,var(--vscode-editor-foreground,#222832)));
  --muted:var(--pst-color-text-muted,var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#48566b)));
  --line:var(--pst-color-border,var(--jp-border-color1,var(--vscode-panel-border,#c9ced6)));
  --edge:color-mix(in srgb,var(--fg) 62%,var(--bg));--tint:color-mix(in srgb,var(--fg) 7%,var(--bg));
  --mono:var(--pst-font-family-monospace,var(--jp-code-font-family,ui-monospace,monospace));
  container-type:inline-size;box-sizing:border-box;position:relative;width:100%;margin:0 0 .25rem;padding:.9rem .9rem .75rem;
  color:var(--fg);background:var(--bg);border:1px solid var(--line);border-radius:10px;text-align:left;
  font:14px/1.45 var(--pst-font-family-base,var(--jp-ui-font-family,system-ui,sans-serif));font-variant-numeric:tabular-nums}
.pkv *,.pkv *::before{box-sizing:border-box}
.pkv svg{display:block;overflow:visible;max-width:none;background:none}
.pkv text{fill:var(--fg);font-size:11px;font-family:inherit}
.pkv text.m,.pkv tspan.m{fill:var(--muted)}
.pkv text.b,.pkv tspan.b{font-weight:650}
.pkv text.halo{paint-order:stroke;stroke:var(--bg);stroke-width:4px;stroke-linejoin:round}
.pkv .pkv-row{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem .5rem}
.pkv .m{color:var(--muted)}
.pkv .mono{font-family:var(--mono)}
.pkv button,.pkv select{all:unset;box-sizing:border-box;display:inline-flex;align-items:center;justify-content:center;gap:.35rem;
  min-height:30px;min-width:30px;padding:0 .6rem;border:1px solid var(--edge);border-radius:7px;color:var(--fg);background:var(--bg);
  font:inherit;font-size:13px;line-height:1;cursor:pointer;user-select:none;white-space:nowrap}
.pkv select{padding:0 .45rem;appearance:auto}
.pkv button:hover,.pkv select:hover{background:var(--tint)}
.pkv button.main{background:var(--fg);color:var(--bg);border-color:var(--fg);font-weight:600}
.pkv button:disabled{color:var(--muted);border-color:var(--line);cursor:default;background:var(--bg)}
.pkv button svg{width:12px;height:12px;fill:currentColor}
.pkv input[type=range]{display:block;width:100%;height:26px;margin:0;padding:0;border:0;background:none;accent-color:var(--fg);cursor:pointer}
.pkv label{margin:0;font-weight:inherit}
.pkv :is(button,select,input,[tabindex]):focus-visible{outline:3px solid var(--fg);outline-offset:2px}
.pkv input[type=range]:focus-visible{outline-width:2px;outline-offset:-2px;border-radius:6px}
.pkv .pkv-sr{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.pkv ul.key{display:flex;flex-wrap:wrap;gap:.15rem .9rem;margin:.55rem 0 0;padding:0;list-style:none;font-size:12px}
.pkv ul.key li{display:inline-flex;align-items:center;gap:.4rem;margin:0}
.pkv ul.key svg{flex:none}
.pkv .say{min-height:1.45em}
pagedkv-figure{display:block;margin:0}
pagedkv-figure[data-ready]>.pkv-fallback{display:none}
.text_html:has(>pagedkv-figure),.bd-content div.cell_output .text_html:has(>pagedkv-figure){background:none!important;padding:0!important;overflow:visible}
@media (prefers-reduced-motion:reduce){.pkv *{transition:none!important;animation:none!important}}
@media (forced-colors:active){.pkv{--bg:Canvas;--fg:CanvasText;--muted:CanvasText;--line:CanvasText;--edge:CanvasText;--tint:Canvas}
  .pkv button.main{background:ButtonFace;color:ButtonText}.pkv button:disabled{color:GrayText}.pkv text{fill:CanvasText;stroke:none}}`;

  const put = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === false || value == null) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter(child => child != null && child !== false));
    return node;
  };
  /** An HTML element: h("div", {class: "row", onclick: f}, ...children). */
  const h = (tag, attributes, ...children) => {
    const node = put(document.createElement(tag), attributes, children);
    // JupyterLab takes arrow keys for its own commands unless the element in focus says that they are its own.
    if (node.matches("input,select,button,[tabindex]")) node.setAttribute("data-lm-suppress-shortcuts", "");
    return node;
  };
  /** An SVG element, the same way. */
  const s = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);
  /** Path data of many rectangles [x, y, width, height]: one DOM node for hundreds of cells. */
  const rects = list => list.map(([x, y, w, t]) => `M${+x.toFixed(2)} ${+y.toFixed(2)}h${+w.toFixed(2)}v${+t.toFixed(2)}h${-w.toFixed(2)}z`).join("");
  const plural = (n, one, many = one + "s") => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
  const percent = (part, whole) => (whole ? (100 * part) / whole : 0).toFixed(1) + " %";
  const icon = d => s("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"}, s("path", {d}));

  const listen = (target, type, fn) => (target.addEventListener(type, fn), () => target.removeEventListener(type, fn));

  /** State of a figure in the static book. `set` merges; listeners hear what changed it. */
  const localStore = initial => {
    let state = {...initial};
    const heard = new Set();
    return {
      get: () => state,
      set: patch => { state = {...state, ...patch}; },
      replace: next => { state = {...next}; heard.forEach(fn => fn(state)); },
      on: fn => (heard.add(fn), () => heard.delete(fn)),
    };
  };

  /** State of a figure in a notebook: the same, kept in step with the kernel at most 8 times a second. */
  const modelStore = model => {
    let state = {...model.get("state")}, timer = 0;
    const send = () => { timer = 0; model.set("state", {...state}); model.save_changes(); };
    const heard = new Set();
    const hear = () => {
      const next = model.get("state");
      if (timer || JSON.stringify(next) === JSON.stringify(state)) return;
      state = {...next};
      heard.forEach(fn => fn(state));
    };
    model.on("change:state", hear);
    return {
      get: () => state,
      set: patch => { state = {...state, ...patch}; timer ||= setTimeout(send, 120); },
      on: fn => (heard.add(fn), () => heard.delete(fn)),
      close: () => { if (timer) { clearTimeout(timer); send(); } model.off("change:state", hear); },
    };
  };

  /** Draw one figure into `box`; returns how to take it down again. */
  const mount = (box, kind, payload, store) => {
    const id = `pkv${++count}`, offs = [], {draw, css} = kinds.get(kind);
    const live = h("div", {class: "pkv-sr", "aria-live": "polite", "aria-atomic": "true"});
    const root = h("div", {class: "pkv pkv-" + kind, role: "group", "aria-label": payload.title});
    const palette = payload.palette;
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    let speaking = 0;
    const paint = name => (palette[name].tile ? `url(#${id}-${name})` : palette[name].color);
    const fig = {
      id, root, palette, data: payload.data, paint,
      state: store.get, set: store.set,
      onState: fn => offs.push(store.on(fn)),
      off: fn => offs.push(fn),
      listen: (target, type, fn) => offs.push(listen(target, type, fn)),
      /** Whether the reader asked for no animation. */
      still: () => still.matches,
      onStill: fn => offs.push(listen(still, "change", fn)),
      /** Redraw when `node` gets another width; the first call comes at once. */
      onWidth(node, fn) {
        let last = 0;
        const look = () => { const w = Math.floor(node.clientWidth); if (w > 0 && w !== last) fn(last = w); };
        const observer = new ResizeObserver(() => requestAnimationFrame(look));
        observer.observe(node);
        offs.push(() => observer.disconnect());
        look();
      },
      /** Tell a screen reader, once the reader has stopped moving for a moment. */
      announce(text) { clearTimeout(speaking); speaking = setTimeout(() => { live.textContent = text; }, 350); },
      /** A legend of [state, label] or [svg swatch, label] entries. */
      key: entries => h("ul", {class: "key"}, ...entries.map(([what, label]) => h("li", {}, typeof what === "string" ? fig.swatch(what) : what, label))),
      swatch: name => s("svg", {width: 18, height: 12, "aria-hidden": "true"}, s("rect", {
        x: .5, y: .5, width: 17, height: 11, rx: 2, fill: paint(name), stroke: palette[name].color === "none" ? "var(--edge)" : "none"})),
    };
    // The second cue of a state: marks on its colour, so that nothing is said by colour alone.
    const tiles = Object.entries(palette).filter(([, {tile}]) => tile).map(([name, {color, tile: [width, height, d, stroke]}]) =>
      s("pattern", {id: `${id}-${name}`, width, height, patternUnits: "userSpaceOnUse"},
        s("rect", {width, height, fill: color}),
        s("path", {d, fill: "none", stroke: "#000", "stroke-opacity": .62, "stroke-width": stroke, "stroke-linecap": "round"})));
    root.append(h("style", {}, CSS + (css || "")),
      s("svg", {width: 0, height: 0, style: "position:absolute", "aria-hidden": "true"}, s("defs", {}, ...tiles)));
    box.replaceChildren(root);
    draw(fig);
    root.append(live);
    return () => { clearTimeout(speaking); offs.forEach(fn => fn()); store.close && store.close(); box.replaceChildren(); };
  };

  /** Register a kind of figure, and draw those that were already waiting for it. */
  const define = (kind, draw, css) => {
    kinds.set(kind, {draw, css});
    (early.get(kind) || []).forEach(element => element.isConnected && element.connectedCallback());
    early.delete(kind);
  };

  const anywidget = {render({model, el}) {
    return mount(el, model.get("kind"), model.get("payload"), modelStore(model));
  }};

  class PagedKVFigure extends HTMLElement {
    connectedCallback() {
      const kind = this.getAttribute("kind"), source = this.querySelector(':scope>script[type="application/json"]');
      if (this.close || !source) return;
      if (!kinds.has(kind)) {
        early.set(kind, [...(early.get(kind) || []), this]);
        return;
      }
      const payload = JSON.parse(source.textContent);
      this.box ||= this.appendChild(h("div"));
      this.setAttribute("data-ready", "");
      this.store ||= localStore(payload.state);
      this.close = mount(this.box, kind, payload, this.store);
    }
    disconnectedCallback() { this.close && this.close(); this.close = null; }
    /** What the reader has selected; setting it moves the figure. */
    get state() { return this.store && this.store.get(); }
    set state(next) { this.store.replace({...this.store.get(), ...next}); }
  }

  globalThis.pagedkv = {define, mount, localStore, anywidget, h, s, rects, plural, percent, icon};
  if (globalThis.customElements && !customElements.get("pagedkv-figure")) customElements.define("pagedkv-figure", PagedKVFigure);
})();
