from pathlib import Path

from kernelcast.graphs.documentation import features_page
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES, STATEMENT_FEATURES
from kernelcast.graphs.vocabulary import FEATURE_GROUPS, NODE_FEATURES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "features.md"


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text() == features_page(), "run `python -m kernelcast.graphs.documentation`"


def test_every_row_of_a_table_has_as_many_cells_as_its_heading() -> None:
    cells = 0
    for line in features_page().splitlines():
        if line.startswith("|"):
            found = line.replace("\\|", "").count("|")
            assert found == cells or not cells
            cells = found
        else:
            cells = 0


def test_every_feature_is_of_a_group_and_explained() -> None:
    for feature in (*NODE_FEATURES, *STATEMENT_FEATURES, *PROGRAM_FEATURES):
        assert feature.group in FEATURE_GROUPS
        assert feature.unit
        assert feature.meaning
        assert feature.source
