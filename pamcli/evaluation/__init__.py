"""Evaluate methods on data sets: benchmark metrics, protocols and reports.

>>> evaluation = evaluate(Disparity(), ["kitti2015:kitti"], [FilesMethod(Path("results"))])
>>> print(evaluation.text()); Path("report.html").write_bytes(render_report(evaluation))

| topic | module |
| --- | --- |
| entry point, loop over methods and data sets -> an `Evaluation` | `run` |
| the tasks: measurements per sample and the tables that show them | `disparity`, `superres` |
| metrics | `disparity_metrics`, `superres_metrics`; shared parts and error distributions: `figures` |
| rules of benchmarks and papers, one row each | `protocols` |
| hole filling, fine ground-truth grids, errors and D1 outliers | `preparing` |
| image regions | `regions` |
| methods: networks, result files, peak memory | `methods`; OpenCV: `opencv_methods` |
| comparison of methods: differences, intervals, errors by region | `comparison` |
| `Evaluation`: facts, tables, notes; text, JSON, CSV, report | `results` |
| HTML report, from `templates/` | `report`, `report_charts`, `report_pictures` |
| published results | `published` |
| accuracy by resolution, range, maximum disparity | `studies` |
| archives for benchmark servers | `submissions` |
"""
