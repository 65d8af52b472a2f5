"""Figures from papers and benchmark pages, to stand beside one's own.

They are copied, not measured; each row says how it came about, which may differ from what `pam eval` does.
Regions and metrics are named as in `disparity_metrics` and `superres_metrics`; "ssim" is an SSIM whose
definition the source does not give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pamcli.evaluation.tables import Column, Table, Value

Figures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class PublishedRow:
    """What one method is said to reach on one set."""

    method: str
    data: str
    """The data set, by the name of its source: "kitti2015", "middlebury" ..."""
    subset: str
    """Which pictures of it."""
    figures: Figures
    """Region or protocol -> metric -> value, rates in percent."""
    protocol: str
    """How it was trained and measured."""
    source: str
    scale: int | None = None
    """Of super-resolution."""
    parameters: str = ""
    """Of the network, as published: "1.42M"."""


def published_superres(data: str, scale: int) -> tuple[PublishedRow, ...]:
    """Rows for super-resolution on a data set ("kitti2012", "kitti2015", "middlebury", "flickr1024")."""
    return tuple(row for row in _superres_rows() if (row.data, row.scale) == (data, scale))


def published_disparity(data: str) -> tuple[PublishedRow, ...]:
    """Rows for disparity on a data set ("kitti2012", "kitti2015", "middlebury", "eth3d", "sceneflow")."""
    return tuple(row for row in _disparity_rows() if row.data == data)


def published_table(
    rows: Sequence[PublishedRow], data: str, own: Figures | None = None, method: str = ""
) -> Table:
    """The rows with a column for each figure ("noc d1", "both psnr") that one of them has.

    own: figures of `method` as measured here, for a row above the others.
    """
    lines: list[dict[str, Value]] = []
    for row in rows:
        figures = {
            metric if region == "all" else f"{region} {metric}": value
            for region, values in row.figures.items()
            for metric, value in values.items()
        }
        named = f"{row.method} ({row.parameters})" if row.parameters else row.method
        protocol = f"{row.subset}; {row.protocol}"
        lines.append({"method": named, **figures, "protocol": protocol, "source": row.source})
    words = {"method": f"published on {data}", "protocol": "protocol", "source": "source"}
    keys = dict.fromkeys(key for line in lines for key in line if key not in words)
    columns = [Column(key, key, decimals=4 if "ssim" in key else 2) for key in keys]
    if own is not None:
        places = {key: ("all " + key).split(" ")[-2:] for key in keys}
        found = {key: own.get(region, {}).get(metric) for key, (region, metric) in places.items()}
        lines.insert(
            0, {"method": f"{method} (this run)", **found, "protocol": "measured here", "source": ""}
        )
    first, *last = (Column(key, title, text=True) for key, title in words.items())
    return Table((first, *columns, *last), tuple(lines))


_SUPERRES_SUBSETS = {
    "kitti2012": "first 20 test pairs",
    "kitti2015": "first 20 test pairs",
    "middlebury": "5 pairs, halved by bicubic",
    "flickr1024": "112 test pairs",
}

_SUPERRES_SOURCE = "Awesome-Stereo-Super-Resolution, psnr_ssim_results.md"
_IPASSR = "left without 64 columns, and mean of both views; 8 bits, RGB; SSIM of iPASSR's evaluation"
_NAFSSR = "mean of both views; 8 bits, RGB; SSIM of scikit-image"
_UNSTATED = "mean of both views; RGB; which SSIM is not stated"

# method | parameters | PSNR/SSIM of both views (of the left one) on each of _SUPERRES_SUBSETS
_SUPERRES_TABLES = {
    (4, "ssim-ipassr", _IPASSR): """
    bicubic||24.58/.7372 (24.52/.7310)|24.38/.7340 (23.79/.7072)|26.40/.7572 (26.27/.7553)|21.82/.6293
    EDSR|38.9M|26.35/.8015|26.04/.8039|29.23/.8397|23.46/.7285
    RCAN|15.4M|26.44/.8029|26.22/.8068|29.30/.8397|23.48/.7286
    PASSRnet|1.42M|26.34/.7981 (26.26/.7919)|26.08/.8002 (25.41/.7772)|28.72/.8236 (28.61/.8232)|23.31/.7195
    SRRes+SAM|1.73M|26.44/.8018|26.22/.8054|28.83/.8290|23.27/.7233
    iPASSR|1.42M|26.56/.8053 (26.47/.7993)|26.32/.8084 (25.61/.7850)|29.16/.8367 (29.07/.8363)|23.44/.7287
    SSRDE-FNet|2.24M|26.70/.8082|26.43/.8118|29.38/.8411|23.59/.7352
    """,
    (4, "ssim-skimage", _NAFSSR): """
    NAFSSR-T|0.46M|26.79/.8105|26.62/.8159|29.32/.8409|23.69/.7384
    NAFSSR-S|1.56M|26.93/.8145|26.76/.8203|29.72/.8490|23.88/.7468
    NAFSSR-B|6.80M|27.08/.8181|26.91/.8245|30.04/.8568|24.07/.7551
    NAFSSR-L|23.83M|27.12/.8194|26.96/.8257|30.20/.8605|24.17/.7589
    """,
    (4, "ssim", _UNSTATED): """
    CVHSSR-T|0.68M|26.98/.8165|26.78/.8218|29.74/.8505|23.89/.7484
    CVHSSR-S|2.24M|27.10/.8199|26.90/.8258|30.05/.8584|24.08/.7570
    SwinFIRSSR|24.09M|27.16/.8235|26.89/.8283|30.44/.8687|24.29/.7681
    SCGLANet|25.29M|27.20/.8230|27.01/.8290|30.38/.8642|24.39/.7679
    HTCAN|25.29M|27.25/.8249|26.99/.8299|30.33/.8634|24.44/.7703
    """,
    (2, "ssim-ipassr", _IPASSR): """
    bicubic||28.51/.8842 (28.44/.8808)|28.61/.8973 (27.81/.8814)|30.60/.8990 (30.46/.8979)|24.94/.8186
    StereoSR|1.08M|29.51/.9073|29.33/.9168|33.23/.9348|25.96/.8599
    PASSRnet|1.37M|30.81/.9190 (30.68/.9159)|30.60/.9300 (29.81/.9191)|34.23/.9422 (34.13/.9421)|28.38/.9038
    iPASSR|1.37M|31.11/.9240 (30.97/.9210)|30.81/.9340 (30.01/.9234)|34.51/.9454 (34.41/.9454)|28.60/.9097
    SSRDE-FNet|2.10M|31.23/.9254|30.90/.9352|35.09/.9511|28.85/.9132
    """,
    (2, "ssim-skimage", _NAFSSR): """
    NAFSSR-T|0.45M|31.26/.9254|30.99/.9355|35.01/.9495|28.94/.9128
    NAFSSR-S|1.54M|31.38/.9266|31.08/.9367|35.30/.9514|29.19/.9160
    NAFSSR-B|6.77M|31.55/.9283|31.22/.9380|35.68/.9544|29.54/.9204
    NAFSSR-L|23.79M|31.60/.9291|31.25/.9386|35.88/.9557|29.68/.9221
    """,
    (2, "ssim", _UNSTATED): """
    SwinFIRSSR|23.94M|31.79/.9321|31.45/.9413|36.52/.9598|30.14/.9286
    """,
}  # fmt: skip

# The paper's own table (13): data -> PSNR, SSIM of the left view. Its SSIM is none of those above.
_PAPER_SUPERRES = {
    2: {"middlebury": (34.05, 0.960), "kitti2012": (30.65, 0.916), "kitti2015": (29.78, 0.919)},
    4: {"middlebury": (28.63, 0.871), "kitti2012": (26.26, 0.790), "kitti2015": (25.43, 0.776)},
}

_GROUP = re.compile(r"([\d.]+)/([\d.]+)(?: \(([\d.]+)/([\d.]+)\))?")


def _superres_rows() -> list[PublishedRow]:
    rows = []
    for (scale, ssim, protocol), table in _SUPERRES_TABLES.items():
        for line in table.strip().splitlines():
            method, parameters, *cells = (cell.strip() for cell in line.split("|"))
            for (data, subset), cell in zip(_SUPERRES_SUBSETS.items(), cells, strict=True):
                found = _GROUP.fullmatch(cell)
                assert found, cell
                values = [float(value) for value in found.groups() if value]
                figures = {"both": {"psnr": values[0], ssim: values[1]}}
                if len(values) == 4:
                    figures["left"] = {"psnr": values[2], ssim: values[3]}
                rows.append(
                    PublishedRow(method, data, subset, figures, protocol, _SUPERRES_SOURCE, scale, parameters)
                )
    for scale, sets in _PAPER_SUPERRES.items():
        for data, (psnr, ssim_value) in sets.items():
            rows.append(
                PublishedRow(
                    "PASSRnet (its paper)",
                    data,
                    _SUPERRES_SUBSETS[data],
                    {"left": {"psnr": psnr, "ssim": ssim_value}},
                    "left view, its 64 left-most columns left out; the paper's SSIM is not defined",
                    "parallax-attention paper, table 13",
                    scale,
                )
            )
    return rows


_BENCHMARK = "KITTI's server: test set, D1 after background interpolation"
_TEST = "200 test pairs"
_TRAINING = "training pairs"

# method -> D1 of bg, fg, all, and noc; None = not published
_KITTI_2015: dict[str, dict[str, tuple[float | None, ...]]] = {
    "trained without labels": {
        "PASMnet_192": (5.41, 16.36, 7.23, 6.69),
        "PASMnet": (5.89, 16.74, 7.70, 6.99),
        "OASM": (6.89, 19.42, 8.98, 7.39),
        "SegStereo": (None, None, 8.79, 7.70),
        "Zhou et al.": (None, None, 9.91, 8.61),
        "USCNN": (None, None, 16.55, 11.71),
        "Yu et al.": (None, None, 19.14, 8.35),
    },
    "trained with labels": {
        "PASMnet_192": (2.04, 4.33, 2.41, 2.22),
        "PSMNet": (1.86, 4.62, 2.32, None),
        "iResNet": (2.25, 3.40, 2.44, None),
        "GC-Net": (2.21, 6.16, 2.87, None),
        "DispNet": (4.32, 4.41, 4.34, None),
    },
}

_SUPERVISED_SETS = (
    ("sceneflow", "test set", "epe", "trained on Scene Flow"),
    ("kitti2012", "195 test pairs", "bad-3", "fine-tuned on KITTI; KITTI's server: Out-All, mean of pairs"),
    ("kitti2015", _TEST, "d1", f"fine-tuned on KITTI; {_BENCHMARK}"),
)

# source -> method -> figure on each of these, all pixels
_SUPERVISED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "Fast-ACVNet, README": {
        "Fast-ACVNet+": (0.59, 1.85, 2.01),
        "HITNet": (None, 1.89, 1.98),
        "CoEx": (0.69, 1.93, 2.13),
        "BGNet+": (None, 2.03, 2.19),
        "AANet": (0.87, 2.42, 2.55),
        "DeepPrunerFast": (0.97, None, 2.59),
    },
    "OpenStereo, model zoo": {
        "LightStereo-S": (0.73, None, 2.30),
        "LightStereo-M": (0.62, None, 2.04),
        "LightStereo-L": (0.59, None, 1.93),
        "LightStereo-H": (0.51, None, 1.82),
        "StereoBase": (None, None, 1.44),
        "FoundationStereo": (0.34, None, None),
        "MonSter": (0.37, None, None),
    },
    "IGEV, README": {"IGEV": (None, None, 1.59), "RAFT-Stereo": (None, None, 1.82)},
}

_TOOLBOX = (
    "zero-shot, trained on Scene Flow; truth up to 192 px, all training pairs; region of the EPE not stated"
)
_TOOLBOX_SOURCE = "stereo_toolbox, README"
_TOOLBOX_SETS = {"kitti2015": "bad-3", "kitti2012": "bad-3", "middlebury": "bad-2", "eth3d": "bad-1"}

# method -> per set of _TOOLBOX_SETS: noc, all, EPE
_ZERO_SHOT: dict[str, tuple[tuple[float, ...], ...]] = {
    "PSMNet": ((28.1, 28.4, 4.06), (26.5, 27.3), (30.2, 34.5, 9.87), (14.7, 15.4)),
    "GwcNet": ((12.2, 12.5, 2.38), (11.9, 12.7), (20.4, 24.1, 6.00), (10.5, 11.1)),
    "ACVNet": ((11.3, 11.7, 2.51), (12.9, 13.9), (22.1, 25.7, 6.24), (8.7, 9.2)),
    "STTR": ((6.8, 8.3, 2.18), (7.2, 9.2), (), (15.9, 17.6)),
    "CFNet": ((5.9, 6.1, 1.98), (4.6, 5.2), (16.3, 20.2, 5.72), (5.6, 5.9)),
    "RAFT-Stereo": ((5.3, 5.5, 1.13), (4.3, 4.8), (9.1, 12.0, 1.52), (2.8, 3.0)),
    "FoundationStereo-L": ((3.1, 3.2, 0.87), (2.7, 2.9), (1.1, 2.3, 0.51), (0.6, 0.7)),
}

# method -> error on KITTI 2012, 2015, Middlebury, ETH3D
_QUOTED = {
    "RAFT-Stereo": (4.5, 5.7, 9.3, 3.2),
    "Fast-ACVNet": (12.4, 10.6, 13.5, 7.9),
    "RT-IGEV": (5.8, 6.6, 7.8, 5.8),
    "DEFOM ViT-S": (4.2, 5.3, 6.3, 2.6),
    "GGEV": (4.1, 5.5, 6.5, 2.8),
}

# method -> KITTI 2015 D1, EPE; Middlebury bad-2, EPE
_LARGE = {
    "LAS": (3.9, 1.0, 7.5, 0.95),
    "LAS2-M": (3.6, 0.94, 5.5, 0.76),
    "LAS2-H": (3.35, 0.91, 3.96, 0.63),
    "Fast-FoundationStereo": (3.6, 0.94, 4.0, 0.63),
}


def _disparity_rows() -> list[PublishedRow]:
    rows = []
    paper = "parallax-attention paper, table 8"
    for training, methods in _KITTI_2015.items():
        for method, values in methods.items():
            regions = {
                region: {"d1": value}
                for region, value in zip(("bg", "fg", "all", "noc"), values, strict=True)
                if value is not None
            }
            rows.append(PublishedRow(method, "kitti2015", _TEST, regions, f"{training}; {_BENCHMARK}", paper))
    for source, table in _SUPERVISED.items():
        for method, values in table.items():
            for (data, subset, metric, protocol), value in zip(_SUPERVISED_SETS, values, strict=True):
                if value is not None:
                    rows.append(
                        PublishedRow(method, data, subset, {"all": {metric: value}}, protocol, source)
                    )
    for method, cells in _ZERO_SHOT.items():
        for (data, metric), cell in zip(_TOOLBOX_SETS.items(), cells, strict=True):
            if cell:
                all_pixels = {metric: cell[1]} | ({"epe": cell[2]} if len(cell) == 3 else {})
                figures = {"noc": {metric: cell[0]}, "all": all_pixels}
                rows.append(PublishedRow(method, data, _TRAINING, figures, _TOOLBOX, _TOOLBOX_SOURCE))
    quoted = "zero-shot, trained on Scene Flow; second-hand, thresholds of 3, 3, 2 and 1 px unchecked"
    for method, errors in _QUOTED.items():
        names = {"kitti2012": "bad-3", "kitti2015": "bad-3", "middlebury": "bad-2", "eth3d": "bad-1"}
        for (data, metric), error in zip(names.items(), errors, strict=True):
            figures = {"all": {metric: error}}
            rows.append(PublishedRow(method, data, _TRAINING, figures, quoted, "the GGEV paper, as quoted"))
    large = "zero-shot, trained on millions of pairs"
    for method, (d1, epe, bad, midd_epe) in _LARGE.items():
        source = "LiteAnyStereo, figure in the README"
        kitti = {"all": {"d1": d1, "epe": epe}}
        rows.append(PublishedRow(method, "kitti2015", _TRAINING, kitti, large, source))
        midd = {"all": {"bad-2": bad, "epe": midd_epe}}
        rows.append(PublishedRow(method, "middlebury", _TRAINING, midd, large, source))
    nerf = "zero-shot, trained on NeRF-Supervised's renderings"
    for data, subset, metric, value in (
        ("kitti2015", _TRAINING, "bad-3", 5.39),
        ("middlebury", "v3 training pairs, full size", "bad-2", 16.46),
    ):
        figures = {"all": {metric: value}}
        rows.append(PublishedRow("RAFT-Stereo NS", data, subset, figures, nerf, "NeRF-Supervised, issue 19"))
    return rows
