"""What an evaluation found: facts, figures in tables, notes; as text, JSON, CSV, and as a report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_pictures import ShownPair
from pamcli.evaluation.tables import Table, csv_table, latex_table, markdown_table, text_table
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import one_line

Fact = tuple[str, str]
"""Name and value."""

WORST = 5
"""Pairs that a report shows."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. Every text may hold any character."""

    title: str
    facts: tuple[Fact, ...]
    """Names and values: network, sha256 of the weights, device, precision, data, date, and so on."""
    summary: Table
    """A row for each data set, part of the picture or method, and way of averaging: all figures."""
    images: Table
    """A row for each pair."""
    notes: tuple[str, ...] = ()
    """What a reader must know: parts of the data that were missing, options that change the figures."""
    key_figures: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
    """The few figures to see first of each data set, name and value as people read them."""
    headline: tuple[Table, ...] = ()
    """What a terminal shows of the summary; empty: all of it."""
    sections: tuple[Table, ...] = ()
    """What was asked for: figures by named protocols, methods side by side. A terminal shows these alone."""
    studies: tuple[Table, ...] = ()
    published: Mapping[str, Table] = field(default_factory=dict)
    """Rows from papers and benchmarks' pages by data set, below one of this evaluation."""
    charts: tuple[Histogram | CurveChart, ...] = ()
    worst_pairs: tuple[ShownPair, ...] = ()
    """The worst pairs, worst first."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What stands in JSON beside facts and notes."""

    def json(self) -> dict[str, Any]:
        """Make an object for `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """Write the figures of every picture as CSV."""
        return csv_table(self.images)

    def text(self, width: int | None = 80) -> str:
        """Set tables of columns that fit into `width` characters, the most telling ones."""
        asked = self.sections or self.headline or (self.summary,)
        tables = [*asked, *self.studies, *self.published.values()]
        return "\n\n".join(text_table(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Write the tables that a terminal shows in Markdown, with the notes."""
        parts = [
            (one_line(f"## {one.title}"), one_line(one.note), markdown_table(one)) for one in self._titled()
        ]
        notes = "\n".join(f"- {one_line(note)}" for note in self.notes)
        return "\n\n".join(filter(None, (text for part in (*parts, (notes,)) for text in part))) + "\n"

    def latex(self) -> str:
        """Write the tables that a terminal shows as LaTeX tabulars, with the rules of booktabs."""
        heads = [one_line(f"% {one.title}. {one.note}".rstrip()) for one in self._titled()]
        parts = map("\n".join, zip(heads, map(latex_table, self._titled()), strict=True))
        return "\n\n".join((r"% \usepackage{booktabs}", *parts)) + "\n"

    def table_csv(self) -> str:
        """Write the first of the tables that a terminal shows as CSV, with all their digits."""
        return csv_table(self._titled()[0])

    def write(
        self, *, per_image: Path | None = None, report: Path | None = None, tables: Iterable[Path] = ()
    ) -> None:
        """Write files, each whole: a CSV of every picture, an HTML report, tables. Raises OutputError.

        tables: what a terminal shows, in the forms that the suffixes say: .tex, .md, .csv.
        """
        forms = {".tex": self.latex, ".md": self.markdown, ".csv": self.table_csv}
        texts = [*([] if per_image is None else [(per_image, self.csv)])]
        texts += [(path, forms[path.suffix.lower()]) for path in tables]
        for path, text in texts:
            write_atomically(path, text().encode("utf-8", "surrogateescape"))
        if report is not None:
            write_atomically(report, self.report())

    def _titled(self) -> tuple[Table, ...]:
        return self.sections or (replace(self.summary, title=self.title),)

    def report(self) -> bytes:
        """Render an HTML file in UTF-8, without anything outside it."""
        from pamcli.evaluation.report import render_report

        return render_report(self)
