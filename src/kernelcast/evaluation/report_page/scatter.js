// One scatter plot of programs: drawn by WebGL where they are many, stepped through by keys, read aloud as it goes.

const MOST_SVG = 2500;
const PAGE = 50;

const hasWebgl = (() => {
  const probe = document.createElement("canvas");
  return Boolean(probe.getContext("webgl2") || probe.getContext("webgl"));
})();

// the ticks of an axis for a range of it, as far as plotly's own are not good enough
function ticksOf(column, log, [from, to]) {
  const decades = to - from;
  if (column.unit !== "µs") return log ? {dtick: decades >= 2 ? 1 : decades >= 0.5 ? "D2" : null} : {};
  // a time names its unit: 10 µs, 10 ms
  const [low, high] = log ? [10 ** from, 10 ** to] : [Math.max(from, 0), to];
  const tickvals = [];
  if (log && decades >= 0.7) {
    for (let power = Math.floor(from); power <= to; power++) for (const by of decades >= 2 ? [1] : [1, 2, 5]) tickvals.push(by * 10 ** power);
  } else {
    const rough = 10 ** Math.floor(Math.log10((high - low) / 3));
    const step = rough * [1, 2, 5].findLast((by) => (high - low) / (by * rough) >= 3);
    for (let at = Math.ceil(low / step); at * step <= high; at++) tickvals.push(at * step);
  }
  return {tickvals, ticktext: tickvals.map((value) => shown(value, "µs"))};
}

