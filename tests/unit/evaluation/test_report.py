import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.evaluation.campaign import (
    care_taken,
    device_counts,
    failure_counts,
    origin_counts,
    outcome_counts,
    spread_summary,
    target_counts,
    time_span,
    workload_counts,
)
from kernelcast.evaluation.predictions import PREDICTION_SCHEMA
from kernelcast.evaluation.report_page.charts import read_curves
from kernelcast.evaluation.report_page.limits import caveat, verdict
from kernelcast.evaluation.report_page.page import render_report
from kernelcast.evaluation.results import Results
from kernelcast.evaluation.tuning_curves import Tunings
from kernelcast.machine import Host
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, measurement_table
from kernelcast.trials import trials_table
from tests.unit.evaluation.browser import opened

ALARM = "</script><script>alert('x')</script> <img src=x onerror=alert(1)> & co."


@pytest.fixture
def measurements() -> Measurements:
    def row(workload: str, key: str, outcome: str, seconds: list[float], message: str = "") -> dict:
        return {
            "workload_key": workload,
            "workload_name": workload,
            "workload_kind": "matmul",
            "program_key": key,
            "trace": "[]",
            "target": '{"kind": "llvm", "num-cores": 2}',
            "device": "local" if seconds else "",
            "outcome": outcome,
            "message": message,
            "build_seconds": 0.2,
            "run_seconds": seconds,
            "round_index": list(range(len(seconds))),
            "reference_seconds": [1e-3 * (1 + number) for number in range(len(seconds))],
            "ended_at": [1_700_000_000.0 + 60 * number for number in range(len(seconds))],
        }

    rows = [
        row("matmul", "a", "measured", [2e-6, 1e-6, 5e-7]) | {"visit": [0, 0, 1], "checked": True},
        row("matmul", "b", "measured", [5e-6, 4e-6]) | {"origin": "evolved", "cut_short": True, "spread": 0.7},
        row("matmul", "c", "crash", [], ALARM) | {"device": "local"},
        row("softmax", "d", "run_timeout", [], "no answer within 10 s"),
        row("softmax", "e", "run_timeout", [], "another message"),
    ]
    host = Host("AMD EPYC", 2, 1 << 34, "Linux", 1e11, 1e10, 8, 1 << 20)
    campaign = Campaign(
        MEASUREMENTS_VERSION, {"kind": "llvm", "num-cores": 2}, host, {"apache-tvm": "0.27.0"}, {"rounds": 2}, 0
    )
    return Measurements(campaign, {}, measurement_table(rows))


@pytest.fixture
def predictions() -> pa.Table:
    rows = [
        {
            "split": split,
            "model": model,
            "seed": seed,
            "program_key": key,
            "workload": "matmul",
            "log_seconds": -12.0 + number,
            "prediction": -11.0 - number,
        }
        for split, models in (("random", ("gcn", "xgboost", "random")),)
        for model in models
        for seed in ((0, 1) if model == "gcn" else (0,))
        for number, key in enumerate(("a", "b"))
    ]
    return pa.Table.from_pylist(rows, schema=PREDICTION_SCHEMA)


CURVES = {
    ("random", folder): {"train/loss": [(0, 1.0), (1, 0.5)], "valid/kendall_tau": [(0, 0.1), (1, 0.4)]}
    for folder in ("gcn@0", "gcn@1")
}


