"""Every configuration composes, instantiates, explains itself and is known to the pipeline."""

import itertools
import re
from pathlib import Path

import hydra
import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.stages.config import SCHEMAS, register_schemas
from kernelcast.stages.measure import make_runner

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
FILES = sorted(CONF.rglob("*.yaml"))
# the groups that a root composes; `hydra` holds plug-in settings and `launch` is in every root
GROUPS = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name != "hydra")

# refused while they are null
WHAT_ONLY_A_USER_KNOWS = {"rpc": ["runner.devices.key=board"]}


def composed(root: str, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(root, overrides=list(overrides), return_hydra_config=True)


def groups_of(root: str) -> dict[str, str]:
    """The groups that a root composes and the option it takes of each."""
    choices = OmegaConf.to_container(composed(root).hydra.runtime.choices)
    return {group: option for group, option in choices.items() if group.split("@")[0] in GROUPS}


def options() -> list[tuple[str, str, str]]:
    """Every (group, option) with a root that composes it, and each root with its defaults as (root, "", "")."""
    roots: dict[tuple[str, str], str] = {}
    for root in SCHEMAS:
        for group, default in groups_of(root).items():
            for path in sorted((CONF / group.split("@")[0]).glob("*.yaml")):
                if path.stem != default:
                    roots.setdefault((group, path.stem), root)
    return [(root, "", "") for root in SCHEMAS] + [(root, *option) for option, root in roots.items()]


def test_every_group_is_composed_by_a_root() -> None:
    used = {group.split("@")[0] for root in SCHEMAS for group in groups_of(root)}
    assert used == set(GROUPS)


def test_every_root_has_a_script_and_a_schema() -> None:
    assert {path.stem for path in CONF.glob("*.yaml")} == set(SCHEMAS)
    for root in SCHEMAS:
        assert (ROOT / "scripts" / f"{root}.py").is_file()


@pytest.mark.parametrize(("root", "group", "option"), options())
def test_option_composes_and_instantiates(root: str, group: str, option: str) -> None:
    config = composed(root, *([f"{group}={option}"] if group else []), *WHAT_ONLY_A_USER_KNOWS.get(option, ()))
    OmegaConf.resolve(config)
    missing = OmegaConf.missing_keys(config)
    assert not {key for key in missing if not key.startswith("hydra.")}
    instantiate_nodes(config)


def instantiate_nodes(config: DictConfig) -> None:
    """Instantiates every `_target_` of a root the way its stage does."""
    if "runner" in config:
        runner, settings = make_runner(config.runner)
        assert callable(runner.open)
        assert settings.timing.as_dict() == OmegaConf.to_container(config.runner.timing, enum_to_str=True)
    if "loss" in config:
        loss, trainer = hydra.utils.instantiate(config.loss), hydra.utils.instantiate(config.trainer)
        model = hydra.utils.instantiate(config.model, loss=loss, trainer=trainer, seed=config.seed)
        assert callable(model.predict)
    for name, node in config.get("workload", {}).items():
        made = hydra.utils.instantiate(node, name=name)
        # an entry with several shapes makes a list, named after the entry and their sizes
        assert made
        assert all(each.name.startswith(f"{name}_") for each in made) if isinstance(made, list) else made.name == name
    if "method" in config:
        assert hydra.utils.instantiate(config.method).label
    for name, node in config.get("network", {}).items():
        assert hydra.utils.instantiate(node, name=name).network
    for group in ("features", "builder"):
        if group in config:
            hydra.utils.instantiate(config[group])
    for node in config.get("split", {}).values() if isinstance(config.get("split"), DictConfig) else ():
        assert callable(hydra.utils.instantiate(node, _partial_=True))


def test_the_runners_of_this_machine_differ_in_nothing_but_their_timing() -> None:
    default, *others = (
        OmegaConf.to_container(composed("measure", f"runner={name}").runner)
        for name in ("default", "quick", "in_a_row")
    )
    for other in others:
        assert other["timing"] != default["timing"]
        assert {**other, "timing": None} == {**default, "timing": None}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_file_is_short_and_every_key_has_a_comment(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 40
    assert any(line.startswith("#") and "@package" not in line for line in lines), "no opening comment"
    # a key is explained on its own line or by a comment line right above
    leaves = [
        (number, line)
        for number, line in enumerate(lines)
        if re.match(r"^\s*[\w./@]+:\s*\S", line) and not re.match(r"^\s*(_target_|_partial_|- )", line)
    ]
    for number, line in leaves:
        # rows and splits of an experiment: the comment above the whole list explains them
        explained = (
            "#" in line
            or lines[number - 1].lstrip().startswith("#")
            or re.search(r"_target_|: \{(model|splitter): ", line)
        )
        assert explained, f"{path.name}:{number + 1} has no comment: {line}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_file_interpolates_only_paths_and_seed(path: Path) -> None:
    allowed = r"paths\.\w+|seed"
    if path.parts[-2] in ("launch", "sweeper"):
        allowed += r"|hydra\.[\w.]+|now:[^}]+"  # Hydra's own, for its own folders
    for expression in re.findall(r"\$\{([^}]*)\}", path.read_text()):
        assert re.fullmatch(allowed, expression), expression


def pipeline_variables() -> dict[str, list]:
    """The `vars` of dvc.yaml."""
    listed = yaml.safe_load((ROOT / "dvc.yaml").read_text())["vars"]
    return {name: values for entry in listed for name, values in entry.items()}


def dvc_stages() -> dict[str, dict]:
    """The stages of dvc.yaml with their matrix written out."""
    variables = pipeline_variables()
    stages = {}
    for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items():
        axes = {axis: variables[values.strip("${}")] for axis, values in stage.get("matrix", {}).items()}
        for point in itertools.product(*axes.values()):
            text = yaml.safe_dump(stage, width=1000)
            chosen = {}
            for axis, value in zip(axes, point, strict=True):
                named = {f"{axis}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {}
                chosen |= named or {axis: value}
            for key, value in chosen.items():
                text = text.replace(f"${{item.{key}}}", value)
            stages["@".join(filter(None, [name, "-".join(chosen.values())]))] = yaml.safe_load(text)
    return stages


def with_defaults(file: str) -> set[str]:
    """A file of conf/ and the files of its own folder that its defaults take in."""
    found = {file}
    for entry in yaml.safe_load((ROOT / file).read_text()).get("defaults", []):
        if entry != "_self_":
            found |= with_defaults(f"{Path(file).parent}/{entry.split('@')[0]}.yaml")
    return found


@pytest.mark.parametrize(("name", "stage"), dvc_stages().items())
def test_stage_lists_every_file_that_it_composes(name: str, stage: dict) -> None:
    assert "${" not in str(stage["cmd"]) + str(stage["params"]) + str(stage["outs"])
    script, *overrides = stage["cmd"].split()[1:]
    root = Path(script).stem
    config = composed(root, *overrides)
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    expected = {f"conf/{root}.yaml"}.union(
        *(
            with_defaults(f"conf/{group.split('@')[0]}/{option}.yaml")
            for group, option in choices.items()
            if option is not None and (CONF / group.split("@")[0] / f"{option}.yaml").is_file()
        )
    )
    listed = {key.rstrip(":") for entry in stage["params"] for key in (entry if isinstance(entry, dict) else [entry])}
    assert listed == expected
    assert script in stage["deps"]


def test_every_model_and_loss_is_trained_by_the_pipeline_or_an_experiment() -> None:
    experiments = [yaml.safe_load(path.read_text())["runs"] for path in (CONF / "experiment").glob("*.yaml")]
    commands = [stage["cmd"].split() for stage in dvc_stages().values() if "scripts/train.py" in stage["cmd"]]
    trained = [
        *(run for runs in experiments for run in runs.values()),
        *(dict(word.split("=") for word in command if word.startswith(("model=", "loss="))) for command in commands),
    ]
    for group in ("model", "loss"):
        assert {run[group] for run in trained if group in run} == {path.stem for path in (CONF / group).glob("*.yaml")}


def test_the_pipeline_has_all_that_learn_nothing_and_draws_all_that_learn() -> None:
    variables = pipeline_variables()
    unlearned = {path.stem for path in (CONF / "model").glob("*.yaml") if not learns(path.stem)}
    # its view is left out by default, since programs have to be built for it
    assert set(variables["BASELINES"]) == unlearned - {"machine_code"}
    drawn = {
        file
        for plot in yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
        for values in plot.values()
        for file in values["y"]
        if file.endswith("history.csv")
    }
    assert drawn == {
        f"{output}/history.csv"
        for name, stage in dvc_stages().items()
        if name.startswith("train@")
        for output in stage["outs"]
    }


def learns(model: str) -> bool:
    return hydra.utils.get_class(yaml.safe_load((CONF / "model" / f"{model}.yaml").read_text())["_target_"]).learned