class Scatter {
  // `describe(row)`: [label, text] pairs of what the axes and colour show; `pin(row)`: keeps a program
  constructor(host, name, describe, pin) {
    this.describe = describe;
    this.pin = pin;
    this.name = name;
    this.count = element("div", {class: "count"});
    this.plot = element("div", {class: "plot"});
    this.here = element("div", {class: "here", hidden: true});
    this.tip = element("div", {class: "tip", hidden: true});
    this.said = element("p", {class: "sr", "aria-live": "polite"});
    this.canvas = element("div", {class: "canvas", tabindex: "0", role: "application", "aria-roledescription": "scatter plot"}, this.plot, this.here, this.tip);
    host.append(this.count, this.canvas, this.said);
    this.current = -1;
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.leave());
    this.listening = false;
    dark.addEventListener("change", () => this.draw(this.spec));
  }

  // `spec`: x and y columns with `log`, colour (a column, a category or null), rows, line, height
  draw(spec) {
    if (!spec) return;
    this.spec = spec;
    const {x, y} = spec;
    const usable = (column, log, row) => Number.isFinite(column.values[row]) && (!log || column.values[row] > 0);
    const known = spec.rows.filter((row) => Number.isFinite(x.values[row]) && Number.isFinite(y.values[row]));
    let rows = known.filter((row) => usable(x, spec.xLog, row) && usable(y, spec.yLog, row));
    const zeros = known.length - rows.length;
    this.gl = rows.length > MOST_SVG && hasWebgl;
    const all = rows.length;
    if (all > MOST_SVG && !hasWebgl) rows = rows.filter((_, at) => Math.floor(at * MOST_SVG / all) !== Math.floor((at - 1) * MOST_SVG / all));
    this.rows = rows;
    this.order = null;
    const narrow = this.plot.clientWidth < 600;
    const [xaxis, yaxis] = [this.axis(x, spec.xLog, rows, spec.square), this.axis(y, spec.yLog, rows, spec.square)];
    const {traces, owners} = this.traces(rows);
    this.owners = owners;
    const layout = {
      ...layoutLook(), height: spec.height ?? (narrow ? 440 : 540), dragmode: coarse.matches ? false : "zoom",
      xaxis, yaxis,
      legend: {orientation: "h", yanchor: "bottom", y: 0, yref: "container", x: 0, xref: "container", itemsizing: "constant", font: {size: 12}, bgcolor: "rgba(0,0,0,0)"},
      showlegend: traces.filter((trace) => trace.name).length > 1,
    };
    // on a narrow screen the legend has one entry a line
    if (narrow && layout.showlegend) layout.height += 18 * traces.length;
    Plotly.react(this.plot, traces, layout, settings);
    if (!this.listening) this.listen();
    this.leave();
    const notes = [`${counted(all)} of ${counted(spec.total)} programs`];
    if (rows.length < all) notes.push(`${counted(rows.length)} of them drawn: this browser has no WebGL`);
    if (spec.rows.length > known.length) notes.push(`${counted(spec.rows.length - known.length)} have no value here${spec.why ?? ""}`);
    if (zeros) notes.push(`${counted(zeros)} are 0, which a logarithmic axis cannot show`);
    this.count.replaceChildren(element("span", {role: "status"}, notes.join("; ")));
    this.canvas.setAttribute("aria-label", `${this.name}: ${y.label} over ${x.label}, ${counted(all)} programs. Arrow keys step: left and right along the x axis, up and down along the y axis; page keys step by ${PAGE}, Home and End go to the ends; Enter keeps a program, Escape leaves it. The table below holds the same.`);
  }

  axis(column, log, rows, square) {
    // the ticks of a time have their own units
    const unit = column.unit && column.unit !== "µs" ? ` (${column.unit})` : column.note ? ` (${column.note})` : "";
    const axis = {...axisLook(), type: log ? "log" : "linear", title: {...axisLook().title, text: column.label + unit}};
    let [low, high] = [Infinity, -Infinity];
    for (const each of square ? [this.spec.x, this.spec.y] : [column]) {
      for (const row of rows) { const value = each.values[row]; if (value < low) low = value; if (value > high) high = value; }
    }
    if (!(high >= low)) return axis;
    this.ends = [low, high];
    if (log) {
      const [from, to] = [Math.log10(low), Math.log10(high)];
      const gap = Math.max(0.04 * (to - from), 0.02);
      axis.range = [from - gap, to + gap];
      axis.exponentformat = "SI";
      // beside given ticks plotly searches for minor ones without end
      if (column.unit !== "µs") axis.minor = {ticks: "outside", ticklen: 3, tickcolor: token("line"), showgrid: false};
    } else {
      const gap = Math.max(0.03 * (high - low), 1e-9);
      axis.range = [low - gap, high + gap];
      if (column.share) axis.tickformat = ".0%";
    }
    Object.assign(axis, ticksOf(column, log, axis.range));
    return axis;
  }

  traces(rows) {
    const {x, y, colour} = this.spec;
    const owners = [];
    const made = [];
    const type = this.gl ? "scattergl" : "scatter";
    const size = rows.length > 6000 ? 5 : rows.length > 800 ? 6 : 8;
    const trace = (name, own, marker) => {
      owners.push(own);
      made.push({
        type, mode: "markers", name, hoverinfo: "none", x: own.map((row) => x.values[row]), y: own.map((row) => y.values[row]),
        marker: {size, opacity: rows.length > 6000 ? 0.55 : 0.75, ...marker},
      });
    };
    if (!colour) trace("", rows, {color: palette()[0]});
    else if (colour.values) this.numbered(trace, rows, colour);
    else {
      const index = categoryIndex(colour, rows);
      const own = index.names.map(() => []);
      for (const row of rows) own[index.of(row)].push(row);
      index.names.forEach((name, at) => {
        const other = at === index.others;
        trace(`${short(name)} (${counted(own[at].length)})`, own[at], {color: other ? OTHERS : palette()[at % 8], symbol: other ? "circle-open" : SHAPES[at % 8]});
      });
    }
    for (const line of this.spec.lines?.(rows, this) ?? []) {
      owners.push(null);
      made.push({type: "scatter", mode: "lines", hoverinfo: "skip", line: {color: token("ink"), width: 1.3, dash: "dash"}, ...line});
    }
    return {traces: made, owners};
  }

  numbered(trace, rows, colour) {
    const has = (row) => Number.isFinite(colour.values[row]) && (!colour.log || colour.values[row] > 0);
    const own = rows.filter(has);
    const without = rows.filter((row) => !has(row));
    const value = (row) => (colour.log ? Math.log10(colour.values[row]) : colour.values[row]);
    const sorted = Float32Array.from(own, value).sort();
    let [low, high] = [sorted[Math.floor(0.01 * (sorted.length - 1))] ?? 0, sorted[Math.ceil(0.99 * (sorted.length - 1))] ?? 1];
    if (colour.middle) { high = Math.max(Math.abs(low), Math.abs(high), 0.05); low = -high; }
    const ticks = Array.from({length: 5}, (_, at) => low + (high - low) * at / 4);
    const narrow = this.plot.clientWidth < 600;
    if (without.length) trace(`no value (${counted(without.length)})`, without, {color: OTHERS, symbol: "circle-open", opacity: 0.25});
    trace(without.length ? `with a value (${counted(own.length)})` : "", own, {
      color: own.map(value), cmin: low, cmax: high,
      colorscale: colour.middle ? [[0, token("good")], [0.5, dark.matches ? "#4a5666" : "#d5dae1"], [1, token("bad")]] : "Cividis", reversescale: !colour.middle && !dark.matches,
      colorbar: {
        title: {text: colour.label + (colour.unit ? ` (${colour.unit})` : ""), side: narrow ? "top" : "right", font: {size: 12}}, thickness: 12, outlinewidth: 0, tickfont: {size: 11},
        tickvals: ticks, ticktext: ticks.map((at) => shown(colour.log ? 10 ** at : at, "", colour.share)),
        ...(narrow ? {orientation: "h", y: -0.24, yanchor: "top", len: 1} : {}),
      },
    });
  }

  listen() {
    this.listening = true;
    const rowOf = (event) => { const point = event.points[0]; return this.owners[point.curveNumber]?.[point.pointNumber]; };
    this.plot.on("plotly_hover", (event) => { const row = rowOf(event); if (row !== undefined) this.show(row); });
    this.plot.on("plotly_unhover", () => { if (document.activeElement !== this.canvas) this.leave(); });
    this.plot.on("plotly_click", (event) => { const row = rowOf(event); if (row !== undefined) { this.show(row); this.pin(row); } });
    this.plot.on("plotly_relayout", () => {
      this.retick();
      if (this.current >= 0) this.show(this.current);
    });
  }

  // a zoom wants other ticks
  retick() {
    const changes = {};
    for (const name of ["x", "y"]) {
      const {type, range} = this.plot._fullLayout[`${name}axis`];
      const asked = this.plot.layout[`${name}axis`];
      for (const [key, value] of Object.entries(ticksOf(this.spec[name], type === "log", range))) {
        if (String(asked[key] ?? null) !== String(value)) changes[`${name}axis.${key}`] = value;
      }
    }
    if (Object.keys(changes).length) Plotly.relayout(this.plot, changes);
  }

  // marks a program and says what it is
  show(row) {
    this.current = row;
    const layout = this.plot._fullLayout;
    const [left, top] = [layout.xaxis._offset + layout.xaxis.d2p(this.spec.x.values[row]), layout.yaxis._offset + layout.yaxis.d2p(this.spec.y.values[row])];
    const inside = left >= layout.xaxis._offset && left <= layout.xaxis._offset + layout.xaxis._length && top >= layout.yaxis._offset && top <= layout.yaxis._offset + layout.yaxis._length;
    this.here.hidden = !inside;
    this.here.style.left = `${left}px`;
    this.here.style.top = `${top}px`;
    this.tip.replaceChildren(...programText(row, this.describe(row)));
    this.tip.hidden = false;
    const [width, room] = [this.tip.offsetWidth, this.canvas.clientWidth];
    this.tip.style.left = `${Math.max(0, left + 18 + width < room ? left + 18 : Math.min(left - 18 - width, room - width))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(top + 14, this.plot.clientHeight - this.tip.offsetHeight))}px`;
  }

  leave() {
    this.current = -1;
    this.here.hidden = true;
    this.tip.hidden = true;
  }

  key(event) {
    const steps = {ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1], PageDown: ["x", PAGE], PageUp: ["x", -PAGE], Home: ["x", -Infinity], End: ["x", Infinity]};
    if (event.key === "Escape") { this.leave(); return; }
    if ((event.key === "Enter" || event.key === " ") && event.target === this.canvas && this.current >= 0) { event.preventDefault(); this.pin(this.current); return; }
    if (!(event.key in steps) || event.target !== this.canvas || event.altKey || event.ctrlKey || event.metaKey || !this.rows.length) return;
    event.preventDefault();
    const [along, by] = steps[event.key];
    this.order ??= Object.fromEntries(["x", "y"].map((axis) => {
      const sorted = [...this.rows].sort((a, b) => this.spec[axis].values[a] - this.spec[axis].values[b]);
      return [axis, {sorted, at: new Map(sorted.map((row, place) => [row, place]))}];
    }));
    const {sorted, at} = this.order[along];
    const next = this.current < 0 ? (by > 0 && by < Infinity ? 0 : by === Infinity ? sorted.length - 1 : 0) : Math.min(Math.max(at.get(this.current) + by, 0), sorted.length - 1);
    this.show(sorted[next]);
    this.said.textContent = `${workloadName(sorted[next])}: ${this.describe(sorted[next]).map((pair) => pair.join(" ")).join(", ")}. ${counted(next + 1)} of ${counted(sorted.length)}.`;
  }
}

// long names say most at their end
const short = (name) => (name.length > 42 ? `${name.slice(0, 14)}…${name.slice(-26)}` : name);
