"""The pages build without a warning, need no network and miss nothing; what a forge looks for is there and valid."""

import datetime
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, name_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as `scripts/docs` builds them; a broken link or anchor fails here."""
    folder = tmp_path_factory.mktemp("site")
    line = next(line for line in (ROOT / "scripts/docs").read_text().splitlines() if "-m sphinx" in line)
    options = line.split("-m sphinx ")[1].removesuffix(" docs build/docs").split()
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_pages_build_without_a_warning_and_load_nothing_from_a_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {"index.html", "start.html", "troubleshooting.html"} <= {page.name for page in pages}
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text())
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", sheet.read_text()), sheet
    formulas = (site / "concepts/metrics.html").read_text()
    assert formulas.count("<math") > 10, "formulas are drawn by the browser"
    assert "$$" not in formulas


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path) -> None:
    linked = set(re.findall(r'class="reference internal" href="([^"#]+)', (site / "index.html").read_text()))
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert name in linked or name == "index.html", f"{name_of(page)} is in no list of pages"


def test_the_licence_is_the_apache_licence() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_bytes()
    # the text at apache.org/licenses/LICENSE-2.0.txt
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_citation_is_valid_and_of_this_version() -> None:
    """The rules of the Citation File Format 1.2.0 that this file touches."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= set(cited)
    assert cited["type"] in ("software", "dataset")
    assert (cited["license"], cited["version"]) == (PROJECT["license"], PROJECT["version"])
    for reference in (cited, *cited["references"]):
        assert reference["title"]
        for author in reference["authors"]:
            assert set(author) <= {"name", "family-names", "given-names"}
            assert "name" in author or "family-names" in author
    for reference in cited["references"]:
        assert reference["type"] in ("article", "conference-paper")
        assert 1990 < reference["year"] <= datetime.datetime.now(tz=datetime.UTC).year
        assert reference["url"].startswith("https://arxiv.org/abs/")


def test_the_changelog_has_this_version_first() -> None:
    versions = re.findall(r"^## \[([^\]]+)\] - (\S+)$", (ROOT / "docs/CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0][0] == PROJECT["version"]
    for _, date in versions:
        assert date == "unreleased" or datetime.date.fromisoformat(date)


def test_the_workflow_of_the_forge_calls_the_same_commands() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert {".ci/run", "scripts/docs"} <= set(commands)
    for script in re.findall(r"(?:scripts|\.ci)/\w+", "\n".join(commands)):
        assert (ROOT / script).is_file(), script


README_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 170
    for target in README_LINK.findall(text):
        if not target.startswith("http"):
            assert (ROOT / target.split("#")[0]).exists(), target


def test_the_messages_that_troubleshooting_quotes_are_those_of_the_code() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")] + [(ROOT / "scripts/setup").read_text()]
    # literals that go on in the next line, as one
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))
    headings = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [part for heading in headings for part in re.findall(r'"([^"]+)"', heading)]
    assert len(quoted) > 6
    for piece in (piece.strip() for message in quoted for piece in message.split("...")):
        assert piece.rstrip(".") in code, piece
