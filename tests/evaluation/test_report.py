"""The HTML report: what it says, and, where there is a browser, what it does."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headless_browser import browsing, seen_by_browser

from pamcli.data.source import Sample
from pamcli.evaluation.report import render_report
from pamcli.evaluation.report_charts import make_curves, make_histogram
from pamcli.evaluation.report_images import draw_disparities, draw_superres
from pamcli.evaluation.results import Column, Evaluation, Table

NASTY = "<script>document.title='no'</script> & \"quotes\" 'too' {{ x }} {% y %}"

IMAGE_COLUMNS = (
    Column("name", "Pair", text=True),
    Column("d1", "D1", unit="%", note="More than 3 px and more than 5 %."),
    Column("psnr", "PSNR", unit="dB"),
)
IMAGE_ROWS = (
    {"name": "frame10", "d1": 10.5, "psnr": math.inf},
    {"name": "frame2", "d1": 9.25, "psnr": 21.0},
    {"name": "frame1", "d1": math.nan, "psnr": 30.0},
    {"name": NASTY, "d1": 100.0, "psnr": -5.0},
    {"name": "frame9", "d1": 9.25, "psnr": 21.0},
)


def report_data() -> Evaluation:
    rng = np.random.default_rng(4)
    left = rng.integers(0, 256, (20, 30, 3), np.uint8)
    truth = rng.uniform(5, 40, (20, 30)).astype(np.float32)
    wide = rng.integers(0, 256, (20, 1000, 3), np.uint8)
    summary = Table(
        (Column("how", "Averaged", text=True), *IMAGE_COLUMNS[1:]), ({"how": "pooled", "d1": 8.0},)
    )
    return Evaluation(
        title=f"Disparity {NASTY}",
        facts=(("Network", "pasmnet"), ("Weights (sha256)", "ab" * 32), ("Date", NASTY)),
        summary=summary,
        images=Table(IMAGE_COLUMNS, IMAGE_ROWS),
        notes=("no object maps (obj_map)", NASTY),
        key_figures=((f"kitti {NASTY}", (("D1 (%)", "8.00"), ("bad-2 (%)", "9.00"))),),
        published={f"kitti2015 {NASTY}": Table(IMAGE_COLUMNS, ({"name": "SegStereo", "d1": 8.79},))},
        charts=(
            make_histogram(f"Errors {NASTY}", (0, 1, 3, math.inf), (5, 3, 2), wrong_from=3),
            make_curves(
                "Confidence",
                (0, 50, 100),
                {NASTY: (2, 1, math.nan), "oracle": (2, 0.5, 0)},
                "left out (%)",
                "error (px)",
                NASTY,
            ),
        ),
        worst_pairs=(
            draw_disparities(Sample(NASTY, left, left, truth), f"D1 {NASTY}", {"one": truth + 1}),
            draw_superres("sr", "21 dB", {"Bicubic": wide, "Result": wide}, 255 - wide),
        ),
    )


class Page(HTMLParser):
    """Elements with their attributes, and the text of each."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def text_of(self, tag: str) -> list[str]:
        return [text for owner, text in self.texts if owner == tag]


@pytest.fixture(scope="module")
def page() -> bytes:
    return render_report(report_data())


def test_the_page_lists_facts_and_definitions(page: bytes) -> None:
    text = " ".join(text for tag, text in Page(page).texts if tag not in ("style", "script"))
    expected = ("pasmnet", "ab" * 32, "no object maps (obj_map)", "Averaged", "pooled", "8.00", "D1 (%)")
    published = ("Published on kitti2015", "not measured here", "SegStereo")
    definitions = ("Definitions of the metrics", "More than 3 px and more than 5 %.")
    assert [words for words in (*expected, *published, *definitions) if words not in text] == []


def test_whatever_a_text_holds_it_stays_text(page: bytes) -> None:
    parsed = Page(page)
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    # Title, heading, fact, note, protocol, chart and its caption, name and caption of a pair, cell.
    assert sum(NASTY in text for _, text in parsed.texts) >= 10
    assert b"<script>document" not in page


