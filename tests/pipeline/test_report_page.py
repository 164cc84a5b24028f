"""The report of really measured programs, clicked through in a browser as a reader does."""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from kernelcast.evaluation.predictions import read_predictions
from kernelcast.evaluation.report_page.charts import read_curves
from kernelcast.evaluation.report_page.explored import Store
from kernelcast.evaluation.report_page.page import render_report
from kernelcast.evaluation.results import read_results
from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.models.protocol import PredictionKind
from kernelcast.records import read_measurements
from tests.pipeline.conftest import Project
from tests.unit.evaluation.browser import NO_WEBGL, WEBGL, opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}


@pytest.fixture
def report(project: Project) -> Path:
    return project.root / "data/report/index.html"


def shown_count(page: "Page") -> tuple[int, int]:
    """Programs drawn by the explorer, and all of them."""
    text = page.locator("#explorer-plot [role=status]").inner_text()
    match = re.match(r"([\d,]+) of ([\d,]+) programs", text)
    assert match, text
    return int(match[1].replace(",", "")), int(match[2].replace(",", ""))


def point_of(page: "Page", number: int = 0) -> tuple[float, float]:
    """Where a point of the explorer is on the screen."""
    page.locator("#explorer-plot .plot").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """number => {
            const plot = document.querySelector("#explorer-plot .plot");
            const {xaxis, yaxis} = plot._fullLayout;
            const box = plot.getBoundingClientRect();
            const trace = plot.data[0];
            const across = xaxis._offset + xaxis.d2p(trace.x[number]);
            return [box.left + across, box.top + yaxis._offset + yaxis.d2p(trace.y[number])];
        }""",
        number,
    )
    return x, y


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_section_draws_in_both_schemes_and_fits_the_screen(report: Path, size: dict, scheme: str) -> None:
    with opened(report, **size, color_scheme=scheme) as page:
        sections = page.locator("main > section")
        assert sections.count() == 10
        for section in sections.all():
            section.scroll_into_view_if_needed()
        for name in ("leaderboard", "learning", "state", "speeds", "spread"):
            page.locator(f"#plot-{name}").scroll_into_view_if_needed()
            page.wait_for_selector(f"#plot-{name} .main-svg", state="attached")
        assert page.locator("#parity .main-svg").count()
        assert page.locator("#explorer-plot .main-svg").count()
        assert page.locator("#workload-table tbody tr").count() >= 2
        # every entry of the contents leads to a section, also where they are a strip that scrolls
        for link in page.locator("nav a").all():
            assert page.locator(link.get_attribute("href") or "").count() == 1
        light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light == (scheme == "light")


def test_axes_scales_colours_and_filters_of_the_explorer_can_be_chosen(report: Path) -> None:
    with opened(report) as page:
        drawn, total = shown_count(page)
        assert 0 < drawn <= total
        for column in ("flops", "moved_past_32kib_bytes", "vector_share", "first_inner1_extent", "slowdown", "spread"):
            page.get_by_label("Across (x)").select_option(column)
            label = page.get_by_label("Across (x)").evaluate("select => select.selectedOptions[0].text")
            title = page.locator("#explorer-plot .xtitle")
            assert label in (title.text_content() or "")
        page.get_by_label("Across (x)").select_option("time")
        logarithmic = page.locator("#explorer-controls").get_by_label("logarithmic").first
        assert logarithmic.is_checked()
        scale = "document.querySelector('#explorer-plot .plot')._fullLayout.xaxis.type"
        assert page.evaluate(scale) == "log"
        logarithmic.uncheck()
        assert page.evaluate(scale) == "linear"
        page.locator("#explorer-controls").get_by_label("Colour and shape").select_option("origin")
        assert "random" in (page.locator("#explorer-plot .legend").text_content() or "")
        page.locator("#explorer-controls").get_by_label("Colour and shape").select_option("vector_share")
        assert page.locator("#explorer-plot .colorbar").count() == 1

        workload = page.locator("#explorer-controls").get_by_label("Workload")
        one = workload.locator("optgroup[label=Workloads] option").first.get_attribute("value")
        workload.select_option(one)
        few, _ = shown_count(page)
        assert 0 < few < total
        workload.select_option("all")
        parts = {}
        for part in ("train", "valid", "test"):
            page.get_by_label("Part of the split").select_option(part)
            parts[part] = shown_count(page)[0]
        assert sum(parts.values()) <= total
        assert parts["train"] > parts["test"] > 0


