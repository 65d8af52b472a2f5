"""Evaluate methods on data sets: benchmark metrics, protocols and reports.

>>> evaluation = evaluate(Disparity(), ["kitti2015:kitti"], [DisparityFiles(Path("results"))])
>>> print(evaluation.text()); Path("report.html").write_bytes(render_report(evaluation))

| topic | module |
| --- | --- |
| the loop over pairs, methods and protocols, and the tables of its metrics | `loop` |
| the two tasks, from settings to the page | `disparity`, `superres` |
| metrics, added up by a `Meter` | `disparity_metrics`, `superres_metrics` |
| per-pixel errors, image regions, error distributions | `pixels` |
| rules of benchmarks and papers, one row each | `protocols` |
| methods: networks, result files, peak memory | `methods`; OpenCV: `opencv_methods` |
| `Evaluation`: the tables, facts and notes of all methods, as text, Markdown, LaTeX, CSV, JSON | `results` |
| further tables: paired differences; regions, protocols and studies | `comparison`, `disparity_tables` |
| all files; HTML report, from `templates/` | `report`, `report_charts`, `report_images` |
| published results | `published` |
| archives for benchmark servers | `submissions` |
"""
