"""Metrics exactly as the benchmarks define them, their protocols, and what an evaluation says.

>>> found = evaluate(Disparity(), ["kitti2015:kitti"], [FilesMethod(Path("results"))])
>>> print(found.text()); Path("report.html").write_bytes(render_report(found))

| to find | open |
| --- | --- |
| the call, and the one loop: methods on data sets -> an `Evaluation` | `run` |
| what is measured of a sample, and in which table its figures stand | `disparity`, `superres` |
| the figures | `disparity_metrics`, `superres_metrics`; `figures`: what they share, distributions of errors |
| the rules of benchmarks and papers, a row each | `protocols` |
| holes that are filled, finer grids, errors and D1's outliers | `preparing` |
| parts of a picture | `regions` |
| whose results are measured: a network's, or files', found by name | `methods`; `opencv_methods`: OpenCV's |
| several methods: differences, their intervals, errors by part | `comparison`; memory: `methods` |
| `Evaluation`: facts, tables, notes; text, JSON, CSV, report | `results` |
| the HTML page, from `templates/` | `report`, `report_charts`, `report_pictures` |
| published rows beside it | `published` |
| accuracy over resolution, range, maximum disparity | `studies` |
| the benchmarks' archives | `submissions` |
"""