def test_ticks_of_times_name_their_units_at_every_zoom(report: Path) -> None:
    with opened(report) as page:
        page.get_by_label("Across (x)").select_option("time")
        page.locator("#explorer-plot .xtitle", has_text="Measured time").wait_for(state="attached")
        ticks = page.locator("#explorer-plot .xtick text")
        low, high = page.evaluate("document.querySelector('#explorer-plot .plot')._fullLayout.xaxis.range")
        middle = (low + high) / 2
        for decades in (6.0, 1.5, 0.3, 0.02):
            page.evaluate(
                "range => Plotly.relayout(document.querySelector('#explorer-plot .plot'), {'xaxis.range': range})",
                [middle - decades / 2, middle + decades / 2],
            )
            texts = ticks.all_text_contents()
            assert len(texts) >= 2
            assert all(re.fullmatch(r"[\d.]+ [nµm]?s", text) for text in texts), texts
        for logarithmic in (False, True):
            page.locator("#explorer-controls").get_by_label("logarithmic").first.set_checked(logarithmic)
            assert ticks.first.text_content().endswith("s")


def test_a_program_that_is_pointed_at_says_its_schedule_and_a_click_keeps_it(report: Path) -> None:
    with opened(report) as page:
        page.get_by_label("Across (x)").select_option("time")
        page.mouse.move(*point_of(page))
        tip = page.locator("#explorer-plot .tip")
        tip.wait_for(state="visible")
        words = tip.locator(".words").inner_text()
        assert re.search("unroll|vectorised|parallel", words), words
        page.mouse.click(*point_of(page))
        card = page.locator("#pinned article").first
        card.wait_for()
        key = card.get_attribute("data-key")
        assert key in tip.inner_text()
        assert card.locator("code").inner_text() == f"python scripts/look.py program={key}"
        card.get_by_role("button", name=f"Remove {key}").click()
        assert page.locator("#pinned article").count() == 0


def test_points_are_stepped_through_and_kept_by_keys_alone(report: Path) -> None:
    with opened(report) as page:
        page.get_by_label("Across (x)").select_option("time")
        canvas = page.locator("#explorer-plot .canvas")
        # by tabbing from the last control before it
        page.get_by_label("Part of the split").focus()
        page.keyboard.press("Tab")
        assert canvas.evaluate("canvas => canvas === document.activeElement")
        assert canvas.evaluate("canvas => getComputedStyle(canvas).outlineStyle") == "solid"
        said = page.locator("#explorer-plot .sr")
        drawn, _ = shown_count(page)
        page.keyboard.press("ArrowRight")
        assert said.inner_text().endswith(f"1 of {drawn}.")
        page.keyboard.press("ArrowRight")
        assert said.inner_text().endswith(f"2 of {drawn}.")
        page.keyboard.press("End")
        assert said.inner_text().endswith(f"{drawn} of {drawn}.")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        assert page.locator("#explorer-plot .here").is_visible()
        page.keyboard.press("Enter")
        assert page.locator("#pinned article").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#explorer-plot .tip").is_hidden()


def test_views_tables_and_the_worst_programs_lead_to_single_programs(report: Path, tmp_path: Path) -> None:
    with opened(report, reduced_motion="reduce") as page:
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        for view in page.locator("#explorer-presets button").all():
            view.press("Enter")
            assert view.get_attribute("aria-pressed") == "true"
        drawn, _ = shown_count(page)
        page.locator("#explorer-table summary").click()
        assert page.locator("#explorer-table tbody tr").count() == min(drawn, 100)
        with page.expect_download() as download:
            page.get_by_role("button", name="Save all as CSV").click()
        download.value.save_as(tmp_path / "programs.csv")
        lines = (tmp_path / "programs.csv").read_text().splitlines()
        assert len(lines) == drawn + 1
        assert lines[0].startswith("workload,program_key,")
        schedule = page.locator("[data-wrong='0'] tr.words div")
        assert re.search("unroll|vectorised|parallel", schedule.first.inner_text())
        worst = page.locator("[data-wrong='0'] button.key").last
        key = worst.inner_text()
        worst.click()
        assert page.locator("#pinned article").first.get_attribute("data-key") == key
        page.locator("#wrong-choice").select_option("1")
        assert page.locator("[data-wrong='1']").is_visible()
        assert page.locator("[data-wrong='0']").is_hidden()


