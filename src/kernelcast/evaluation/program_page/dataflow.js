// The dataflow graph in layers: what makes a tensor stands above what reads it.

const FLOW_HEIGHT = 44, LAYER = 92;
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

  arrange() {
    for (const node of this.nodes) node.layer = 0;
    // nodes stand in topological order
    for (const node of this.nodes) for (const reader of node.after) reader.layer = Math.max(reader.layer, node.layer + 1);
    // what only gives a tensor moves down to its first reader
    for (const node of this.nodes) if (!node.before.length && node.after.length) node.layer = Math.min(...node.after.map((reader) => reader.layer)) - 1;
    const layers = [];
    for (const node of this.nodes) (layers[node.layer] ||= []).push(node);
    const filled = layers.filter(Boolean);
    const order = () => filled.forEach((layer) => layer.forEach((node, place) => { node.order = place - layer.length / 2; }));
    const mean = (nodes, node) => (nodes.length ? nodes.reduce((sum, one) => sum + one.order, 0) / nodes.length : node.order);
    order();
    for (let round = 0; round < 6; round++) {
      const down = round % 2 === 0;
      for (const layer of down ? filled : [...filled].reverse()) {
        const at = new Map(layer.map((node) => [node, mean(down ? node.before : node.after, node)]));
        layer.sort((a, b) => at.get(a) - at.get(b));
        order();
      }
    }
    const widths = filled.map((layer) => layer.reduce((sum, node) => sum + node.width + 30, -30));
    const width = Math.max(...widths, 200);
    filled.forEach((layer, number) => {
      let x = 24 + (width - widths[number]) / 2;
      for (const node of layer) {
        [node.x, node.y] = [x, 20 + number * LAYER];
        x += node.width + 30;
      }
    });
    return [width + 48, filled.length * LAYER - (LAYER - FLOW_HEIGHT) + 40];
  }

  draw() {
    const [width, height] = this.arrange();
    this.paths = this.wires.map(([source, target]) => {
      // readers of one tensor leave it at different places
      const spread = (list, one, node) => node.x + node.width * (list.indexOf(one) + 1) / (list.length + 1);
      const x0 = spread(source.after, target, source), x1 = spread(target.before, source, target);
      const y0 = source.y + FLOW_HEIGHT, y1 = target.y - 1;
      const bend = Math.max(26, (y1 - y0) / 2);
      const size = this.value(source, "tensor_bytes");
      return svg("path", {class: "flow", d: `M${x0} ${y0} C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`, "marker-end": `url(#flow-${this.side})`},
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
