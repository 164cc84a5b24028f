// Predicted over measured, one model at a time: times for models of time, places for models of order.

const straight = (rows, plot) => (plot.ends ? [{x: plot.ends, y: plot.ends, name: "perfect", showlegend: false}] : []);

function parityPlot(data, base) {
  const controls = byId("parity-controls");
  if (!controls) return;
  const models = {};
  data.predicted.forEach((predicted, at) => (models[`${predicted.split} split`] ??= []).push({value: at, text: `${predicted.model} (${predicted.split} split)`}));
  const start = Math.max(0, data.predicted.findIndex((each) => each.model === bestModel.model && each.split === bestModel.split));
  const state = {model: start, group: "all", colour: "family"};
  let pairs = [];
  const plot = new Scatter(byId("parity"), "Predicted and measured", (row) => pairs.map((column) => [column.label, shown(column.values[row], column.unit, column.share)]), (row) => pinProgram(row));
  const draw = () => {
    const predicted = data.predicted[state.model];
    const columns = modelColumns(data, predicted);
    const inside = inGroup(data, state.group);
    const rows = Array.from(predicted.rows).filter(inside);
    const time = base.numbers[0];
    const [x, y] = predicted.of_time ? [time, columns.claimed] : [columns.truePlace, columns.place];
    pairs = [...new Set([time, columns.claimed, columns.error, columns.truePlace, columns.place])];
    plot.draw({x, y, xLog: predicted.of_time, yLog: predicted.of_time, colour: base.categories.find((each) => each.id === state.colour), rows, total: predicted.rows.length, square: true, lines: straight});
    caption.textContent = predicted.of_time
      ? `Test programs of the ${predicted.split} split: time that ${predicted.model} predicts over measured time. On the dashed line a prediction is perfect; above it the program is faster than claimed.`
      : `Test programs of the ${predicted.split} split. ${predicted.model} predicts an order and no times: its place in the workload, 0 the fastest and 1 the slowest, over the measured one. On the dashed line the order is perfect.`;
  };
  const set = (name) => (value) => { state[name] = value; draw(); };
  const workloads = chooser("Workload", workloadGroups(data), "all", set("group"));
  const {holder} = chooser("Model", models, start, (value) => { state.model = Number(value); draw(); });
  holder.className = "wide";
  controls.append(
    holder, workloads.holder,
    chooser("Colour and shape", {"": base.categories.map((each) => ({value: each.id, text: each.label}))}, "family", set("colour")).holder);
  const caption = element("figcaption", {});
  byId("parity").append(caption);
  draw();
}
