"""A page of ours in Chromium, without a network: what goes wrong in it fails the test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

ARGUMENTS = ("--no-sandbox", "--disable-quic", "--disable-background-networking")
WEBGL = "--enable-unsafe-swiftshader"
"""WebGL where there is no GPU."""

NO_WEBGL = "--disable-3d-apis"


@contextmanager
def opened(path: Path, width: int = 1280, height: int = 900, graphics: str = WEBGL, **context: Any) -> Iterator["Page"]:
    """The page at `path` once its programs are drawn; it may ask for nothing and report no error."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    requests: list[str] = []
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*ARGUMENTS, graphics])
        page = browser.new_context(viewport={"width": width, "height": height}, offline=True, **context).new_page()
        # blob: what the page makes itself
        page.on("request", lambda request: request.url.startswith("blob:") or requests.append(request.url))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert requests == [path.as_uri()]
    assert problems == []