def test_a_model_of_order_has_a_plot_of_places_and_one_of_time_a_parity_plot(report: Path) -> None:
    with opened(report) as page:
        model = page.locator("#parity-controls").get_by_label("Model")
        scales = {}
        for option in model.locator("option").all():
            model.select_option(option.get_attribute("value"))
            name = option.inner_text().split(" (")[0]
            scales[name] = page.evaluate(
                "(({xaxis, yaxis}) => [xaxis.type, yaxis.type])(document.querySelector('#parity .plot')._fullLayout)"
            )
            # the line on which a prediction is perfect
            assert page.locator("#parity .scatterlayer .js-line").count() == 1
        kinds = {model.model: model.kind for model in read_results(report.parents[1] / "evaluation").splits[0].models}
        assert scales
        for name, scale in scales.items():
            assert scale == (["log", "log"] if kinds[name] == PredictionKind.LOG_SECONDS else ["linear", "linear"])
        metric = page.locator("#workload-table thead button").nth(1)
        metric.click()
        assert page.locator("#workload-table thead th").nth(1).get_attribute("aria-sort") in ("ascending", "descending")


@pytest.mark.slow
@pytest.mark.parametrize("graphics", [WEBGL, NO_WEBGL], ids=["webgl", "no_webgl"])
def test_twenty_thousand_programs_stay_usable_in_a_page_of_some_megabytes(
    project: Project, tmp_path: Path, graphics: str
) -> None:
    data = project.root / "data"
    path = tmp_path / "many.html"
    path.write_text(many(data, 20_000), encoding="utf-8")
    assert path.stat().st_size < 12e6
    with opened(path, **PHONE, graphics=graphics) as page:
        page.get_by_label("Across (x)").select_option("time")
        page.get_by_label("Up (y)").select_option("spread")
        _, total = shown_count(page)
        assert total >= 20_000
        status = page.locator("#explorer-plot [role=status]").inner_text()
        assert ("no WebGL" in status) == (graphics == NO_WEBGL)
        # what the page itself takes for a choice and for a key, on whatever runs this; bounds to be far away from
        seconds = page.evaluate(
            """() => {
                const taken = (action) => {
                    const start = performance.now();
                    action();
                    return (performance.now() - start) / 1e3;
                };
                const select = document.querySelector("#explorer-controls select");
                const change = taken(() => {
                    select.value = "slowdown";
                    select.dispatchEvent(new Event("change"));
                });
                const canvas = document.querySelector("#explorer-plot .canvas");
                const right = {key: "ArrowRight", bubbles: true};
                const step = () => canvas.dispatchEvent(new KeyboardEvent("keydown", right));
                return {change, first: taken(step), step: taken(step)};
            }"""
        )
        assert seconds["change"] < 10
        assert seconds["first"] < 5
        assert seconds["step"] < 2
        assert page.locator("#explorer-plot .here").is_visible()


def many(data: Path, least: int) -> str:
    """The report of the same programs again and again under other keys."""
    measurements, predictions = read_measurements(data / "measurements"), read_predictions(data / "evaluation")
    programs, description = read_programs(data / "graphs"), read_description(data / "graphs")
    copies = -(-least // len(programs))
    rows = np.tile(np.arange(len(programs)), copies)
    copy = np.repeat(np.arange(copies), len(programs))
    keys = [f"{number:04x}{str(key)[4:]}" for number, key in zip(copy, programs.program_key[rows], strict=True)]
    repeated = dataclasses.replace(programs.select(rows), program_key=np.array(keys, dtype=object))
    return render_report(
        dataclasses.replace(measurements, table=again(measurements.table, copies)),
        read_results(data / "evaluation"),
        again(predictions, copies),
        read_curves(data / "evaluation"),
        None,
        Store(repeated, description),
    )


def again(table: pa.Table, copies: int) -> pa.Table:
    """The rows of a table `copies` times under other keys."""
    place = table.schema.get_field_index("program_key")
    made = []
    for number in range(copies):
        keys = [f"{number:04x}{key[4:]}" for key in table["program_key"].to_pylist()]
        made.append(table.set_column(place, table.schema.field(place), pa.array(keys, pa.string())))
    return pa.concat_tables(made)
