"""Evaluate methods on data sets: benchmark metrics, protocols and reports.

>>> evaluation = evaluate(Disparity(), ["kitti2015:kitti"], [FilesMethod(Path("results"))])
>>> print(evaluation.text()); Path("report.html").write_bytes(render_report(evaluation))

| topic | module |
| --- | --- |
| the loop over methods and data sets | `run` |
| the tasks: commands, cases, tables and charts | `disparity`, `superres` |
| metrics | `disparity_metrics`, `superres_metrics` |
| per-pixel errors, image regions, error distributions | `pixels` |
| rules of benchmarks and papers, one row each | `protocols` |
| methods: networks, result files, peak memory | `methods`; OpenCV: `opencv_methods` |
| comparison of methods: differences, intervals, errors by region | `comparison` |
| `Evaluation`: facts, tables, notes as text, JSON, CSV | `results` |
| HTML report, from `templates/` | `report`, `report_charts`, `report_images` |
| published results | `published` |
| accuracy by resolution, range, maximum disparity | `studies` |
| archives for benchmark servers | `submissions` |
"""
