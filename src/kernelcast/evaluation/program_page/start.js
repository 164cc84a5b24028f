// The times of the workload's programs as a strip, then every view that the data have.

function drawStrip(holder, side) {
  const program = programs[side];
  const logs = program.peer_seconds.map(Math.log);
  const low = Math.min(...logs), span = Math.max(Math.max(...logs) - low, 1e-9);
  const x = (value) => 1 + 98 * (logs.length > 1 ? (Math.log(value) - low) / span : 0.5);
  const mark = (one, name) => {
    const at = `${Math.min(99, Math.max(1, x(one.seconds)))}%`;
    return [svg("line", {x1: at, x2: at, y1: 3, y2: 25, style: "stroke: var(--accent); stroke-width: 3; stroke-linecap: round"}),
      name ? svg("text", {x: at, y: 0, dy: 1, style: "font: 700 11px system-ui, sans-serif; fill: var(--accent); text-anchor: middle"}, name) : null];
  };
  const same = programs.filter((one) => one.workload === program.workload && JSON.stringify(one.target) === JSON.stringify(program.target));
  const label = (at, anchor, text) => svg("text", {x: at, y: 39, style: `font: 11px system-ui, sans-serif; fill: var(--soft); text-anchor: ${anchor}`}, text);
  holder.append(svg("svg", {role: "img", "aria-label": `Times of the workload's programs from ${seconds(program.peer_seconds[0])} to ${seconds(program.peer_seconds.at(-1))}; this one takes ${seconds(program.seconds)}`},
    svg("line", {x1: "1%", x2: "99%", y1: 14, y2: 14, style: "stroke: var(--edge)"}),
    ...program.peer_seconds.map((value) => svg("circle", {cx: `${x(value)}%`, cy: 14, r: 3.5, style: "fill: var(--soft); fill-opacity: 0.35"})),
    ...(same.length > 1 ? same.flatMap((one) => mark(one, one === program ? SIDES[programs.indexOf(one)] : SIDES[programs.indexOf(one)])) : mark(program, "")),
    label("1%", "start", `fastest ${seconds(program.peer_seconds[0])}`), label("99%", "end", `slowest ${seconds(program.peer_seconds.at(-1))}`)));
}

document.querySelectorAll(".card").forEach((card, side) => drawStrip(card.querySelector(".strip"), side));
const has = (view) => programs.every((program) => program[view]);
if (has("ast")) drawTrees();
if (has("dataflow")) drawDataflow();
if (has("kernel")) drawFeatures("kernel", "kernel", "Kernel features", "What graph models get of the program as a whole: tile sizes and static performance figures.");
if (has("features")) drawFeatures("features", "features", "Flat features", "One row a program, for models that take a table.");
if (has("machine_code")) drawFeatures("machine_code", "machine-code", "Machine code", "What LLVM made of the program: instructions and cycles of its loops, read from the assembly.");
if (has("statements")) drawStatements("statements", "statements", "Statement rows", "One column a statement, in program order, for models that add up over statements.");
if (has("per_store")) drawStatements("per_store", "per-store", "TVM's features of every store", "What TVM's own models get, one column a store.");
if (has("trace")) drawTrace();
if (programs.some((program) => program.source !== null)) drawSource();
else if (data.no_source) document.getElementById("main").append(el("p", {class: "lead"}, data.no_source));
document.body.dataset.drawn = "yes";
