"""Metrics exactly as the benchmarks define them, their protocols, and what an evaluation says.

>>> found = evaluate_disparity(["kitti2015:kitti"], FilesMethod(Path("results")))
>>> print(found.text()); Path("report.html").write_bytes(found.report())

| file | what stands in it |
| --- | --- |
| `disparity_run`, `superres_run` | the calls: a method on data sets -> an `Evaluation` |
| `methods` | whose results are measured: a network's, or files', found by name |
| `results` | `Evaluation`: facts, tables, notes; text, JSON, CSV, report |
| `disparity_metrics`, `superres_metrics` | the figures, with `error_distributions` |
| `studies` | accuracy over resolution, range, maximum disparity |
| `report` | the HTML page, from `templates/`; its charts and pictures |
| `submissions` | the benchmarks' archives |
"""
