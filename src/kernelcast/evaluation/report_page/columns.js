// What an axis or a colour can show: columns of numbers and of categories, one value a program.

function programColumns(data) {
  const count = data.key.length;
  const fastest = new Float32Array(data.workloads.length).fill(Infinity);
  for (let row = 0; row < count; row++) fastest[data.workload[row]] = Math.min(fastest[data.workload[row]], data.microseconds[row]);
  const made = (values) => Float32Array.from({length: count}, (_, row) => values(row));
  const numbers = [
    {id: "time", group: "Measured", label: "Measured time", unit: "µs", log: true, values: data.microseconds},
    {id: "slowdown", group: "Measured", label: "Time over the workload's fastest", unit: "", log: true, values: made((row) => data.microseconds[row] / fastest[data.workload[row]])},
    {id: "spread", group: "Measured", label: "Spread of the repeats", unit: "", log: true, values: data.spread, note: "interquartile range / median"},
  ];
  const named = Object.fromEntries(data.columns.map((column) => [column.name, column.values]));
  if (named.flops) numbers.push({id: "gflops", group: "Measured", label: "Speed reached", unit: "Gflop/s", log: true, values: made((row) => named.flops[row] / data.microseconds[row] / 1e3)});
  if (named.unique_bytes) numbers.push({id: "gbytes", group: "Measured", label: "Distinct bytes a second", unit: "GB/s", log: true, values: made((row) => named.unique_bytes[row] / data.microseconds[row] / 1e3)});
  for (const column of data.columns) numbers.push({...column, id: column.name, group: "Structure of the program"});
  const networks = data.workloads.map((workload) => (workload.networks.length > 1 ? "several" : workload.networks[0] ?? "none"));
  const categories = [
    {id: "family", label: "Family of operators", of: (row) => data.workloads[data.workload[row]].family},
    {id: "kind", label: "Kind of operator", of: (row) => data.workloads[data.workload[row]].kind},
    {id: "network", label: "Network", of: (row) => networks[data.workload[row]]},
    {id: "workload", label: "Workload", of: (row) => data.workloads[data.workload[row]].name},
    {id: "origin", label: "Origin of the candidate", of: (row) => data.origins[data.origin[row]]},
  ];
  return {count, numbers, categories};
}

// place of each value in its group, 0 the smallest and 1 the largest; equal ones share the middle
function places(values, groups, count) {
  const found = new Float32Array(count).fill(NaN);
  const members = new Map();
  for (let row = 0; row < count; row++) {
    if (Number.isNaN(values[row])) continue;
    if (!members.has(groups[row])) members.set(groups[row], []);
    members.get(groups[row]).push(row);
  }
  for (const rows of members.values()) {
    rows.sort((a, b) => values[a] - values[b]);
    for (let start = 0; start < rows.length;) {
      let end = start;
      while (end < rows.length && values[rows[end]] === values[rows[start]]) end++;
      for (let at = start; at < end; at++) found[rows[at]] = rows.length > 1 ? (start + end - 1) / 2 / (rows.length - 1) : 0;
      start = end;
    }
  }
  return found;
}

// columns of one model on one split: only tested programs have values
const modelColumns = (() => {
  const known = new Map();
  return (data, predicted) => {
    if (known.has(predicted)) return known.get(predicted);
    const count = data.key.length;
    const claimed = new Float32Array(count).fill(NaN);
    const measured = new Float32Array(count).fill(NaN);
    predicted.rows.forEach((row, at) => { claimed[row] = predicted.claimed[at]; measured[row] = data.microseconds[row]; });
    const error = Float32Array.from({length: count}, (_, row) => claimed[row] / measured[row]);
    const {model} = predicted;
    const found = {
      claimed: {id: `claimed:${model}`, label: predicted.of_time ? `${model}: predicted time` : `${model}: time of its place`, unit: "µs", log: true, values: claimed},
      error: {id: `error:${model}`, label: `${model}: claimed / measured`, unit: "", log: true, values: error, middle: 1},
      size: {id: `size:${model}`, label: `${model}: error factor`, unit: "", log: true, values: error.map((value) => Math.max(value, 1 / value))},
      place: {id: `place:${model}`, label: `${model}: predicted place`, unit: "", log: false, values: places(claimed, data.workload, count)},
      truePlace: {id: `true:${model}`, label: "Measured place among the tested of its workload", unit: "", log: false, values: places(measured, data.workload, count)},
    };
    for (const column of Object.values(found)) column.group = `${model}, ${predicted.split} split`;
    known.set(predicted, found);
    return found;
  };
})();

const MOST_CATEGORIES = 8;
// the most frequent categories of some programs; the rest are one more
function categoryIndex(category, rows) {
  const counts = new Map();
  for (const row of rows) counts.set(category.of(row), (counts.get(category.of(row)) ?? 0) + 1);
  const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || String(a).localeCompare(b));
  const kept = names.length > MOST_CATEGORIES ? names.slice(0, MOST_CATEGORIES - 1) : names;
  const place = new Map(kept.map((name, at) => [name, at]));
  return {
    names: names.length > kept.length ? [...kept, `${names.length - kept.length} others`] : kept,
    others: names.length > kept.length ? kept.length : -1,
    of: (row) => place.get(category.of(row)) ?? kept.length,
    counts: (name) => counts.get(name),
  };
}

// workloads to choose from, with the groups that they are in
function workloadGroups(data) {
  const sizes = new Map();
  for (const number of data.workload) sizes.set(number, (sizes.get(number) ?? 0) + 1);
  const collect = (of) => {
    const found = new Map();
    data.workloads.forEach((workload, number) => { for (const name of of(workload)) found.set(name, (found.get(name) ?? 0) + (sizes.get(number) ?? 0)); });
    return [...found].sort((a, b) => a[0].localeCompare(b[0]));
  };
  const option = (prefix) => ([name, size]) => ({value: `${prefix}:${name}`, text: `${name} (${counted(size)})`});
  const networks = collect((workload) => workload.networks);
  return {
    "": [{value: "all", text: `All workloads (${counted(data.key.length)})`}],
    "Families": collect((workload) => [workload.family]).map(option("family")),
    "Kinds": collect((workload) => [workload.kind]).map(option("kind")),
    ...(networks.length ? {"Networks": networks.map(option("networks"))} : {}),
    "Workloads": data.workloads.map((workload, number) => ({value: `workload:${number}`, text: `${workload.name} (${sizes.get(number) ?? 0})`})).sort((a, b) => a.text.localeCompare(b.text)),
  };
}

// whether a program is in the group that `workloadGroups` calls `value`
function inGroup(data, value) {
  const [what, name] = [value.slice(0, value.indexOf(":")), value.slice(value.indexOf(":") + 1)];
  if (value === "all") return () => true;
  if (what === "workload") return (row) => data.workload[row] === Number(name);
  const wanted = data.workloads.map((workload) => (what === "networks" ? workload.networks.includes(name) : workload[what] === name));
  return (row) => wanted[data.workload[row]];
}
