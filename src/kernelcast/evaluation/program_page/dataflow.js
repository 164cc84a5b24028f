// The dataflow graph in layers: what makes a tensor stands above what reads it.

const FLOW_HEIGHT = 44, LAYER = 88;
const OPCODE_COLOUR = {
  parameter: "leaf", fill: "leaf", iota: "leaf", copy: "load", transpose: "load", broadcast: "load", cast: "load", pad: "load", choose: "load",
  gather: "load", contraction: "parallel", convolution: "parallel", depthwise_convolution: "parallel", intrinsic: "structure", other: "structure",
  reduce_sum: "loop", reduce_product: "loop", reduce_maximum: "loop", reduce_minimum: "loop", reduce_other: "loop",
};

class Dataflow {
  constructor(side, panel) {
    this.side = side;
    this.panel = panel;
    const {kind, values, edges} = programs[side].dataflow;
    this.place = Object.fromEntries(columns.dataflow.map((column, place) => [column.name, place]));
    const forward = edges[0] || (edges[1] || []).map(([source, target]) => [target, source]);
    this.nodes = kind.map((code, index) => {
      const name = tables.opcodes[code] ?? "other";
      return {index, side, kind: name, values: values[index], before: [], after: [], colour: `var(--c-${OPCODE_COLOUR[name] || "math"})`};
    });
    this.wires = forward.map(([source, target]) => {
      this.nodes[source].after.push(this.nodes[target]);
      this.nodes[target].before.push(this.nodes[source]);
      return [this.nodes[source], this.nodes[target]];
    });
    for (const node of this.nodes) this.label(node);
    const size = `${this.nodes.length} node${this.nodes.length === 1 ? "" : "s"}, ${forward.length} tensors read`;
    this.drawing = new Drawing(programs.length > 1 ? `${SIDES[side]}: ${size}` : size, true);
    this.drawing.svg.setAttribute("role", "group");
    this.drawing.svg.setAttribute("aria-label", `Dataflow graph${programs.length > 1 ? ` of program ${SIDES[side]}` : ""}`);
    this.listen();
  }

  value(node, name) {
    const place = this.place[name];
    return place === undefined ? 0 : natural(columns.dataflow[place], node.values[place]);
  }

  label(node) {
    const shape = [6, 5, 4, 3, 2, 1].map((slot) => this.value(node, `shape_${slot}`)).filter((extent) => extent > 0);
    const size = this.value(node, "tensor_bytes");
    node.text = words(node.kind);
    node.detail = [shape.map((extent) => rounded(extent)).join(" × "), size ? bytes(size) : ""].filter(Boolean).join(" · ");
    node.plain = `${node.kind} ${node.detail}`;
    node.title = `${node.text} · node ${node.index}`;
    node.width = 30 + Math.max(textWidth(node.text, true), textWidth(node.detail));
  }

  // layers by the longest way from the top; an edge over several layers has a place of its own in each that it crosses
  arrange() {
    for (const node of this.nodes) node.layer = 0;
    // nodes stand in topological order
    for (const node of this.nodes) for (const reader of node.after) reader.layer = Math.max(reader.layer, node.layer + 1);
    // what only gives a tensor moves down to its first reader
    for (const node of this.nodes) if (!node.before.length && node.after.length) node.layer = Math.min(...node.after.map((reader) => reader.layer)) - 1;
    const layers = Array.from({length: Math.max(0, ...this.nodes.map((node) => node.layer)) + 1}, () => []);
    for (const node of this.nodes) {
      [node.up, node.down] = [[], []];
      layers[node.layer].push(node);
    }
    this.chains = this.wires.map(([source, target]) => {
      const chain = [source];
      for (let layer = source.layer + 1; layer < target.layer; layer++) {
        const bend = {width: 16, up: [], down: [], layer};
        layers[layer].push(bend);
        chain.push(bend);
      }
      chain.push(target);
      for (let place = 1; place < chain.length; place++) {
        chain[place - 1].down.push(chain[place]);
        chain[place].up.push(chain[place - 1]);
      }
      return chain;
    });
    const number = (layer) => layer.forEach((one, place) => { one.order = place - layer.length / 2; });
    const mean = (list, value, otherwise) => (list.length ? list.reduce((sum, one) => sum + value(one), 0) / list.length : otherwise);
    layers.forEach(number);
    const sweep = (round, act) => (round % 2 ? [...layers].reverse() : layers).forEach((layer) => act(layer, round % 2 ? "down" : "up"));
    for (let round = 0; round < 8; round++) sweep(round, (layer, side) => {
      const at = new Map(layer.map((one) => [one, mean(one[side], (other) => other.order, one.order)]));
      layer.sort((a, b) => at.get(a) - at.get(b));
      number(layer);
    });
    const spread = (layer, wished) => {
      let end = -Infinity, shift = 0;
      layer.forEach((one, place) => {
        one.x = Math.max(wished[place] - one.width / 2, end);
        end = one.x + one.width + 28;
        shift += wished[place] - one.width / 2 - one.x;
      });
      for (const one of layer) one.x += shift / layer.length;
    };
    for (const layer of layers) spread(layer, layer.map(() => 0));
    for (let round = 0; round < 12; round++)
      sweep(round, (layer, side) => spread(layer, layer.map((one) => mean(one[side], (other) => other.x + other.width / 2, one.x + one.width / 2))));
    const every = layers.flat(), left = Math.min(...every.map((one) => one.x));
    for (const one of every) [one.x, one.y] = [one.x - left + 24, 20 + one.layer * LAYER];
    return [Math.max(...every.map((one) => one.x + one.width)) + 24, layers.length * LAYER - (LAYER - FLOW_HEIGHT) + 40];
  }

