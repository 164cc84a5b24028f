"""The page of configuration keys: nothing of conf/ or the schemas is missing, and it is that of the files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kernelcast.stages.conf_files import ConfFile
from kernelcast.stages.config import SCHEMAS
from kernelcast.stages.documentation import configuration_page, key_types

ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
PAGE = ROOT / "docs/reference/configuration.md"
FILES = sorted(CONF.rglob("*.yaml"))


def leaves(node: object, above: str = "") -> Iterator[str]:
    """Every key of a file by its path, in the way of PyYAML: mappings are gone into, in whatever style."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from leaves(value, f"{above}.{name}" if above else str(name))
    else:
        yield above


def test_the_page_is_that_of_the_files() -> None:
    assert PAGE.read_text() == configuration_page(CONF), "run `python -m kernelcast.stages.documentation`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_no_key_of_a_file_is_missing(path: Path) -> None:
    file = ConfFile.read(path)
    assert file.about, "the file opens with a comment"
    shown = {key.path: key for key in file.keys}
    wanted = {
        leaf
        for leaf in leaves(yaml.safe_load(path.read_text()) or {})
        if not re.search(r"(^|\.)(defaults|_target_|_partial_|_convert_)$", leaf)
    }
    for leaf in wanted:
        # a mapping in one line stands as its value
        holder = next((key for key in shown if leaf == key or leaf.startswith(f"{key}.")), None)
        assert holder is not None, leaf
        assert yaml.safe_load(shown[holder].value or "null") == value_at(path, holder) or not shown[holder].value


def value_at(path: Path, key: str) -> object:
    """The value of a key whose parts may have dots of their own, as the keys of a search space have."""
    node, rest = yaml.safe_load(path.read_text()), key
    while rest:
        name = max((name for name in node if rest == str(name) or rest.startswith(f"{name}.")), key=len)
        node, rest = node[name], rest[len(str(name)) + 1 :]
    return node


@pytest.mark.parametrize("root", SCHEMAS)
def test_every_key_of_a_schema_is_on_the_page_with_a_meaning(root: str) -> None:
    page = PAGE.read_text()
    groups = {choice.package.split(".")[0] for choice in ConfFile.read(CONF / f"{root}.yaml").defaults}
    for key, _ in key_types(SCHEMAS[root]):
        if key.split(".")[0] in groups and "." not in key:
            continue  # a group as a whole: its files have the keys
        if key == "paths.root":
            continue  # in no file: the checkout
        row = re.search(rf"^\| `{re.escape(key)}(\.[^`]+)?` \|.*$", page, re.MULTILINE)
        assert row, f"{key} of {root}"
        assert len(row[0].split(" | ")[-1].strip(" |")) > 3, f"{key} of {root} has no meaning"


def test_rows_of_the_page_have_as_many_cells_as_their_heading() -> None:
    cells = 0
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        found = line.replace("\\|", "").count("|")
        assert found == cells or not cells, line
        cells = found
