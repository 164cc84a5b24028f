// The syntax tree. Statements stand below each other, indented as in code; expressions grow to the right of their statement.

const ROW = 30, HEIGHT = 23, INDENT = 26, GAP = 28;
const BIG_TREE = 300;

const COLOUR_OF = {
  function: "structure", init: "structure", branch: "structure", block: "block", other: "structure",
  loop_serial: "loop", loop_parallel: "parallel", loop_thread_binding: "parallel", loop_vectorized: "vector", loop_unrolled: "unrolled",
  axis_spatial: "axis", axis_reduce: "axis", axis_other: "axis", store: "store", evaluate: "store", load: "load",
  variable: "leaf", constant: "leaf",
};
const LEGEND = [
  ["structure", "function, init, branch"], ["loop", "serial loop"], ["parallel", "parallel loop, thread"], ["vector", "vectorised loop"],
  ["unrolled", "unrolled loop"], ["block", "block"], ["axis", "block axis"], ["store", "store"], ["load", "load"],
  ["math", "arithmetic, call"], ["leaf", "variable, constant"],
];
const STATEMENTS = new Set(["function", "init", "branch", "block", "store", "evaluate", "axis_spatial", "axis_reduce", "axis_other",
  "loop_serial", "loop_parallel", "loop_thread_binding", "loop_vectorized", "loop_unrolled"]);
const EXTRA = [
  {name: "same buffer", kinds: ["next_same_buffer", "previous_same_buffer"], colour: "var(--c-store)"},
  {name: "definition to use", kinds: ["definition_to_use", "use_to_definition"], colour: "var(--c-axis)"},
  {name: "order among siblings", kinds: ["next_sibling", "previous_sibling"], colour: "var(--c-loop)"},
];
const LABEL = {
  function: "function", loop_serial: "loop", loop_parallel: "parallel loop", loop_vectorized: "vectorised loop",
  loop_unrolled: "unrolled loop", loop_thread_binding: "thread loop", axis_spatial: "spatial axis", axis_reduce: "reduced axis",
  axis_other: "axis", floordiv: "floor div", floormod: "floor mod",
};

const letters = (number) => (number >= 26 ? letters(Math.floor(number / 26) - 1) : "") + String.fromCharCode(65 + number % 26);

class Tree {
  constructor(side, panel) {
    this.side = side;
    this.panel = panel;
    this.shown = new Set();
    const {kind, parent, values, edges} = programs[side].ast;
    this.place = Object.fromEntries(columns.ast.map((column, place) => [column.name, place]));
    this.nodes = kind.map((code, index) => {
      const name = tables.node_kinds[code] ?? "other";
      const group = COLOUR_OF[name] || "math";
      return {index, side, kind: name, parent: parent[index], children: [], values: values[index], folded: false,
        statement: STATEMENTS.has(name), colour: `var(--c-${group})`, depth: 0};
    });
    for (const node of this.nodes) {
      if (node.parent < 0) continue;
      node.depth = this.nodes[node.parent].depth + 1;
      this.nodes[node.parent].children.push(node);
    }
    this.edges = EXTRA.map(({kinds}) => {
      const [forward, backward] = kinds.map((name) => edges[tables.edge_kinds.indexOf(name)]);
      return forward || (backward || []).map(([source, target]) => [target, source]);
    });
    this.edgeCounts = Object.fromEntries(Object.entries(edges).map(([code, pairs]) => [tables.edge_kinds[code], pairs.length]));
    const total = Object.values(this.edgeCounts).reduce((sum, count) => sum + count, 0);
    const size = `${this.nodes.length} node${this.nodes.length === 1 ? "" : "s"}, ${total} edges`;
    this.drawing = new Drawing(programs.length > 1 ? `${SIDES[side]}: ${size}` : size);
    this.drawing.svg.setAttribute("role", "tree");
    this.drawing.svg.setAttribute("aria-label", `Syntax tree${programs.length > 1 ? ` of program ${SIDES[side]}` : ""}: arrow keys move, Enter folds`);
    if (this.nodes.length > BIG_TREE) this.foldExpressions();
    this.listen();
  }

  value(node, name) {
    const place = this.place[name];
    return place === undefined ? null : natural(columns.ast[place], node.values[place]);
  }