class Page(HTMLParser):
    """What a browser would load, and the structure that assistive technology goes by."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.named: list[str] = []
        self.text: list[str] = []
        self._inside: list[str] = []
        # a place where a name may go on in the next line
        self.feed(html.replace("<wbr>", ""))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.tags.append(tag)
        self._inside.append(tag)
        if tag != "a":
            self.loads += [value for name in ("src", "href", "srcset", "data") if (value := values.get(name))]
        if values.get("role") in ("img", "region"):
            self.named.append(values.get("aria-label") or "")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.text.append(data)


@pytest.fixture
def html(measurements: Measurements, results: Results, predictions: pa.Table) -> str:
    return render_report(measurements, results, predictions, CURVES)


def test_tunings_are_a_section_where_there_are_some(
    html: str, measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    assert "No tuning has finished" in " ".join(Page(html).text)
    trials = trials_table(
        [
            {
                "method": method,
                "seed": seed,
                "network": "",
                "workload_key": "w",
                "workload_name": "matmul",
                "weight": 1,
                "trial": trial,
                "round": trial,
                "program_key": str(trial),
                "outcome": "measured",
                "score": None,
                "run_seconds": 1.0 / (1 + trial),
                "search_seconds": 1.0,
                "model_seconds": 0.5,
                "measure_seconds": 2.0,
                "elapsed_seconds": 3.0 * (1 + trial),
            }
            for method in ("tvm_xgb", "ensemble-online")
            for seed in (0, 1)
            for trial in range(4)
        ]
    )
    page = Page(render_report(measurements, results, predictions, CURVES, Tunings.of(trials)))
    assert page.loads == []
    text = " ".join(page.text)
    assert "ensemble-online" in text
    assert "the best of tvm_xgb at the end of its 4" in text
    assert any("best time that any tuning found" in name for name in page.named)


def test_the_page_loads_nothing(html: str) -> None:
    assert Page(html).loads == []
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in html


def test_every_model_split_outcome_and_caveat_is_named(html: str) -> None:
    text = " ".join(" ".join(Page(html).text).split())
    for expected in (
        "gcn",
        "xgboost",
        "random",
        "measured again",
        "0.500 [0.300, 0.600]",
        "run timeout",
        "no answer within 10 s",
        "AMD EPYC",
        "apache-tvm 0.27.0",
        "num-cores 2",
        "differs by a factor of 1.020 [1.010, 1.030] at the median",
        "measured again is the noise ceiling: a later measurement of the same programs",
        "kind llvm, num-cores 2 (5 tries)",
        "4 random, 1 evolved",
        "with those of the unscheduled module: 1 of 2 (50%) measured programs",
        "Programs whose repeats spread more than the limit of 0.5: 1",
        "40% of the 5 repeats were timed while the reference kernel was within 5% of its best time",
        "better than chance by more than the interval: gcn; not shown to be: xgboost",
        "model.json does not exist",
        "Random split: gcn minus every other model",
        "Trust gcn: on workloads never seen in training it ranks best, Kendall's tau 0.500 [0.300, 0.600]",
        "How sure: on 12 test programs of 2 workloads, with 95% intervals; there is no other model to compare it with.",
        "What limits it: not the noise, of whose ceiling (measured again) it reaches",
        "Drift: the median of the reference kernel went from",
        "Run `dvc repro graphs`",
        "Without predictions, so without points: gcn (workload split)",
        "Shown to be better than xgboost. Not shown to be better than random",
        "0.400 [0.100, 0.600]",
        "workloads counted as networks run them",
        "mean of resnet18",
        "Tile-size APE",
    ):
        assert expected in text, expected


def test_what_a_program_printed_cannot_run_in_the_page(html: str) -> None:
    assert ALARM not in html
    assert ALARM in " ".join(Page(html).text)


def test_headings_captions_labels_and_the_width_of_phones(html: str) -> None:
    page = Page(html)
    assert page.tags.count("h1") == 1
    # a caption for each table, and a label for each field; the scripts make more of both
    assert page.tags.count("table") == page.tags.count("caption") >= 11
    assert page.tags.count("select") == page.tags.count("label") == 2
    assert page.named
    assert all(page.named)
    assert 'name="viewport" content="width=device-width' in html
    assert '<html lang="en">' in html


def test_a_run_without_noise_curves_or_missing_models_renders_too(
    measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    plain = dataclasses.replace(results, noise=None, missing=())
    text = " ".join(Page(render_report(measurements, plain, predictions, {})).text)
    assert "None of the evaluated models kept a learning curve" in text
    assert "No noise ceiling: no program was measured twice" in text
    assert "No model can be told to be better" not in text
    assert "Not evaluated" not in text


def test_times_of_an_unknown_machine_render_and_say_so(
    measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    rows = [{**row, "ended_at": [float("nan")] * len(row["ended_at"])} for row in measurements.table.to_pylist()]
    imported = dataclasses.replace(
        measurements,
        campaign=dataclasses.replace(measurements.campaign, host=None),
        table=pa.Table.from_pylist(rows, schema=measurements.table.schema),
    )
    text = " ".join(Page(render_report(imported, results, predictions, CURVES)).text)
    assert "measured on an unknown machine." in text
    assert "unknown: the times were imported" in text
    assert "GiB of memory" not in text


def test_the_same_input_gives_the_same_page(
    measurements: Measurements, results: Results, predictions: pa.Table, html: str
) -> None:
    assert render_report(measurements, results, predictions, CURVES) == html


def test_outcomes_are_counted_with_an_example_each(measurements: Measurements) -> None:
    counts = [(count.outcome, count.tries, count.example) for count in outcome_counts(measurements)]
    assert counts == [("measured", 2, ""), ("run_timeout", 2, "no answer within 10 s"), ("crash", 1, ALARM)]
    assert sum(count.share for count in outcome_counts(measurements)) == pytest.approx(1.0)


def test_workloads_show_the_fastest_program_and_the_spread(measurements: Measurements) -> None:
    matmul, softmax = workload_counts(measurements)
    assert (matmul.tries, matmul.measured) == (3, 2)
    assert matmul.fastest_microseconds == pytest.approx(1.0)
    assert matmul.slowest_ratio == pytest.approx(4.0)
    assert (softmax.measured, softmax.fastest_microseconds, softmax.slowest_ratio) == (0, None, None)


def test_failures_are_counted_by_workload_and_outcome_with_an_example_each(measurements: Measurements) -> None:
    found = [(count.workload, count.outcome, count.tries, count.example) for count in failure_counts(measurements)]
    assert found == [("matmul", "crash", 1, ALARM), ("softmax", "run_timeout", 2, "no answer within 10 s")]


def test_rows_are_counted_by_origin_device_and_target(measurements: Measurements) -> None:
    assert origin_counts(measurements) == {"random": 4, "evolved": 1}
    assert device_counts(measurements) == {"local": 3}
    assert target_counts(measurements) == {"kind llvm, num-cores 2": 5}


def test_the_care_taken_is_that_of_the_measured_programs(measurements: Measurements) -> None:
    care = care_taken(measurements)
    assert (str(care.checked), str(care.cut_short)) == ("1 of 2 (50%)", "1 of 2 (50%)")
    assert (care.measured_again.count, care.measured_again.of) == (1, 2)


def test_spreads_are_recorded_or_those_of_the_first_visit_and_flagged_above_the_limit(
    measurements: Measurements,
) -> None:
    spread = spread_summary(measurements, 0.5)
    # of 2 and 1 microseconds: a quarter of the way from both ends, over the middle
    np.testing.assert_allclose(spread.spread, [0.5 / 1.5, 0.7])
    assert spread.flagged == 1
    (widest,) = spread.widest
    assert (widest.workload, widest.program_key, widest.repeats) == ("matmul", "b", 2)
    assert widest.fastest_microseconds == pytest.approx(4.0)
    assert spread_summary(measurements, None).flagged == 0


def test_the_time_span_is_that_of_known_times(measurements: Measurements) -> None:
    assert time_span(measurements) == "2023-11-14 22:13 to 2023-11-14 22:15 UTC"


def test_a_campaign_of_failures_alone_renders_too(
    measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    rows = np.asarray([outcome != "measured" for outcome in measurements.table["outcome"].to_pylist()])
    failed = dataclasses.replace(measurements, table=measurements.table.filter(rows))
    assert spread_summary(failed, 0.5) is None
    assert [str(share) for share in vars(care_taken(failed)).values()] == ["none"] * 3
    assert time_span(failed) == ""
    text = " ".join(Page(render_report(failed, results, predictions, {})).text)
    assert "run timeout" in text
    assert "The state of the machine" not in text


def test_no_split_or_no_model_renders_too_and_says_what_is_missing(
    measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    nothing = dataclasses.replace(results, splits=(), missing=(), noise=None)
    text = " ".join(Page(render_report(measurements, nothing, predictions.slice(0, 0), {})).text)
    for expected in (
        "No model ranks any programs yet: nothing to trust.",
        "No split was evaluated: run",
        "No model has predictions of these programs.",
        "No tuning has finished",
    ):
        assert expected in text, expected
    alone = dataclasses.replace(
        results.splits[0], models=tuple(m for m in results.splits[0].models if m.model == "gcn"), comparisons=()
    )
    one = dataclasses.replace(results, splits=(alone,), missing=(), noise=None)
    text = " ".join(" ".join(Page(render_report(measurements, one, predictions, {})).text).split())
    assert "Trust gcn: on workloads seen in training" in text
    assert "nothing was measured twice, so nobody knows how good a model could be" in text


@pytest.mark.browser
@pytest.mark.parametrize("case", ["whole", "alarming names", "failures alone", "nothing evaluated", "unknown machine"])
def test_in_a_browser_every_odd_page_draws_without_an_error_and_runs_nothing_of_a_name(
    measurements: Measurements, results: Results, predictions: pa.Table, tmp_path: Path, case: str
) -> None:
    table, curves = measurements.table, CURVES
    if case == "alarming names":
        place = table.schema.get_field_index("workload_name")
        names = [f"{ALARM} {name}" for name in table["workload_name"].to_pylist()]
        table = table.set_column(place, table.schema.field(place), pa.array(names))
        place = table.schema.get_field_index("workload_kind")
        table = table.set_column(place, table.schema.field(place), pa.array([ALARM] * len(table)))
    if case == "failures alone":
        table = table.filter(pa.array([outcome != "measured" for outcome in table["outcome"].to_pylist()]))
    if case == "nothing evaluated":
        results, predictions, curves = dataclasses.replace(results, splits=(), noise=None), predictions.slice(0, 0), {}
    campaign = measurements.campaign
    if case == "unknown machine":
        campaign = dataclasses.replace(campaign, host=None)
    path = tmp_path / "index.html"
    whole = dataclasses.replace(measurements, table=table, campaign=campaign)
    path.write_text(render_report(whole, results, predictions, curves), encoding="utf-8")
    with opened(path, 390, 844) as page:
        alarms: list[str] = []
        page.on("dialog", lambda dialog: alarms.append(dialog.message) or dialog.dismiss())
        for section in page.locator("main > section").all():
            section.scroll_into_view_if_needed()
        if case == "alarming names":
            page.locator("#explorer-plot .canvas").press("Home")
            assert ALARM in page.locator("#explorer-plot .tip strong").inner_text()
            page.keyboard.press("Enter")
            page.locator("#explorer-table summary").click()
            page.locator("#explorer-controls").get_by_label("Colour and shape").select_option("workload")
            assert page.locator("main img").count() == 0
        assert alarms == []


def test_a_campaign_without_failures_says_so(
    measurements: Measurements, results: Results, predictions: pa.Table
) -> None:
    whole = dataclasses.replace(measurements, table=measurements.measured)
    assert failure_counts(whole) == []
    assert "No try failed." in " ".join(Page(render_report(whole, results, predictions, {})).text)


def test_ten_thousand_rows_are_counted_as_a_loop_would(measurements: Measurements) -> None:
    random = np.random.default_rng(0)
    template = measurements.table.to_pylist()
    rows = [template[number] | {"program_key": str(key)} for key, number in enumerate(random.integers(5, size=10_000))]
    many = dataclasses.replace(measurements, table=measurement_table(rows))
    assert sum(count.tries for count in outcome_counts(many)) == 10_000
    for count in failure_counts(many):
        kind = [row for row in rows if (row["workload_name"], row["outcome"]) == (count.workload, count.outcome)]
        assert count.tries == len(kind)
        assert count.example == kind[0]["message"]
    for count in workload_counts(many):
        kind = [row for row in rows if row["workload_name"] == count.name]
        assert (count.tries, count.measured) == (len(kind), sum(row["outcome"] == "measured" for row in kind))


def test_verdict_and_caveat_say_what_the_numbers_allow(results: Results) -> None:
    random, workload = results.splits
    assert verdict(random).endswith("gcn; not shown to be: xgboost.")
    assert "typically 6 a workload" in caveat(random)
    # 15 pairs: one swapped pair moves tau by 2 / 15
    assert "0.133" in caveat(random)
    assert "larger than the interval" in caveat(workload)


def test_learning_curves_are_read_by_split_and_model(tmp_path: Path) -> None:
    (tmp_path / "learning.csv").write_text("split,model,metric,step,value\nrandom,gcn,train/loss,0,1.0\n")
    assert read_curves(tmp_path) == {("random", "gcn"): {"train/loss": [(0, 1.0)]}}
    (tmp_path / "learning.csv").write_text("split,model\nrandom,gcn\n")
    with pytest.raises(MalformedDataError, match=r"learning\.csv"):
        read_curves(tmp_path)
    with pytest.raises(MissingInputError, match="dvc repro evaluate"):
        read_curves(tmp_path / "absent")


def test_figures_of_the_page_are_strict_json(html: str) -> None:
    import json

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    found = re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', html, re.DOTALL)
    figures = {name: json.loads(text, parse_constant=refuse) for name, text in found}
    assert {name: len(options) for name, options in figures.items()} == {
        "leaderboard": 1,
        "learning": 1,
        "state": 1,
        "speeds": 1,
        "spread": 1,
    }
