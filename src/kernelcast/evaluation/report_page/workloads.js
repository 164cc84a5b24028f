// One metric of every model on every workload or network: a table whose colours repeat its numbers, sorted by any column.

// a long name breaks after its dashes and underscores
const breakable = (name) => name.split(/(?<=[-_.])/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));

function workloadTable(data) {
  const controls = byId("workload-controls");
  if (!controls) return;
  const groups = {};
  data.by_workload.forEach((table, at) => (groups[table.group[0].toUpperCase() + table.group.slice(1)] ??= []).push({value: at, text: `${table.metric} (${table.group})`}));
  if (!data.by_workload.length) {
    byId("workload-table").replaceWith(element("p", {class: "missing"}, "No metric is defined for any workload."));
    return;
  }
  const state = {table: Math.max(0, data.by_workload.findIndex((table) => table.group === `${bestModel.split} split`)), by: bestModel.model, down: false};
  const text = (table, value) => (!Number.isFinite(value) ? "" : table.share ? (value < 10 ? `${(100 * value).toFixed(0)}%` : `${value.toPrecision(2)}×`) : value.toFixed(2));
  // from paper to a colour: blue is good, orange bad, and deeper is more of it
  const shade = (table, value) => {
    if (!Number.isFinite(value)) return "";
    const good = table.signed ? value : table.higher_is_better ? value : -value;
    const share = Math.min(Math.abs(good), 1);
    return `background: color-mix(in srgb, var(--${good >= 0 ? "good" : "bad"}) ${Math.round(60 * share)}%, var(--paper))`;
  };
  const draw = () => {
    const table = data.by_workload[state.table];
    const width = table.models.length;
    const lines = table.rows.map((name, at) => ({name, values: table.values.subarray(at * width, (at + 1) * width)}));
    const column = table.models.indexOf(state.by);
    const sign = state.down ? -1 : 1;
    lines.sort((a, b) => {
      if (column < 0) return sign * a.name.localeCompare(b.name, "en", {numeric: true});
      const [x, y] = [a.values[column], b.values[column]];
      return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y);
    });
    const head = ["", ...table.models].map((name) => {
      const chosen = name === (column < 0 ? "" : state.by);
      return element("th", {scope: "col", "aria-sort": chosen ? (state.down ? "descending" : "ascending") : null},
        element("button", {type: "button", onclick: () => { state.down = chosen && !state.down; state.by = name; draw(); byId("workload-table").querySelectorAll("thead button")[["", ...table.models].indexOf(name)].focus(); }},
          ...breakable(name || (table.group.endsWith("network") ? "Network" : "Workload")), chosen ? (state.down ? " ↓" : " ↑") : ""));
    });
    const body = lines.map((line) => element("tr", {}, element("th", {scope: "row"}, ...breakable(line.name)), ...Array.from(line.values, (value) => element("td", {style: shade(table, value)}, text(table, value)))));
    byId("workload-table").replaceChildren(element("table", {class: "heat"}, element("caption", {}, `${table.metric}, ${table.group}; ${table.higher_is_better ? "higher" : "lower"} is better. Choose a heading to sort by it.`), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  };
  const {holder} = chooser("Metric", groups, state.table, (value) => { state.table = Number(value); draw(); });
  holder.className = "wide";
  controls.append(holder);
  draw();
}