  draw() {
    if (!this.nodes.length) return;
    const [width, height] = this.arrange();
    // edges leave and reach a node side by side, in the order of where they come from and go to
    const port = (node, list, other) => {
      const sorted = [...list].sort((a, b) => a.x + a.width / 2 - b.x - b.width / 2);
      return node.x + node.width * (sorted.indexOf(other) + 1) / (sorted.length + 1);
    };
    this.paths = this.chains.map((chain, number) => {
      const [source, target] = this.wires[number];
      let x = port(source, source.down, chain[1]), y = source.y + FLOW_HEIGHT, d = `M${x} ${y}`;
      for (const one of chain.slice(1)) {
        const last = one === target;
        const x1 = last ? port(target, target.up, chain[chain.length - 2]) : one.x + one.width / 2, y1 = last ? one.y - 1 : one.y;
        const bend = (y1 - y) / 2;
        d += ` C${x} ${y + bend} ${x1} ${y1 - bend} ${x1} ${y1}`;
        [x, y] = [x1, y1];
        if (!last) { y = one.y + FLOW_HEIGHT; d += ` V${y}`; }
      }
      const size = this.value(source, "tensor_bytes");
      return svg("path", {class: "flow", d, "marker-end": `url(#flow-${this.side})`},
        svg("title", {}, `${source.text} to ${target.text}${size ? `: ${bytes(size)}` : ""}`));
    });
    this.drawing.svg.replaceChildren(svg("defs", {}, arrow(`flow-${this.side}`, "var(--edge)")), svg("g", {}, ...this.paths),
      svg("g", {}, ...this.nodes.map((node) => this.box(node))));
    this.drawing.size(width, height);
  }

  box(node) {
    const {x, y, width} = node;
    const state = difference(node, this.other(node));
    node.element = svg("g", {class: `node ${state}`, "data-node": node.index, style: `--c: ${node.colour}`, role: "button", tabindex: "0", "aria-label": `${node.title}, ${node.detail}`},
      svg("rect", {class: "box", x, y, width, height: FLOW_HEIGHT, rx: 7}),
      svg("rect", {class: "bar", x, y, width: 6, height: FLOW_HEIGHT, rx: 3}),
      svg("text", {x: x + 17, y: y + 19}, svg("tspan", {class: "strong"}, node.text)),
      svg("text", {class: "soft", x: x + 17, y: y + 35}, node.detail),
      state === "weak" ? svg("circle", {class: "dot", cx: x + width, cy: y, r: 4}) : null);
    return node.element;
  }

  other(node) { return this.counterpart ? this.partner.nodes[this.counterpart[node.index]] : undefined; }

  choose(node) {
    for (const graph of [this, this.partner]) if (graph) for (const one of graph.nodes) one.element.classList.remove("selected", "linked");
    node.element.classList.add("selected");
    const other = this.other(node);
    if (other) other.element.classList.add("linked");
    this.wires.forEach((wire, number) => this.paths[number].classList.toggle("lit", wire.includes(node)));
    this.panel.show(node, other, [tables.opcode_meanings[node.kind], programs.length > 1 && !other ? `only in program ${SIDES[this.side]}` : ""].filter(Boolean).join("; "));
  }

  listen() {
    const root = this.drawing.svg;
    const at = (event) => { const found = event.target.closest("[data-node]"); return found ? this.nodes[found.dataset.node] : null; };
    root.addEventListener("pointerover", (event) => { const node = at(event); if (node) showTip(node, "dataflow", event); else hideTip(); });
    root.addEventListener("pointermove", moveTip);
    root.addEventListener("pointerleave", hideTip);
    root.addEventListener("click", (event) => { const node = at(event); if (node) this.choose(node); });
    root.addEventListener("focusin", (event) => { const node = at(event); if (node) this.choose(node); });
  }
}

function drawDataflow() {
  const holder = section("dataflow", "Dataflow graph", "What the program computes, with tensors as edges: what makes a tensor stands above what reads it.");
  const panel = new Panel("dataflow", "Click a node to read all its features with their meaning.");
  const graphs = programs.map((_, side) => new Dataflow(side, panel));
  if (graphs.length === 2) {
    for (const graph of graphs) graph.counterpart = new Array(graph.nodes.length).fill(-1);
    for (const [one, other] of comparison.dataflow)
      if (one !== null && other !== null) { graphs[0].counterpart[one] = other; graphs[1].counterpart[other] = one; }
    [graphs[0].partner, graphs[1].partner] = [graphs[1], graphs[0]];
  }
  holder.append(el("div", {class: graphs.length === 2 ? "stage two" : "stage"}, ...graphs.map((graph) => graph.drawing.root), panel.root));
  graphs.forEach((graph) => graph.draw());
}
