// What trees and graphs have in common: a drawing that scrolls and zooms, the tip under the pointer, the panel beside it.

const tip = document.getElementById("tip");

// `view` names the columns; a node has {index, label, title, values}
function showTip(node, view, event) {
  const listed = [], zero = [];
  columns[view].forEach((column, place) => {
    const value = node.values[place];
    if (value === 0) zero.push(column.name);
    else listed.push(el("dt", {}, words(column.name)), el("dd", {}, worded(column, value)));
  });
  tip.replaceChildren(el("h4", {}, node.title), el("dl", {}, ...listed),
    ...(zero.length ? [el("p", {}, `zero: ${zero.map(words).join(", ")}`)] : []));
  tip.hidden = false;
  moveTip(event);
}

function moveTip(event) {
  if (tip.hidden) return;
  let x = event.clientX, y = event.clientY;
  if (x === undefined) {
    const box = event.target.getBoundingClientRect();
    [x, y] = [box.right, box.bottom];
  }
  const {offsetWidth: width, offsetHeight: height} = tip;
  const left = x + 18 + width < innerWidth ? x + 18 : Math.max(8, x - width - 18);
  const top = y + 14 + height < innerHeight ? y + 14 : Math.max(8, Math.min(y - height - 14, innerHeight - height - 8));
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// all features of a node, beside those of its counterpart in the other program
class Panel {
  constructor(view, hint) {
    this.view = view;
    this.pinned = false;
    this.root = el("aside", {class: "panel", "aria-live": "polite", "aria-label": "Features of the chosen node", tabindex: "0"});
    this.root.append(el("h3", {}, "No node chosen"), el("p", {}, hint));
  }

  show(node, other, note) {
    const names = columns[this.view];
    const two = Boolean(other);
    const sides = node.side ? [other, node] : [node, other];
    const head = el("tr", {}, el("th", {scope: "col"}, "Feature"),
      ...(two ? SIDES : ["Value"]).map((text) => el("th", {scope: "col", class: "number"}, text)),
      two ? null : el("th", {scope: "col", class: "number"}, "Model gets"));
    const rows = names.map((column, place) => {
      const values = two ? sides.map((one) => one.values[place]) : [node.values[place]];
      const differs = two && values[0] !== values[1];
      const cell = (value) => two
        ? el("td", {class: `number${differs ? " differs" : ""}`}, worded(column, value), el("span", {class: "meaning"}, exact(value)))
        : el("td", {class: "number"}, worded(column, value));
      return el("tr", {class: values.every((value) => value === 0) ? "zero" : null, "data-feature": column.name},
        el("td", {}, words(column.name), el("span", {class: "meaning"}, [column.meaning, unitOf(column)].filter(Boolean).join(" "))),
        ...values.map(cell), two ? null : el("td", {class: "number model"}, exact(values[0])));
    });
    this.root.replaceChildren(
      el("h3", {}, el("i", {class: "chip", style: `--c: ${node.colour}`}), node.title),
      el("p", {}, [note, two ? "the model's value stands below the natural one" : ""].filter(Boolean).join("; ")),
      names.length ? el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)) : el("p", {}, "The data keep no features of a node."));
    this.root.scrollTop = 0;
  }
}

// a frame around an SVG: scrolls natively, so touch, keyboard and wheel work; Ctrl and wheel, or buttons, zoom
class Drawing {
  constructor(title, low) {
    this.zoom = 1;
    this.svg = svg("svg", {});
    this.canvas = el("div", {class: low ? "canvas low" : "canvas"}, this.svg);
    this.title = el("span", {class: "grow"}, title);
    this.bar = el("div", {class: "bar"}, this.title,
      el("button", {type: "button", "aria-label": "Zoom out", onclick: () => this.setZoom(this.zoom / 1.25)}, "−"),
      el("button", {type: "button", "aria-label": "Zoom in", onclick: () => this.setZoom(this.zoom * 1.25)}, "+"),
      el("button", {type: "button", onclick: () => this.fit()}, "Fit"),
      el("button", {type: "button", onclick: () => this.setZoom(1)}, "1:1"));
    this.root = el("div", {class: "drawing"}, this.bar, this.canvas);
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.setZoom(this.zoom * Math.exp(-event.deltaY / 300), event);
    }, {passive: false});
    this.canvas.addEventListener("pointerdown", (event) => this.drag(event));
  }

  size(width, height) {
    [this.width, this.height] = [Math.ceil(width), Math.ceil(height)];
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.setZoom(this.zoom);
  }

  setZoom(zoom, event) {
    const before = this.zoom;
    this.zoom = Math.min(3, Math.max(0.08, zoom));
    const box = this.canvas.getBoundingClientRect();
    const x = event ? event.clientX - box.left : 0, y = event ? event.clientY - box.top : 0;
    const left = (this.canvas.scrollLeft + x) * this.zoom / before - x;
    const top = (this.canvas.scrollTop + y) * this.zoom / before - y;
    this.svg.setAttribute("width", this.width * this.zoom);
    this.svg.setAttribute("height", this.height * this.zoom);
    this.canvas.scrollTo({left, top, behavior: "instant"});
  }

  fit() {
    // of a drawing that is much taller than the frame a part that can be made out
    this.setZoom(Math.min(1.4, this.canvas.clientWidth / this.width, Math.max(0.25, Math.min(innerHeight * 0.74, 820) / this.height)));
  }

  drag(start) {
    if (start.pointerType !== "mouse" || start.button !== 0 || start.target.closest(".node")) return;
    const {scrollLeft, scrollTop} = this.canvas;
    const move = (event) => {
      this.canvas.scrollTo({left: scrollLeft + start.clientX - event.clientX, top: scrollTop + start.clientY - event.clientY, behavior: "instant"});
    };
    const stop = () => {
      removeEventListener("pointermove", move);
      this.canvas.classList.remove("dragging");
    };
    this.canvas.classList.add("dragging");
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop, {once: true});
  }

  reveal(x, y, width, height) {
    const {scrollLeft: left, scrollTop: top, clientWidth, clientHeight} = this.canvas;
    const [x0, y0, x1, y1] = [x, y, x + width, y + height].map((value) => value * this.zoom);
    const margin = 24;
    this.canvas.scrollTo({
      left: x0 - margin < left ? x0 - margin : x1 + margin > left + clientWidth ? x1 + margin - clientWidth : left,
      top: y0 - margin < top ? y0 - margin : y1 + margin > top + clientHeight ? y1 + margin - clientHeight : top,
      behavior: "instant",
    });
  }
}

// how a node differs from its counterpart: "only", "changed" (its label), "weak" (features alone) or ""
function difference(node, other) {
  if (!comparison) return "";
  if (!other) return "only";
  if (node.kind !== other.kind || node.plain !== other.plain) return "changed";
  return node.values.some((value, place) => value !== other.values[place]) ? "weak" : "";
}

function arrow(id, colour) {
  return svg("marker", {id, viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "9", markerHeight: "9", markerUnits: "userSpaceOnUse", orient: "auto-start-reverse"},
    svg("path", {d: "M0 0 L8 4 L0 8 z", style: `fill: ${colour}`}));
}
