"""The report of `make demo-report`, as a real browser lays it out."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples import flights_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

FLIGHTS = 30_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
MEASURE = """
<script>
const box = e => e.getBoundingClientRect();
const inside = (a, b) => a.left >= b.left - 2 && a.right <= b.right + 2
  && a.top >= b.top - 2 && a.bottom <= b.bottom + 2;
const charts = [...document.querySelectorAll("svg[role=img]")].map(svg => ({
  name: svg.getAttribute("aria-label"), width: box(svg).width, height: box(svg).height,
  texts: [...svg.querySelectorAll("text")].filter(t => inside(box(t), box(svg))).length,
  lost: [...svg.querySelectorAll("text")].filter(t => !inside(box(t), box(svg))).map(t => t.textContent),
  drawn: [...svg.querySelectorAll("path")].filter(p => box(p).width > 100).length,
}));
const found = {charts, wide: document.documentElement.scrollWidth - window.innerWidth,
  title: document.querySelector("h1").textContent, rows: document.querySelectorAll("tr").length};
const note = document.createElement("pre");
note.id = "measured";
note.textContent = JSON.stringify(found);
document.body.append(note);
</script>
"""


class Tags(HTMLParser):
    """Which elements open and close, to see that all do."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href") and value[:1] != "#"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(session: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flights_report.build(session, tmp_path_factory.mktemp("demo"), FLIGHTS)


def measured(page: Path, width: int) -> Any:
    """What a browser window of so many pixels says about the page."""
    browser = os.environ.get("PYLEDGER_BROWSER") or next(filter(shutil.which, BROWSERS), None)
    if browser is None:
        pytest.skip("there is no browser: install chromium, or name one in PYLEDGER_BROWSER")
    copy = page.with_name(f"measured-{width}.html")
    copy.write_text(page.read_text().replace("</body>", f"{MEASURE}</body>"))
    profile = page.with_name(f"profile-{width}")
    window = (f"--user-data-dir={profile}", f"--window-size={width},900")
    done = subprocess.run(
        [browser, *QUIET, *window, "--dump-dom", copy.as_uri()],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def test_the_report_is_one_whole_page(report: Path) -> None:
    text = report.read_text()
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert not tags.outside
    assert f"<b>{FLIGHTS:,}</b>messages" in text
    assert "def follow(" in text


@pytest.mark.parametrize("width", [1200, 600])
def test_a_browser_shows_all_charts(report: Path, width: int) -> None:
    found = measured(report, width)
    assert found["title"] == "A year of flights, followed while it is written"
    assert [chart["name"] for chart in found["charts"]] == [
        "Throughput over time", "Lag over time", "Who departs late, and when",
    ]  # fmt: skip
    for chart in found["charts"]:
        assert chart["width"] > 300
        assert chart["height"] > 100
        assert chart["texts"] >= 6
        assert not chart["lost"]
        assert chart["drawn"] >= 2
    assert found["wide"] <= 0, "the page must not scroll sideways"
    assert found["rows"] == 1 + len(flights_report.CARRIERS)