  // buffers and variables have no names in what a model sees, but edges say which are the same: these get letters
  name(other) {
    const root = this.nodes.map((_, index) => index);
    const find = (index) => { while (root[index] !== index) index = root[index]; return index; };
    for (const [source, target] of this.edges[0]) root[find(target)] = find(source);
    const counterparts = other && other.counterpart ? this.nodes.map((node) => other.nodes[this.counterpart[node.index]]) : [];
    const chosen = new Map(), used = new Set();
    const accesses = this.nodes.filter((node) => node.kind === "load" || node.kind === "store");
    for (const node of accesses) {
      const letter = counterparts[node.index] && counterparts[node.index].buffer;
      if (letter && !chosen.has(find(node.index)) && !used.has(letter)) { chosen.set(find(node.index), letter); used.add(letter); }
    }
    let next = 0;
    if (this.edges[0].length) for (const node of accesses) {
      if (!chosen.has(find(node.index))) {
        while (used.has(letters(next))) next += 1;
        chosen.set(find(node.index), letters(next));
        used.add(letters(next));
      }
      node.buffer = chosen.get(find(node.index));
    }
    let loops = 0, axes = 0;
    const linked = this.edges[1].length > 0;
    for (const node of this.nodes) {
      if (linked && node.kind.startsWith("loop_")) node.variable = `l${loops++}`;
      if (linked && node.kind.startsWith("axis_")) node.variable = `v${axes++}`;
    }
    for (const [source, target] of this.edges[1])
      if (this.nodes[target].kind === "variable") this.nodes[target].variable = this.nodes[source].variable;
    for (const node of this.nodes) this.label(node);
  }

  label(node) {
    node.text = LABEL[node.kind] || node.kind;
    node.detail = "";
    const extent = this.value(node, "extent");
    if (node.variable) node.text = node.kind === "variable" ? node.variable : `${node.text} ${node.variable}`;
    if (node.buffer) node.text += ` ${node.buffer}`;
    if (extent && /^(loop|axis)_/.test(node.kind)) node.detail = `× ${rounded(extent)}`;
    const size = this.value(node, "buffer_bytes");
    if (size && (node.kind === "load" || node.kind === "store")) node.detail = bytes(size);
    const magnitude = this.value(node, "magnitude");
    if (node.kind === "constant" && magnitude !== null) node.detail = rounded(Number(magnitude.toPrecision(5)));
    node.plain = `${node.kind} ${node.detail}`;
    node.title = `${node.text}${node.detail ? ` ${node.detail}` : ""} · node ${node.index}`;
    node.width = 14 + textWidth(node.text, true) + (node.detail ? 6 + textWidth(node.detail) : 0) + 9;
  }

  other(node) { return this.counterpart ? this.partner.nodes[this.counterpart[node.index]] : undefined; }

  foldExpressions() {
    for (const node of this.nodes) node.folded = node.children.length > 0 && (node.kind === "load" || node.kind.startsWith("axis_"));
  }

  foldAll(folded) {
    for (const node of this.nodes) node.folded = folded && node.children.length > 0 && node.depth > 0;
  }

  // node at (x, row); returns the first free row below all of it
  arrange(node, x, row) {
    const todo = [[node, x, row]];
    node.x = x;
    node.row = row;
    // without recursion: chains of thousands of nodes are trees too
    const enter = (one, left, top) => {
      one.x = left;
      one.row = top;
      one.bottom = top + 1;
      one.right = one.folded ? [] : one.children.filter((child) => !(one.statement && child.statement));
      one.below = one.folded ? [] : one.children.filter((child) => one.statement && child.statement);
      one.next = 0;
    };
    enter(node, x, row);
    const stack = [node];
    this.visible = [node];
    while (stack.length) {
      const top = stack[stack.length - 1];
      const count = top.next;
      const child = count < top.right.length ? top.right[count] : top.below[count - top.right.length];
      if (!child) {
        stack.pop();
        const above = stack[stack.length - 1];
        if (above) above.bottom = Math.max(above.bottom, top.bottom);
        continue;
      }
      top.next += 1;
      if (count < top.right.length) enter(child, top.x + top.width + GAP + (top.children.length ? 8 : 0), count === 0 ? top.row : top.bottom);
      else enter(child, top.x + INDENT, top.bottom);
      this.visible.push(child);
      stack.push(child);
    }
    return node.bottom;
  }