def test_the_page_has_no_external_links(page: bytes) -> None:
    parsed = Page(page)
    assert {tag for tag, _ in parsed.elements}.isdisjoint({"link", "iframe", "object", "embed", "base", "a"})
    for tag, attributes in parsed.elements:
        for name in ("src", "href", "srcset", "data", "action", "xlink:href", "poster", "background"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:image/"), f"<{tag} {name}={value!r:.60}>"
        assert "url(" not in (attributes.get("style") or "")
    style = "".join(parsed.text_of("style"))
    assert "prefers-color-scheme: dark" in style
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [a["content"] for _, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert (policy or "").startswith("default-src 'none'; img-src data:;")


def test_missing_figures_are_dashes_and_numbers_carry_their_exact_value(page: bytes) -> None:
    html = page.decode()
    assert (
        '<td class="text" data-value="frame1">frame1</td><td>-</td><td data-value="30.0">30.00</td>' in html
    )
    assert '<td data-value="Infinity">inf</td>' in html


def test_published_rows_are_folded_and_error_colours_explained(page: bytes) -> None:
    html = page.decode()
    assert html.index("Worst pairs") < html.index("<details>") < html.index("SegStereo")
    assert "<details open" not in html
    assert 'class="colors"' in html
    data = report_data()
    unused = replace(data, worst_pairs=data.worst_pairs[1:], title="broken \udcff name")
    assert b'class="colors"' not in render_report(unused)
    assert b"broken ? name" in render_report(unused), "a file name that is not UTF-8"


# ----------------------------------------------------------------- in a browser

PROBE = """
const seen = {};
const table = document.querySelector("table.sortable");
const names = () => Array.from(table.tBodies[0].rows, (row) => row.cells[0].textContent);
const click = (column) => {
  const button = table.tHead.rows[0].cells[column].querySelector("button");
  button.focus();
  seen.focused = (seen.focused ?? true) && document.activeElement === button && button.tabIndex === 0;
  button.click();
  const sorts = Array.from(table.tHead.rows[0].cells, (cell) => cell.getAttribute("aria-sort"));
  return { names: names(), sorts };
};
seen.given = names();
seen.clicks = [1, 1, 0, 0, 2].map(click);
seen.align = getComputedStyle(table.tBodies[0].rows[0].cells[1]).textAlign;
seen.title = document.title;
seen.images = Array.from(document.images, (image) => [image.naturalWidth, image.naturalHeight]);
const refused = new Promise((go) => addEventListener("securitypolicyviolation", go));
new Image().src = "http://127.0.0.1:9/outside.png";
seen.refused = (await refused).blockedURI;
return seen;
"""

IN_SIGHT = """
return [...document.querySelectorAll(".key dt, .key dd")].map((each) => {
  const box = each.getBoundingClientRect();
  return [each.textContent, box.left >= 0 && box.right <= innerWidth && box.bottom <= 844];
});
"""


@pytest.fixture(scope="module")
def seen(page: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return seen_by_browser(page, PROBE, tmp_path_factory.mktemp("browser"))


def test_the_key_figures_are_seen_without_scrolling(page: bytes, tmp_path: Path) -> None:
    with browsing(page, tmp_path, phone=True) as browser:
        seen = browser.evaluate(IN_SIGHT)
    assert seen == [["D1 (%)", True], ["8.00", True], ["bad-2 (%)", True], ["9.00", True]]


def test_the_browser_shows_every_image_loads_nothing_and_runs_no_text(seen: dict[str, Any]) -> None:
    assert seen["images"] == [[30, 20]] * 4 + [[334, 7]] + [[160, 20]] * 3
    assert seen["requested"] == [seen["refused"]] == ["http://127.0.0.1:9/outside.png"]
    assert seen["title"] == f"Disparity {NASTY}"


def test_a_click_on_a_heading_sorts(seen: dict[str, Any]) -> None:
    assert seen["given"] == ["frame10", "frame2", "frame1", NASTY, "frame9"]
    up, down, by_name, by_name_down, infinite = seen["clicks"]
    # Equal ones stay in the order given; the one without a figure is last both ways.
    assert up["names"] == ["frame2", "frame9", "frame10", NASTY, "frame1"]
    assert up["sorts"] == [None, "ascending", None]
    assert down["names"] == [NASTY, "frame10", "frame2", "frame9", "frame1"]
    assert down["sorts"] == [None, "descending", None]
    assert by_name["names"] == [NASTY, "frame1", "frame2", "frame9", "frame10"]
    assert by_name["sorts"] == ["ascending", None, None]
    assert by_name_down["names"] == by_name["names"][::-1]
    assert infinite["names"] == [NASTY, "frame2", "frame9", "frame1", "frame10"]
    assert (seen["focused"], seen["align"]) == (True, "right"), "headings are reached by keyboard"
