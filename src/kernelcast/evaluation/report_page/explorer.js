// The explorer: any column over any other, filtered and coloured.

const MOST_LISTED = 100;

// programs so far above the peak, and such a share of them, say that the peak was measured on a busy machine
const CLEARLY_BEYOND = 1.5;
const MANY_BEYOND = 0.05;

// the least that a program takes that is limited by operations or by memory alone
function roofLines(rows, plot) {
  const {roof} = programs;
  const [low, high] = rows.reduce(([a, b], row) => [Math.min(a, plot.spec.x.values[row]), Math.max(b, plot.spec.x.values[row])], [Infinity, -Infinity]);
  const ridge = roof.gflops / roof.gbytes;
  const x = [low, ridge, high].filter((value) => value >= low && value <= high);
  return [{x, y: x.map((value) => Math.min(roof.gflops, value * roof.gbytes)), name: "roof", showlegend: false}];
}

const unity = (rows, plot) => {
  const values = rows.map((row) => plot.spec.x.values[row]);
  return values.length ? [{x: [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))], y: [1, 1], name: "perfect", showlegend: false}] : [];
};

// views worth a look, as far as the data have their columns
function presetsOf(has, model) {
  const views = [];
  if (has("gflops") && has("intensity")) views.push({name: "Roofline", x: "intensity", y: "gflops", colour: "family"});
  if (model) {
    views.push({name: "Claimed over measured", x: "time", y: `claimed:${model}`, colour: "family"});
    views.push({name: "Error over time", x: "time", y: `error:${model}`, colour: "family"});
    if (has("vector_share")) views.push({name: "Error and vectors", x: "vector_share", y: `error:${model}`, colour: "max_straight_steps"});
  }
  views.push({name: "Noise over time", x: "time", y: "spread", colour: "origin"});
  if (has("kernel_inner_tile_product")) views.push({name: "Tiles", x: "kernel_inner_tile_product", y: "slowdown", colour: "vector_share"});
  return views;
}