  draw() {
    if (!this.nodes.length) return;
    const rows = this.arrange(this.nodes[0], 16, 0);
    this.visible.sort((a, b) => a.row - b.row || a.x - b.x);
    this.isVisible = new Set(this.visible.map((node) => node.index));
    for (const node of this.visible) node.y = 14 + node.row * ROW;
    this.extras = svg("g", {});
    this.drawing.svg.replaceChildren(
      svg("defs", {}, ...EXTRA.map(({colour}, number) => arrow(`arrow-${this.side}-${number}`, colour))),
      svg("g", {}, ...this.visible.flatMap((node) => this.wires(node))), svg("g", {}, ...this.visible.map((node) => this.box(node))), this.extras);
    const width = Math.max(...this.visible.map((node) => node.x + node.width)) + 70;
    this.drawing.size(width, rows * ROW + 24);
    this.drawExtras();
    this.mark();
  }

  wires(node) {
    if (node.folded || !node.children.length) return [];
    const middle = (one) => one.y + HEIGHT / 2;
    const paths = [];
    if (node.below.length) {
      const x = node.x + 11, last = node.below[node.below.length - 1];
      paths.push(`M${x} ${node.y + HEIGHT} V${middle(last) - 6}`);
      for (const child of node.below) paths.push(`M${x} ${middle(child) - 6} q0 6 6 6 H${child.x}`);
    }
    if (node.right.length) {
      const x = node.x + node.width + 16, start = node.x + node.width;
      paths.push(`M${start} ${middle(node)} H${node.right[0].x}`);
      const last = node.right[node.right.length - 1];
      if (node.right.length > 1) paths.push(`M${x + 8} ${middle(node)} V${middle(last) - 6}`);
      for (const child of node.right.slice(1)) paths.push(`M${x + 8} ${middle(child) - 6} q0 6 6 6 H${child.x}`);
    }
    return paths.map((d) => svg("path", {class: "wire", d}));
  }

  box(node) {
    const {x, y, width} = node;
    const below = this.size(node) - 1;
    const state = difference(node, this.other(node));
    node.element = svg("g", {class: `node ${state}`, "data-node": node.index, style: `--c: ${node.colour}`, role: "treeitem",
      tabindex: "-1", "aria-level": node.depth + 1, "aria-expanded": node.children.length ? String(!node.folded) : null, "aria-label": node.title},
      svg("rect", {class: "box", x, y, width, height: HEIGHT, rx: 5}),
      svg("rect", {class: "bar", x, y, width: 5, height: HEIGHT, rx: 2.5}),
      svg("text", {x: x + 13, y: y + 15.5}, svg("tspan", {class: "strong"}, node.text),
        node.detail ? svg("tspan", {dx: 6}, node.detail) : null),
      state === "weak" ? svg("circle", {class: "dot", cx: x + width, cy: y, r: 3.5}) : null,
      node.children.length ? svg("g", {class: "fold"},
        svg("title", {}, node.folded ? `Show ${below} nodes below` : `Fold ${below} nodes below`),
        svg("circle", {cx: x + width + 9, cy: y + HEIGHT / 2, r: 7}),
        svg("text", {x: x + width + 9, y: y + HEIGHT / 2 + 3.5}, node.folded ? "+" : "−")) : null,
      node.folded ? svg("text", {class: "soft", x: x + width + 20, y: y + 15.5}, `${below}`) : null);
    return node.element;
  }

  // nodes at and below; parents stand before children, so a node's subtree is a range
  size(node) {
    if (node.subtree === undefined) {
      for (const one of this.nodes) one.subtree = 1;
      for (let index = this.nodes.length - 1; index > 0; index--) this.nodes[this.nodes[index].parent].subtree += this.nodes[index].subtree;
    }
    return node.subtree;
  }

  seen(index) {
    let node = this.nodes[index];
    while (!this.isVisible.has(node.index)) node = this.nodes[node.parent];
    return node;
  }

