import dataclasses
import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, KernelcastError, MissingInputError
from kernelcast.evaluation.program_page.page import Shown, page_data, render_page
from kernelcast.graphs.dataset.store import (
    Description,
    StoredTarget,
    StoredWorkload,
    feature_version,
    read_description,
    read_programs,
    write_programs,
)
from kernelcast.graphs.extraction import extract
from kernelcast.graphs.machine_code.columns import COLUMN_NAMES as CODE_NAMES
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.per_store import COLUMN_NAMES
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits import RandomSplit, Rows, make_split, write_split
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, measurement_table, write_campaign, write_measurements
from kernelcast.stages.config import register_schemas
from kernelcast.stages.look import look, typed
from kernelcast.tvm_compat import resolve_target, runnable_module, scheduled_module, tvm_versions

CONF = Path(__file__).resolve().parents[3] / "conf"
OPTIONS = ViewOptions()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with measurements of real candidates and the store of all their views."""
    root = tmp_path_factory.mktemp("look")
    target = resolve_target({"kind": "llvm", "num-cores": 2})
    suite = [
        workloads.matmul("matmul", rows=64, columns=32, depth=48),
        workloads.softmax("softmax", rows=32, columns=64),
    ]
    drawn = [
        (workload, candidate) for workload in suite for candidate in sample_candidates(workload, target, 4, seed=3)
    ]
    rows: list[dict[str, Any]] = [
        {
            "workload_key": workload.key,
            "workload_name": workload.name,
            "workload_kind": workload.kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "measured",
            "run_seconds": [1e-5 * (number + 1)],
        }
        for number, (workload, candidate) in enumerate(drawn)
    ]
    folder = root / "data/measurements"
    campaign = Campaign(MEASUREMENTS_VERSION, target, None, tvm_versions(), {}, 0)
    write_campaign(folder, campaign, {workload.key: workload for workload in suite})
    write_measurements(folder, measurement_table(rows))

    modules = [runnable_module(scheduled_module(workload, candidate.trace)) for workload, candidate in drawn]
    views = extract(modules, OPTIONS, 1 << 20) | {"trace": trace_view([row["trace"] for row in rows])}
    programs = Programs.in_memory(
        views,
        log_seconds=np.log([row["run_seconds"][0] for row in rows]),
        workload=np.array([suite.index(workload) for workload, _ in drawn], dtype=np.int32),
        workload_names=tuple(workload.name for workload in suite),
        program_key=np.array([row["program_key"] for row in rows]),
        feature_version=feature_version(OPTIONS, {name: view.columns() for name, view in views.items()}),
    )
    stored = tuple(StoredWorkload(each.key, each.name, each.kind, each.arguments, {}) for each in suite)
    description = Description(stored, (StoredTarget(target, "a host", None, "0" * 16),), "minimum", OPTIONS)
    graphs = root / "data/graphs"
    graphs.mkdir(parents=True)
    data_hash = write_programs(graphs, programs, description)
    rows_to_split = Rows.of(programs, suite)
    write_split(graphs, "random", make_split(RandomSplit(0.4, 0.1, 0), rows_to_split), rows_to_split, data_hash, {})
    return root


def config_of(root: Path, **changes: Any) -> DictConfig:
    folders = {name: str(root / "data" / name) for name in ("measurements", "graphs", "look")}
    default = {
        **dict.fromkeys(("program", "workload_name", "rank", "other", "output")),
        "source": False,
        "measurements": [folders["measurements"]],
        "paths": {"root": str(root), **folders},
    }
    return OmegaConf.create(default | changes)


def keys_of(root: Path) -> list[str]:
    keys: list[str] = np.load(root / "data/graphs/program_key.npy").tolist()
    return keys


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text()
    start = text.index('id="data">') + len('id="data">')
    data: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
    return data


def test_the_fastest_program_of_the_first_workload_is_drawn_by_default(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        config = config_of(made)
        config.paths.look = str(tmp_path)
        look(config)
    page = tmp_path / f"{keys_of(made)[0]}.html"
    assert caplog.messages[-1] == f"look: {page}"
    (shown,) = data_of(page)["programs"]
    assert (shown["workload"], shown["rank"], shown["of"]) == ("matmul", 1, 4)
    assert shown["splits"]["random"] in ("train", "valid", "test")
    assert {"ast", "dataflow", "features", "statements", "trace", "kernel"} <= set(shown)
    assert [path.name for path in tmp_path.iterdir()] == [page.name]


def test_all_columns_of_a_real_store_are_explained(made: Path, tmp_path: Path) -> None:
    look(config_of(made, output=str(tmp_path / "page.html")))
    for view, columns in data_of(tmp_path / "page.html")["columns"].items():
        assert columns, view
        assert all(column["meaning"] for column in columns), view


def test_two_programs_stand_side_by_side_with_their_tensorir(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    look(config_of(made, workload_name="softmax", other="slowest", source=True, output=str(page)))
    data = data_of(page)
    assert [shown["rank"] for shown in data["programs"]] == [1, 4]
    assert {shown["workload"] for shown in data["programs"]} == {"softmax"}
    assert all("@T.prim_func" in shown["source"] for shown in data["programs"])
    assert data["no_source"] == ""
    assert set(data["comparison"]) == {"ast", "dataflow", "trace", "source"}
    # two schedules of one workload compute the same: most of the smaller tree has a counterpart
    smaller = min(len(shown["ast"]["kind"]) for shown in data["programs"])
    assert sum(node >= 0 for node in data["comparison"]["ast"]) > 0.5 * smaller


def test_a_program_of_another_workload_is_named_by_its_key(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    look(config_of(made, program=keys_of(made)[1][:14], other=keys_of(made)[6], output=str(page)))
    assert [shown["workload"] for shown in data_of(page)["programs"]] == ["matmul", "softmax"]


@pytest.mark.parametrize(
    ("measurements", "told"),
    [([], "is not among the measurements"), (["nowhere"], "nowhere/campaign.json does not exist")],
)
def test_without_measurements_the_page_says_why_it_has_no_tensorir(
    made: Path, tmp_path: Path, measurements: list[str], told: str
) -> None:
    page = tmp_path / "page.html"
    look(config_of(made, source=True, measurements=measurements, output=str(page)))
    data = data_of(page)
    assert data["programs"][0]["source"] is None
    assert told in data["no_source"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"program": "zz"}, "no program's key begins so"),
        ({"workload_name": "matmull"}, "near it are matmul"),
        ({"rank": "5"}, "from 1 to 4"),
        ({"other": "fastest"}, "the program that it would be compared with"),
        ({"other": "9"}, "from 1 to 4"),
        ({"output": " "}, "output is empty"),
        ({"output": "."}, "is no file"),
    ],
)
def test_a_wrong_wish_is_one_message(made: Path, changes: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        look(config_of(made, **changes))


def test_without_graphs_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="dvc repro graphs"):
        look(config_of(tmp_path))


def test_a_changed_store_is_not_drawn(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "data/graphs", tmp_path / "data/graphs")
    (tmp_path / "data/graphs/meta.json").write_text("{}")
    with pytest.raises(KernelcastError, match=r"meta\.json"):
        look(config_of(tmp_path))
    assert not (tmp_path / "data/look").exists()


def test_runs_at_once_leave_one_whole_page(made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, [config_of(made, output=str(page))] * 4))
    assert page.read_text().rstrip().endswith("</html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("key", ["12e45678", "0012", "1_000", "'12e4'"])
def test_a_key_that_looks_like_a_number_stays_as_it_was_typed(key: str) -> None:
    register_schemas()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("look", overrides=[f"program={key}"], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        assert typed(config, "program") == key.strip("'")
        assert typed(config, "other") is None
    finally:
        HydraConfig.instance().cfg = None


@pytest.mark.browser
@pytest.mark.parametrize("views", [("trace",), ("per_store",), ("ast",), ("machine_code",), ("dataflow", "statements")])
def test_in_a_browser_only_the_views_that_there_are_are_drawn(
    made: Path, tmp_path: Path, views: tuple[str, ...]
) -> None:
    from playwright.sync_api import sync_playwright

    whole = read_programs(made / "data/graphs")
    tvm_rows = StatementRows(COLUMN_NAMES, np.arange(9), np.ones((8, len(COLUMN_NAMES)), dtype=np.float32))
    code = FlatFeatures(CODE_NAMES, np.ones((8, len(CODE_NAMES)), dtype=np.float32))
    sources = whole.sources | {"per_store": tvm_rows, "machine_code": code}
    programs = dataclasses.replace(whole, sources={name: sources[name] for name in views})
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data(programs, read_description(made / "data/graphs"), [Shown(0), Shown(1)])))
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-quic"])
        page = browser.new_page(offline=True)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-drawn=yes]")
        drawn = {section.get_attribute("id") for section in page.locator("main > section").all()}
        browser.close()
    of_view = {
        "ast": {"tree", "kernel"},
        "dataflow": {"dataflow", "kernel"},
        "per_store": {"per-store"},
        "machine_code": {"machine-code"},
    }
    assert drawn == set().union(*(of_view.get(view, {view}) for view in views))
    assert problems == []


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_a_node_tells_all_its_features_and_nothing_is_loaded(
    made: Path, tmp_path: Path, width: int, height: int, scheme: Any
) -> None:
    from playwright.sync_api import sync_playwright

    path = tmp_path / "page.html"
    look(config_of(made, other="slowest", source=True, output=str(path)))
    data = data_of(path)
    tree = data["programs"][0]["ast"]
    names = [column["name"] for column in data["columns"]["ast"]]
    loop = next(node for node, kind in enumerate(tree["kind"]) if data["tables"]["node_kinds"][kind] == "loop_parallel")
    scaled = tree["values"][loop][names.index("extent")]
    requests: list[str] = []
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-quic"])
        page = browser.new_page(viewport={"width": width, "height": height}, offline=True, color_scheme=scheme)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-drawn=yes]")
        for view in ("tree", "dataflow", "kernel", "features", "statements", "trace", "code"):
            assert page.locator(f"section#{view}").count() == 1, view

        node = page.locator("#tree .drawing").first.locator(f"[data-node='{loop}'] rect.box")
        node.hover()
        tip = page.locator("#tip")
        tip.wait_for(state="visible")
        told = tip.inner_text()
        assert "parallel loop" in told
        assert f"{round(np.expm1(scaled)):,}" in told
        # what is zero is named too
        assert all(name.replace("_", " ") in told for name in names)

        node.click()
        row = page.locator("#tree .panel tr[data-feature=extent]")
        assert f"{round(np.expm1(scaled)):,}" in row.inner_text()
        assert f"{scaled:.6g}"[:5] in row.inner_text()
        assert page.locator("#tree .panel tr[data-feature]").count() == len(names)

        # by keyboard alone: one node down, fold it, unfold it
        shown = page.locator("#tree .drawing").first.locator("[data-node]")
        before = shown.count()
        page.keyboard.press("ArrowDown")
        focused = "document.activeElement.getAttribute('data-node')"
        assert page.evaluate(focused) == str(loop + 1)
        page.keyboard.press("Enter")
        assert shown.count() < before
        page.keyboard.press("Enter")
        assert shown.count() == before

        # extra edges appear when they are asked for
        page.get_by_label("definition to use").check()
        assert page.locator("[data-extra='definition to use']").count() > 0

        page.get_by_label("Find nodes of the tree").fill("store")
        assert page.locator("#tree .node.found").count() >= 2

        # tables sort and filter
        page.get_by_label("Flat features: filter").fill("moved")
        assert 1 < page.locator("#features tbody tr").count() < len(data["columns"]["features"])
        values = page.locator("#features tbody td:nth-child(2)")
        page.locator("#features thead button").nth(1).click()
        falling = values.all_inner_texts()
        page.locator("#features thead button").nth(1).click()
        assert values.all_inner_texts() == falling[::-1]

        # a choice has its probability, which is not scaled, and its value
        trace = data["programs"][0]["trace"]
        step = trace["primitive"].index(data["tables"]["primitives"].index("SampleCategorical"))
        column = [column["name"] for column in data["columns"]["trace"]].index("decision_2")
        told = page.locator(f"#trace tr[data-row=A-{step}]").inner_text().split("\t")
        assert f"{round(np.expm1(trace['values'][step][column])):,}" in told
        assert f"{trace['values'][step][column + 1]:g}"[:5] in told

        page.locator("#dataflow [data-node='0']").first.click()
        assert page.locator("#dataflow .panel tr[data-feature]").count() == len(data["columns"]["dataflow"])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert requests == [path.as_uri()]
    assert problems == []
