// Tables that sort by any column and filter by text.

// `heads`: {text, number, sort}; `rows`: {cells: [{node, key}], text, differs}
function makeTable(label, heads, rows, filterLabel) {
  const body = el("tbody", {});
  const state = {by: -1, down: false, query: "", differing: false};
  const count = el("span", {class: "count", "aria-live": "polite"});
  const show = () => {
    const kept = rows.filter((row) => row.text.includes(state.query) && (!state.differing || row.differs));
    if (state.by >= 0) {
      const sign = state.down ? -1 : 1;
      const empty = (key) => key === null || key === undefined || key === "";
      kept.sort((a, b) => {
        const [x, y] = [a.cells[state.by].key, b.cells[state.by].key];
        if (empty(x) || empty(y)) return empty(x) - empty(y);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", {numeric: true}));
      });
    }
    body.replaceChildren(...kept.map((row) => row.element ||= el("tr", {class: row.className, "data-row": row.name}, ...row.cells.map((cell) => cell.node))));
    count.textContent = kept.length === rows.length ? `${rows.length} rows` : `${kept.length} of ${rows.length} rows`;
  };
  const ths = heads.map((head, place) => el("th", {scope: "col", class: [head.number ? "number" : "", head.stick ? "stick" : ""].join(" "), title: head.title},
    el("button", {type: "button", onclick: () => {
      state.down = state.by === place ? !state.down : Boolean(head.number);
      state.by = place;
      ths.forEach((th, other) => { if (other === place) th.setAttribute("aria-sort", state.down ? "descending" : "ascending"); else th.removeAttribute("aria-sort"); });
      show();
    }}, head.text)));
  const find = el("input", {type: "search", placeholder: filterLabel, "aria-label": `${label}: filter`, oninput: () => { state.query = find.value.trim().toLowerCase(); show(); }});
  const differing = rows.some((row) => row.differs) ? checkbox("only what differs", false, (on) => { state.differing = on; show(); }) : null;
  show();
  return [el("div", {class: "tools"}, find, differing, count),
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label}, el("table", {}, el("thead", {}, el("tr", {}, ...ths)), body))];
}

const textCell = (text, className) => ({node: el("td", {class: className}, text), key: text});
const headCell = (text) => ({node: el("th", {scope: "row", class: "stick"}, text), key: text});

function valueCell(column, value, differs, zero, below) {
  if (value === undefined) return {node: el("td", {class: "number"}, ""), key: null};
  const name = ["number", value === 0 ? "zero" : "", differs ? "differs" : ""].join(" ");
  const shown = el("td", {class: name, title: `the model gets ${exact(value)}`}, zero && value === 0 ? zero : worded(column, value));
  if (below && column.scale && value !== 0) shown.append(el("span", {class: "below"}, exact(value)));
  return {node: shown, key: natural(column, value)};
}

function placeCell(percentile) {
  if (percentile === null || percentile === undefined) return {node: el("td", {class: "number model", title: "the same in all programs of the workload"}, "all equal"), key: null};
  return {node: el("td", {class: "number"}, el("span", {class: "place", "aria-hidden": "true"}, el("i", {style: `left: ${percentile}%`})), `${Math.round(percentile)}`), key: percentile};
}

const compared = (view, what) => {
  const counts = [...new Set(programs.map((program) => program[view].compared))];
  return `The percentile${what ? ` is that of ${what},` : " is"} the program's place among ${counts.join(" and ")} programs of its workload and target: 0 has the least, 100 the most.`;
};