  drawExtras() {
    const paths = [];
    EXTRA.forEach(({colour}, number) => {
      for (const [from, to] of this.edges[number]) {
        const lit = this.chosen && (from === this.chosen.index || to === this.chosen.index);
        if (!lit && !this.shown.has(number)) continue;
        const source = this.seen(from), target = this.seen(to);
        if (source === target) continue;
        const y0 = source.y + HEIGHT / 2, y1 = target.y + HEIGHT / 2;
        const right = number < 2;
        const x0 = right ? source.x + source.width : source.x, x1 = right ? target.x + target.width : target.x;
        const bulge = 14 + Math.min(90, Math.abs(y1 - y0) / 3);
        const outer = right ? Math.max(x0, x1) + bulge : Math.min(x0, x1) - Math.min(bulge, 22);
        paths.push(svg("path", {class: lit ? "extra lit" : "extra", style: `--c: ${colour}`, "marker-end": `url(#arrow-${this.side}-${number})`,
          d: `M${x0} ${y0} C${outer} ${y0} ${outer} ${y1} ${x1} ${y1}`, "data-extra": EXTRA[number].name}));
      }
    });
    this.extras.replaceChildren(...paths);
  }

  choose(node, focus = true) {
    this.chosen = node;
    for (const one of this.visible) one.element.classList.toggle("selected", one === node);
    for (const one of this.visible) one.element.setAttribute("tabindex", one === node ? "0" : "-1");
    this.drawing.reveal(node.x, node.y, node.width, HEIGHT);
    if (focus) node.element.focus({preventScroll: true});
    this.drawExtras();
    const other = this.other(node);
    const where = programs.length > 1 ? (other ? "in both programs" : `only in program ${SIDES[this.side]}`) : "";
    this.panel.show(node, other, [where, `depth ${node.depth}`, `${node.children.length} child${node.children.length === 1 ? "" : "ren"}`].filter(Boolean).join("; "));
    if (focus && this.partner) this.partner.follow(other);
  }

  follow(node) {
    for (const one of this.visible) one.element.classList.toggle("linked", one === node);
    if (!node) return;
    this.unfoldTo(node);
    node.element.classList.add("linked");
    this.drawing.reveal(node.x, node.y, node.width, HEIGHT);
  }

  unfoldTo(node) {
    let changed = false;
    for (let above = this.nodes[node.parent]; above; above = this.nodes[above.parent]) {
      changed ||= above.folded;
      above.folded = false;
    }
    if (changed) this.draw();
  }

  fold(node) {
    if (!node.children.length) return;
    node.folded = !node.folded;
    this.draw();
    this.choose(node);
  }

  mark() {
    for (const node of this.visible) {
      node.element.classList.toggle("selected", node === this.chosen);
      node.element.setAttribute("tabindex", node === (this.chosen && this.isVisible.has(this.chosen.index) ? this.chosen : this.nodes[0]) ? "0" : "-1");
      const hit = this.query && `${node.title} ${node.kind} ${words(node.kind)}`.toLowerCase().includes(this.query);
      node.element.classList.toggle("found", Boolean(hit));
      node.element.classList.toggle("dim", Boolean(this.query) && !hit);
    }
  }

  search(query) {
    this.query = query;
    const hits = query ? this.nodes.filter((node) => `${node.title} ${node.kind} ${words(node.kind)}`.toLowerCase().includes(query)) : [];
    // what is folded away is found too
    for (const node of hits.slice(0, 200)) for (let above = this.nodes[node.parent]; above; above = this.nodes[above.parent]) above.folded = false;
    this.draw();
    if (hits.length) this.drawing.reveal(hits[0].x, hits[0].y, hits[0].width, HEIGHT);
    this.hits = hits;
    return hits.length;
  }

  nextHit() {
    if (!this.hits || !this.hits.length) return;
    const after = this.hits.findIndex((node) => this.chosen && node.index > this.chosen.index);
    const node = this.hits[Math.max(0, after)];
    this.unfoldTo(node);
    this.choose(node, false);
  }

