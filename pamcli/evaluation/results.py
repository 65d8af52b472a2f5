"""Hold the results of an evaluation, and format them as text, Markdown, LaTeX, CSV and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pamcli.evaluation.report_charts import Chart
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.tables import Fact, Table, format_csv, format_latex, format_markdown, format_text
from pamcli.files.paths import escape_line

WORST = 5  # number of pairs that a report shows


@dataclass
class Evaluation:
    """The results of an evaluation. Every text may contain any character."""

    title: str
    facts: list[Fact]  # network, sha256 of the weights, device, data, date, ...
    summary: Table  # all metrics, one row per data set, region or method, and average
    images: Table  # one row per pair
    notes: list[str] = field(default_factory=list)  # missing data, options that change the metrics, ...
    key_figures: list[tuple[str, list[Fact]]] = field(default_factory=list)
    """The most important metrics of each data set."""
    headline: list[Table] = field(default_factory=list)  # excerpt of the summary for terminals
    sections: list[Table] = field(default_factory=list)  # requested tables; a terminal shows only these
    studies: list[Table] = field(default_factory=list)
    published: dict[str, Table] = field(default_factory=dict)  # published rows by data set
    charts: list[Chart] = field(default_factory=list)
    worst_pairs: list[DrawnPair] = field(default_factory=list)  # those with the largest errors, worst first
    numbers: dict[str, Any] = field(default_factory=dict)  # JSON content besides facts and notes

    def json(self) -> dict[str, Any]:
        """Return an object for `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """Return the metrics of every image as CSV."""
        return format_csv(self.images)

    def text(self, width: int | None = 80) -> str:
        """Format the tables with the columns that fit into `width` characters, most important first."""
        shown = self.sections or self.headline or [self.summary]
        tables = [*shown, *self.studies, *self.published.values()]
        return "\n\n".join(format_text(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Format the terminal tables in Markdown, with the notes."""
        parts = []
        for table in self._titled_tables:
            parts += [escape_line(f"## {table.title}"), escape_line(table.note), format_markdown(table)]
        parts.append("\n".join(f"- {escape_line(note)}" for note in self.notes))
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self) -> str:
        """Format the terminal tables as LaTeX tabulars with booktabs rules."""
        parts = [r"% \usepackage{booktabs}"]
        for table in self._titled_tables:
            title = escape_line(f"% {table.title}. {table.note}".rstrip())
            parts.append(f"{title}\n{format_latex(table)}")
        return "\n\n".join(parts) + "\n"

    def table_csv(self) -> str:
        """Format the first table as CSV with all metrics and full precision."""
        return format_csv([*self.sections, self.summary][0])

    @property
    def _titled_tables(self) -> Sequence[Table]:
        return self.sections or [replace([*self.headline, self.summary][0], title=self.title)]