// one row a feature, of the program as a whole
function drawFeatures(view, id, title, lead) {
  const holder = section(id, title, `${lead} ${compared(view)}`);
  const two = programs.length > 1;
  const side = (text, number) => (two ? `${SIDES[number]}: ${text}` : text.charAt(0).toUpperCase() + text.slice(1));
  const heads = [{text: "Feature", stick: true},
    ...programs.flatMap((_, number) => [{text: side("value", number), number: true}, ...(two ? [] : [{text: side("model gets", number), number: true}]),
      {text: side("percentile", number), number: true}]),
    {text: "Unit"}, {text: "Meaning"}];
  const rows = columns[view].map((column, place) => {
    const values = programs.map((program) => program[view].values[place]);
    const differs = values.length > 1 && values[0] !== values[1];
    return {name: column.name, differs, text: `${column.name} ${words(column.name)} ${column.meaning} ${column.unit}`.toLowerCase(),
      cells: [headCell(words(column.name)),
        ...programs.flatMap((program, number) => [valueCell(column, values[number], differs, null, two),
          ...(two ? [] : [{node: el("td", {class: "number model"}, exact(values[number])), key: values[number]}]), placeCell(program[view].percentiles[place])]),
        textCell(column.unit), textCell(column.meaning, "meaning")]};
  });
  holder.append(...makeTable(title, heads, rows, "Filter features"));
}

// one row a feature, one column a statement
function drawStatements(view, id, title, lead) {
  const holder = section(id, title, `${lead} ${compared(view, "the sum of what the model gets over the statements")}`);
  const heads = [{text: "Feature", stick: true}];
  programs.forEach((program, number) => {
    const side = programs.length > 1 ? `${SIDES[number]}: ` : "";
    program[view].values.forEach((_, place) => heads.push({text: `${side}${place + 1}`, number: true, title: `statement ${place + 1}`}));
    heads.push({text: `${side}percentile`, number: true});
  });
  heads.push({text: "Unit"}, {text: "Meaning"});
  const rows = columns[view].map((column, place) => {
    const at = (program, number) => program[view].values[number]?.[place];
    const length = Math.max(...programs.map((program) => program[view].values.length));
    const differing = Array.from({length}, (_, number) => programs.length > 1 && at(programs[0], number) !== at(programs[1], number));
    return {name: column.name, differs: differing.some(Boolean), text: `${column.name} ${words(column.name)} ${column.meaning} ${column.unit}`.toLowerCase(),
      cells: [headCell(words(column.name)),
        ...programs.flatMap((program) => [...program[view].values.map((_, number) => valueCell(column, at(program, number), differing[number])), placeCell(program[view].percentiles[place])]),
        textCell(column.unit), textCell(column.meaning, "meaning")]};
  });
  holder.append(...makeTable(title, heads, rows, "Filter features"));
}

