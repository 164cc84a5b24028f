// What is said of one program: beside the pointer, and on the cards of those that were kept.

let programs = null;
const workloadName = (row) => programs.workloads[programs.workload[row]].name;
const kept = [];
const MOST_KEPT = 12;

function programText(row, pairs) {
  const {kind, networks} = programs.workloads[programs.workload[row]];
  const list = element("dl", {});
  const rows = [...pairs, ["Kind", networks.length ? `${kind}, of ${networks.join(", ")}` : kind], ["Origin", programs.origins[programs.origin[row]]], ["Program", programs.key[row]]];
  for (const [label, text] of rows) list.append(element("dt", {}, label), element("dd", {}, text));
  return [element("strong", {}, workloadName(row)), list, element("p", {class: "words"}, programs.schedule[row] || "The schedule is not at hand.")];
}

// what every card says beside what the axes show: times, and each model's claim where it was tested
function allPairs(row) {
  const pairs = [["Measured", shown(programs.microseconds[row], "µs")], ["Spread", shown(programs.spread[row], "", true)]];
  for (const [split, parts] of Object.entries(programs.parts)) pairs.push([`${split} split`, programs.part_names[parts[row]]]);
  for (const column of programs.columns) pairs.push([column.label, shown(column.values[row], column.unit, column.share)]);
  return pairs;
}

function claims(row) {
  const found = [];
  for (const predicted of programs.predicted) {
    const value = modelColumns(programs, predicted).claimed.values[row];
    if (Number.isFinite(value)) found.push([`${predicted.model} (${predicted.split})`, `${shown(value, "µs")}, × ${digits(Number((value / programs.microseconds[row]).toPrecision(3)))}`]);
  }
  return found;
}

function listed(pairs) {
  return element("dl", {}, ...pairs.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]));
}

function pinProgram(row, show = false) {
  const place = kept.indexOf(row);
  if (place >= 0) kept.splice(place, 1);
  kept.unshift(row);
  kept.length = Math.min(kept.length, MOST_KEPT);
  drawKept();
  if (show) byId("pinned").firstElementChild.scrollIntoView({block: "center"});
}

function drawKept() {
  byId("pinned").replaceChildren(...kept.map((row) => {
    const command = `python scripts/look.py program=${programs.key[row]}`;
    const copy = element("button", {type: "button", onclick: async () => {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
    }}, "Copy");
    const drop = element("button", {type: "button", "aria-label": `Remove ${programs.key[row]}`, onclick: () => { kept.splice(kept.indexOf(row), 1); drawKept(); }}, "Remove");
    const said = claims(row);
    return element("article", {class: "card", "data-key": programs.key[row]},
      element("header", {}, element("strong", {}, workloadName(row)), drop),
      listed([["Program", programs.key[row]], ...allPairs(row).slice(0, 2), ["Origin", programs.origins[programs.origin[row]]]]),
      element("p", {class: "words"}, programs.schedule[row] || "The schedule is not at hand."),
      said.length ? element("details", {}, element("summary", {}, `What ${said.length === 1 ? "the model claims" : `${said.length} models claim`}`), listed(said)) : null,
      element("details", {}, element("summary", {}, "Splits and columns"), listed(allPairs(row).slice(2))),
      element("div", {class: "command"}, element("code", {}, command), navigator.clipboard ? copy : null));
  }));
}