function explorerPlot(data, base) {
  const holder = byId("explorer-controls");
  if (!holder) return;
  const splits = [...new Set([...Object.keys(data.parts), ...data.predicted.map((predicted) => predicted.split)])];
  const state = {split: splits.includes(bestModel.split) ? bestModel.split : splits[0], part: "all", group: "all"};
  const models = () => data.predicted.filter((predicted) => predicted.split === state.split);
  const numbers = () => [...base.numbers, ...models().flatMap((predicted) => Object.values(modelColumns(data, predicted)).filter((column, at) => at < 4))];
  const categories = () => [...base.categories, ...(data.parts[state.split] ? [{id: "part", label: `Part of the ${state.split} split`, of: (row) => data.part_names[data.parts[state.split][row]]}] : [])];
  const number = (id) => numbers().find((column) => column.id === id);
  const has = (id) => number(id) !== undefined;
  const trusted = () => (models().find((each) => each.model === bestModel.model) ?? models()[0])?.model;
  const presets = () => presetsOf(has, trusted());
  let columns = [];
  const describe = (row) => columns.map((column) => [column.label, shown(column.values[row], column.unit, column.share)]);
  const plot = new Scatter(byId("explorer-plot"), "Explorer", describe, (row) => pinProgram(row));

  const caption = element("figcaption", {});
  byId("explorer-plot").append(caption);

  const draw = () => {
    const inside = inGroup(data, state.group);
    const part = state.part === "all" || !data.parts[state.split] ? () => true : (row) => data.part_names[data.parts[state.split][row]] === state.part;
    const rows = [];
    for (let row = 0; row < base.count; row++) if (inside(row) && part(row)) rows.push(row);
    const [x, y] = [number(state.x), number(state.y)];
    const colour = number(state.colour) ?? categories().find((each) => each.id === state.colour) ?? null;
    const time = base.numbers[0];
    columns = [...new Set([x, y, ...(colour?.values ? [colour] : []), time])];
    const lines = x.id === "intensity" && y.id === "gflops" && data.roof && state.xLog && state.yLog ? roofLines : y.middle ? unity : y.id.startsWith("claimed:") && x.id === "time" ? straight : undefined;
    const tested = [x, y].some((column) => column.id.includes(":"));
    plot.draw({x, y, xLog: state.xLog, yLog: state.yLog, colour, rows, total: base.count, lines, square: lines === straight, why: tested ? `, as models are asked about the test part of the ${state.split} split alone` : ""});
    const beyond = lines === roofLines ? plot.rows.filter((row) => y.values[row] > CLEARLY_BEYOND * programs.roof.gflops).length : 0;
    caption.textContent = lines === roofLines ? `Dashed: the speed that one run allows by the machine's peak, ${shown(programs.roof.gflops)} Gflop/s, and by main memory, ${shown(programs.roof.gbytes)} GB/s. Programs that fit a cache go beyond its slope; so do operations that the compiler found to be none.`
        + (beyond > MANY_BEYOND * plot.rows.length ? ` ${counted(beyond)} programs are far faster than this peak: something else was running while it was measured, and the true lines are higher.` : "")
      : y.middle ? "On the dashed line a claim is right; above it the program is faster than claimed, below it slower." : "";
    for (const button of byId("explorer-presets").children) {
      const view = presets().find((each) => each.name === button.textContent);
      button.setAttribute("aria-pressed", String(Boolean(view) && view.x === state.x && view.y === state.y && view.colour === state.colour));
    }
    table();
  };

  const axisOptions = () => {
    const groups = {};
    for (const column of numbers()) (groups[column.group] ??= []).push({value: column.id, text: column.label});
    return groups;
  };
  const axis = (name, label) => {
    const {holder: cell, select} = chooser(label, axisOptions(), state[name], (value) => {
      state[name] = value;
      state[`${name}Log`] = box.input.checked = number(value).log;
      draw();
    });
    const box = tick("logarithmic", state[`${name}Log`], (on) => { state[`${name}Log`] = on; draw(); });
    cell.append(box.holder);
    return {cell, select, box};
  };
  const show = ({x, y, colour}) => {
    Object.assign(state, {x, y, colour, xLog: number(x).log, yLog: number(y).log});
  };
  const build = () => {
    const focused = document.activeElement?.closest("#explorer-controls")?.querySelectorAll("select");
    const place = focused ? [...focused].indexOf(document.activeElement) : -1;
    const across = axis("x", "Across (x)");
    const up = axis("y", "Up (y)");
    const numbered = axisOptions();
    const hue = chooser("Colour and shape", {"Categories": categories().map((each) => ({value: each.id, text: each.label})), "": [{value: "", text: "One colour"}], ...numbered}, state.colour, (value) => { state.colour = value; draw(); });
    const cells = [across.cell, up.cell, hue.holder, chooser("Workload", workloadGroups(data), state.group, (value) => { state.group = value; draw(); }).holder];
    if (splits.length) cells.push(chooser("Split", {"": splits.map((split) => ({value: split, text: `${split} split`}))}, state.split, (value) => {
      state.split = value;
      for (const name of ["x", "y"]) if (!has(state[name])) Object.assign(state, {[name]: "time", [`${name}Log`]: true});
      if (!has(state.colour) && !categories().some((each) => each.id === state.colour)) state.colour = "family";
      build();
      draw();
    }).holder);
    if (data.parts[state.split]) cells.push(chooser("Part of the split", {"": [{value: "all", text: "All programs"}, ...data.part_names.map((name) => ({value: name, text: {train: "Trained on", valid: "Validation", test: "Test", "left out": "Left out"}[name]}))]}, state.part, (value) => { state.part = value; draw(); }).holder);
    holder.replaceChildren(...cells);
    if (place >= 0) holder.querySelectorAll("select")[place]?.focus();
    byId("explorer-presets").replaceChildren(...presets().map((view) => element("button", {type: "button", "aria-pressed": "false", onclick: () => { show(view); build(); draw(); }}, view.name)));
  };

  // what is drawn, for those who cannot see it or want all of it
  const details = byId("explorer-table");
  const listing = () => [...new Set([base.numbers[0], ...columns])];
  function table() {
    if (!details.open) { details.lastElementChild.replaceChildren(); return; }
    const listed = listing();
    const sorted = [...plot.rows].sort((a, b) => plot.spec.y.values[b] - plot.spec.y.values[a]).slice(0, MOST_LISTED);
    const head = element("tr", {}, ...["Workload", "Program"].map((text) => element("th", {scope: "col", class: "text"}, text)), ...listed.map((column) => element("th", {scope: "col"}, column.label)));
    const body = sorted.map((row) => element("tr", {}, element("th", {scope: "row"}, workloadName(row)), element("td", {class: "text"}, element("button", {type: "button", class: "key", onclick: () => pinProgram(row, true)}, programs.key[row])), ...listed.map((column) => element("td", {}, shown(column.values[row], column.unit, column.share)))));
    details.lastElementChild.replaceChildren(
      element("p", {}, `${counted(sorted.length)} of ${counted(plot.rows.length)}, the largest ${plot.spec.y.label} first. `, element("button", {type: "button", onclick: download}, "Save all as CSV")),
      element("div", {class: "scroll tall", tabindex: "0", role: "region", "aria-label": "The programs shown"}, element("table", {class: "figures"}, element("thead", {}, head), element("tbody", {}, ...body))));
  }
  function download() {
    const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const lines = [["workload", "program_key", ...listing().map((column) => quoted(column.label + (column.unit ? ` (${column.unit})` : "")))].join(",")];
    for (const row of plot.rows) lines.push([quoted(workloadName(row)), programs.key[row], ...listing().map((column) => column.values[row])].join(","));
    const link = element("a", {href: URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], {type: "text/csv"})), download: "programs.csv"});
    link.click();
    URL.revokeObjectURL(link.href);
  }
  details.addEventListener("toggle", table);

  show(presets()[0]);
  build();
  draw();
}