function drawTrace() {
  const holder = section("trace", "Schedule trace", "The primitives that made the program of its workload, one step a row, as a model of traces gets them: what differs from " +
    "0 in any step has a column. Point at a heading or a value for its meaning or for what the model gets.");
  const used = columns.trace.map((column, place) => ({column, place}))
    .filter(({place}) => programs.some((program) => program.trace.values.some((step) => step[place] !== 0)));
  // what was decided is what a reader looks for
  const first = ({column}) => (/^(word|decided|decision_\d+)$/.test(column.name) ? 0 : 1);
  used.sort((a, b) => first(a) - first(b));
  const two = programs.length > 1;
  const pairs = two ? comparison.trace : programs[0].trace.primitive.map((_, step) => [step, null]);
  const wordOf = (code) => (code ? tables.words[code - 1] ?? `text ${code}` : "");
  const backs = Object.fromEntries(columns.trace.map((column, place) => [column.name, place]));
  // what a column holds depends on the step: codes, places and probabilities are not scaled
  const spoken = (column, value, values, name) => {
    if (column.name === "word") return wordOf(value);
    if (column.name === "decision_3" && name === "SampleCategorical") return value ? rounded(value) : null;
    const operand = /^operand_(\d+)_value$/.exec(column.name);
    if (!operand || value === 0) return null;
    // of what an earlier step made the place
    if (values[backs[`operand_${operand[1]}_back`]] !== 0) return rounded(value);
    // no logarithm of a whole number is a whole number, so a literal that is one is the code of a text
    return Number.isInteger(value) && value > 0 ? wordOf(value) : null;
  };
  // a decision for 0 says something, a place without a decision nothing
  const wasDecided = (column, values) => Number(/^decision_(\d+)$/.exec(column.name)?.[1] ?? Infinity) <= values[backs.decided];
  const rows = [];
  const add = (side, step, against, className) => {
    const {primitive, values} = programs[side].trace;
    const name = tables.primitives[primitive[step]] ?? "other";
    rows.push({name: `${SIDES[side]}-${step}`, className, differs: Boolean(className), text: [name, ...used.map(({column, place}) => spoken(column, values[step][place], values[step], name) || "")].join(" ").toLowerCase(),
      cells: [{node: el("th", {scope: "row", class: "stick step"}, `${step + 1} ${name}`), key: rows.length},
        ...(two ? [textCell(className ? SIDES[side] : "both")] : []),
        ...used.map(({column, place}) => {
          const value = values[step][place];
          const differs = against !== null && programs[1 - side].trace.values[against][place] !== value;
          const text = spoken(column, value, values[step], name);
          return text !== null ? {node: el("td", {class: `${differs ? "differs" : ""} ${column.name === "word" ? "" : "number"}`, title: `the model gets ${exact(value)}`}, text), key: text} : valueCell({...column, unit: ""}, value, differs, wasDecided(column, values[step]) ? null : "·");
        })]});
  };
  for (const [left, right] of pairs) {
    if (!two) { add(0, left, null, ""); continue; }
    const same = left !== null && right !== null && programs[0].trace.primitive[left] === programs[1].trace.primitive[right] &&
      programs[0].trace.values[left].every((value, place) => value === programs[1].trace.values[right][place]);
    if (same) { add(0, left, null, ""); continue; }
    if (left !== null) add(0, left, right, right === null ? "only" : "differs");
    if (right !== null) add(1, right, left, left === null ? "only" : "differs second");
  }
  const heads = [{text: "Step", stick: true}, ...(two ? [{text: "Program"}] : []),
    ...used.map(({column}) => ({text: words(column.name), number: column.name !== "word", title: [column.meaning, column.unit].filter(Boolean).join("; ")}))];
  holder.append(...makeTable("Schedule trace", heads, rows, "Filter steps"));
  holder.append(el("details", {}, el("summary", {}, "What the columns say"),
    el("dl", {}, ...columns.trace.flatMap((column) => [el("dt", {}, words(column.name)), el("dd", {}, column.meaning || "nobody says")]))));
}

const TOKEN = /(#.*$)|("[^"]*")|\b(for|in|if|else|with|def|and|or|not|lambda|return|class|import|from|as)\b|\b(T\.[\w.]+|I\.[\w.]+)|\b(\d[\d.e+-]*)\b/gm;

function codeLine(text, number, className) {
  const line = el("span", {class: className}, el("span", {class: "line", "aria-hidden": "true"}, number === null ? "" : String(number + 1)));
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const kind = ["remark", "text", "word", "call", "digits"][match.slice(1).findIndex((part) => part !== undefined)];
    line.append(text.slice(end, match.index), el("span", {class: kind}, match[0]));
    end = match.index + match[0].length;
  }
  line.append(text.slice(end));
  return line;
}

function drawSource() {
  const holder = section("code", "TensorIR", "The scheduled module as TVM prints it, to compare the views with: no model sees this text.");
  const lines = programs.map((program) => (program.source === null ? null : program.source.split("\n")));
  const aligned = comparison && comparison.source;
  const blocks = lines.map((all, side) => {
    if (all === null) return el("p", {}, data.no_source || "There is none.");
    const made = aligned
      ? aligned.map((pair) => {
          const own = pair[side], other = pair[1 - side];
          if (own === null) return codeLine("", null, "gone");
          return codeLine(all[own], own, other === null ? "only" : lines[1 - side][other].trim() === all[own].trim() ? "" : "differs");
        })
      : all.map((line, number) => codeLine(line, number, ""));
    return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `TensorIR${programs.length > 1 ? ` of program ${SIDES[side]}` : ""}`}, el("pre", {}, ...made));
  });
  holder.append(el("div", {class: blocks.length === 2 ? "code two" : "code"}, ...blocks));
  // aligned lines stay side by side
  const [left, right] = blocks;
  if (aligned) for (const [one, other] of [[left, right], [right, left]])
    one.addEventListener("scroll", () => { if (other.scrollTop !== one.scrollTop) other.scrollTop = one.scrollTop; }, {passive: true});
}