  listen() {
    const root = this.drawing.svg;
    const at = (event) => { const found = event.target.closest("[data-node]"); return found ? this.nodes[found.dataset.node] : null; };
    root.addEventListener("pointerover", (event) => {
      const node = at(event);
      if (!node) return hideTip();
      showTip(node, "ast", event);
      const other = this.partner && this.other(node);
      if (this.partner) for (const one of this.partner.visible) one.element.classList.toggle("linked", one === other);
    });
    root.addEventListener("pointermove", moveTip);
    root.addEventListener("pointerleave", hideTip);
    root.addEventListener("click", (event) => {
      const node = at(event);
      if (!node) return;
      if (event.target.closest(".fold")) this.fold(node);
      else this.choose(node);
    });
    root.addEventListener("dblclick", (event) => { const node = at(event); if (node) this.fold(node); });
    root.addEventListener("focusin", (event) => { const node = at(event); if (node && node !== this.chosen) this.choose(node, false); });
    root.addEventListener("keydown", (event) => {
      const node = at(event);
      if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
      const place = this.visible.indexOf(node);
      let target = null;
      if (event.key === "ArrowDown") target = this.visible[place + 1];
      else if (event.key === "ArrowUp") target = this.visible[place - 1];
      else if (event.key === "Home") target = this.visible[0];
      else if (event.key === "End") target = this.visible[this.visible.length - 1];
      else if (event.key === "ArrowRight") { if (node.folded) this.fold(node); else target = node.children[0]; }
      else if (event.key === "ArrowLeft") { if (node.children.length && !node.folded && node.depth) this.fold(node); else target = this.nodes[node.parent]; }
      else if (event.key === "Enter" || event.key === " ") this.fold(node);
      else return;
      event.preventDefault();
      if (target) this.choose(target);
    });
  }
}

function drawTrees() {
  const holder = section("tree", "Syntax tree", "Statements stand below each other as in code, expressions to the right. Point at a node, or " +
    "choose one, to read everything that the model gets of it. Drag or scroll to move, Ctrl and wheel to zoom.");
  const panel = new Panel("ast", "Click a node, or move with the arrow keys, to read all its features with their meaning.");
  const trees = programs.map((_, side) => new Tree(side, panel));
  if (trees.length === 2) {
    const back = new Array(trees[1].nodes.length).fill(-1);
    comparison.ast.forEach((other, node) => { if (other >= 0) back[other] = node; });
    [trees[0].counterpart, trees[1].counterpart] = [comparison.ast, back];
    [trees[0].partner, trees[1].partner] = [trees[1], trees[0]];
  }
  trees.forEach((tree, side) => tree.name(side ? trees[0] : null));
  const count = el("span", {class: "count", "aria-live": "polite"});
  const find = el("input", {type: "search", placeholder: "Find: load, parallel, × 64 ...", "aria-label": "Find nodes of the tree"});
  find.addEventListener("input", () => {
    const found = trees.map((tree) => tree.search(find.value.trim().toLowerCase()));
    count.textContent = find.value.trim() ? `${found.join(" and ")} found` : "";
  });
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") trees.forEach((tree) => tree.nextHit()); });
  const redraw = (change) => () => { for (const tree of trees) { change(tree); tree.draw(); } };
  const extras = EXTRA.map((kind, number) => {
    const total = trees.reduce((sum, tree) => sum + tree.edges[number].length, 0);
    return total === 0 ? null : checkbox(`${kind.name} (${trees.map((tree) => tree.edges[number].length).join(", ")})`, false, (on) => {
      for (const tree of trees) { if (on) tree.shown.add(number); else tree.shown.delete(number); tree.drawExtras(); }
    }, `color: ${kind.colour}`);
  }).filter(Boolean);
  holder.append(
    el("div", {class: "tools"}, find, count,
      el("button", {type: "button", onclick: redraw((tree) => tree.foldAll(false))}, "Unfold all"),
      el("button", {type: "button", onclick: redraw((tree) => { tree.foldAll(false); tree.foldExpressions(); })}, "Fold indices"),
      el("button", {type: "button", onclick: redraw((tree) => tree.foldAll(true))}, "Fold all"),
      extras.length ? el("fieldset", {}, el("legend", {}, "Show edges:"), ...extras) : null),
    el("ul", {class: "legend", "aria-label": "Colours"}, ...LEGEND.map(([name, text]) => el("li", {}, el("i", {style: `--c: var(--c-${name})`}), text))),
    el("div", {class: trees.length === 2 ? "stage two" : "stage"}, ...trees.map((tree) => tree.drawing.root), panel.root));
  const directions = {both: "both ways", forward: "from parent to child", backward: "from child to parent"};
  holder.append(el("p", {class: "lead"}, `The model gets edges ${directions[data.options.direction]}: ` +
    Object.entries(trees[0].edgeCounts).map(([name, number]) => `${words(name)} ${number}`).join(", ") +
    (programs.length > 1 ? " (program A)." : ".") + " Letters name buffers and variables that edges tie together; it sees no names."));
  trees.forEach((tree) => tree.draw());
}
