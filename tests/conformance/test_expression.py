"""The expression stage against numpy: what people write for c3d, mrcalc and fslmaths, reductions, neighbours."""

import json
import pathlib
import tempfile
import unittest

import nibabel
import numpy as np

from support import affine, assert_affine, assert_close, call, data, image, load

# A few roundings to float32 (6e-8 each) of values no larger than some times the range.
TOLERANCE = 1e-6
SHAPE = (11, 9, 7)
GEOMETRY = dict(spacing=(0.8, 1.3, 2.5), angles=(10, -20, 35), origin=(-30, 12, 55), orientation="LPS")


def item():
    """An item as a study has it: two floating images, a scan in whole numbers, a mask and labels."""
    rng = np.random.default_rng(5)
    t1 = rng.normal(100, 40, SHAPE).astype("float32")
    t2 = np.abs(rng.normal(60, 30, SHAPE)).astype("float32") + 1
    return {
        "t1": t1,
        "t2": t2,
        "ct": rng.integers(-1024, 2000, SHAPE, "int16"),
        "mask": (rng.random(SHAPE) > 0.4).astype("uint8"),
        "seg": rng.integers(0, 6, SHAPE, "uint8"),
    }


def evaluate(expr, arrays, output="result", **more):
    """What the new image `output` (or, without one, the image of "on") is, of an item with these arrays."""
    stage = {"op": "expression", "expr": expr, **({"output": output} if output else {}), **more}
    name = output or more["on"]
    spec = {
        "volpipe": 1,
        "inputs": {n: {"suffix": f"_{n}", "kind": "label" if n == "seg" else "image"} for n in arrays},
        "stages": [stage],
        "outputs": {name: {"path": "result.nii"}},
    }
    with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
        folder = pathlib.Path(folder)
        (folder / "in").mkdir()
        for n, array in arrays.items():
            nibabel.save(image(array, affine(**GEOMETRY)), folder / "in" / f"case_{n}.nii")
        (folder / "spec.json").write_text(json.dumps(spec))
        done = call("run", folder / "spec.json", folder / "in", "-o", folder / "out", "--device", "cpu", "-q")
        assert done.returncode == 0, f"{expr}: exit {done.returncode}\n{done.stderr}"
        return load(folder / "out" / "result.nii")


class Expression(unittest.TestCase):
    def check(self, expr, wanted, pixel_type="float32", tolerance=TOLERANCE, arrays=None, **more):
        arrays = arrays or item()
        doubles = {name: array.astype(float) for name, array in arrays.items()}
        got = evaluate(expr, arrays, **more)
        self.assertEqual(data(got).dtype, np.dtype(pixel_type), expr)
        assert_close(data(got), wanted(**doubles) if callable(wanted) else wanted, expr, tolerance)
        assert_affine(got.affine, affine(**GEOMETRY), expr)

    def test_fslmaths(self):
        self.check("where(t1 >= 90, t1, 0)", lambda t1, **_: np.where(t1 >= 90, t1, 0))  # -thr 90
        self.check("where(t1 <= 90, t1, 0)", lambda t1, **_: np.where(t1 <= 90, t1, 0))  # -uthr 90
        self.check("t1 > 90", lambda t1, **_: t1 > 90, "uint8", 0)  # -thr 90 -bin
        self.check("not mask", lambda mask, **_: mask == 0, "uint8", 0)  # -binv
        self.check("t1 * (mask > 0)", lambda t1, mask, **_: t1 * (mask > 0))  # -mas mask
        self.check("(t1 + t2) / 2", lambda t1, t2, **_: (t1 + t2) / 2)  # -add t2 -div 2
        self.check("where(t2 == 0, 0, 1 / t2)", lambda t2, **_: 1 / t2)  # -recip
        self.check("t1 * 1000 / mean(t1, t1 != 0)", lambda t1, **_: t1 * 1000 / t1.mean())  # -inm 1000
        self.check("abs(ct) % 7", lambda ct, **_: np.abs(ct) % 7, tolerance=0)  # -abs -rem 7
        self.check("max(t1, t2)", lambda t1, t2, **_: np.maximum(t1, t2))  # -max t2
        self.check(
            "where(t1 >= percentile(t1, 25), t1, 0)", lambda t1, **_: np.where(t1 >= np.percentile(t1, 25), t1, 0)
        )  # -thrP-like

    def test_mrcalc(self):
        self.check("where(mask, t1, t2)", lambda t1, t2, mask, **_: np.where(mask, t1, t2))  # mask t1 t2 -if
        self.check(
            "where(t1 > 0, -log(max(t1, 1) / t2) / 1000, 0)",
            lambda t1, t2, **_: np.where(t1 > 0, -np.log(np.maximum(t1, 1) / t2) / 1000, 0),
        )  # an ADC map
        self.check(
            "t1 > 50 and t2 < 80 or not mask",
            lambda t1, t2, mask, **_: (t1 > 50) & (t2 < 80) | (mask == 0),
            "uint8",
            0,
        )
        self.check("isfinite(t1 / (mask > 0))", lambda mask, **_: mask > 0, "uint8", 0)
        self.check("sqrt(t1^2 + t2^2)", lambda t1, t2, **_: np.hypot(t1, t2))
        self.check("atan2(t1 - 100, t2) * 180 / pi", lambda t1, t2, **_: np.degrees(np.arctan2(t1 - 100, t2)))
        self.check("exp(-t2 / 100) * cos(t1 / 20)", lambda t1, t2, **_: np.exp(-t2 / 100) * np.cos(t1 / 20))

    def test_c3d(self):
        self.check(
            "where(t1 >= 80 and t1 <= 120, 1, 0)", lambda t1, **_: (t1 >= 80) & (t1 <= 120), "uint8", 0
        )  # -thresh 80 120 1 0
        self.check("clamp(ct, -1000, 400)", lambda ct, **_: np.clip(ct, -1000, 400))  # -clip
        self.check(
            "clamp(t1, percentile(t1, 2), percentile(t1, 98))",
            lambda t1, **_: np.clip(t1, *np.percentile(t1, [2, 98])),
        )  # -clip 2% 98%
        self.check(
            "(t1 - min(t1)) / (max(t1) - min(t1)) * 255",
            lambda t1, **_: (t1 - t1.min()) / np.ptp(t1) * 255,
        )  # -stretch 0% 100% 0 255
        self.check(
            "where(mask, (t1 - mean(t1, mask)) / std(t1, mask), 0)",
            lambda t1, mask, **_: np.where(mask, (t1 - t1[mask > 0].mean()) / t1[mask > 0].std(), 0),
        )
        self.check("round(ct / 100) * 100", lambda ct, **_: np.sign(ct) * np.floor(np.abs(ct) / 100 + 0.5) * 100)

    def test_labels_are_exact(self):
        self.check(
            "where(seg == 3, 7, seg)", lambda seg, **_: np.where(seg == 3, 7, seg), "uint8", 0, output=None, on="seg"
        )  # c3d -replace 3 7
        self.check("seg == 2 or seg == 4", lambda seg, **_: (seg == 2) | (seg == 4), "uint8", 0)
        self.check("seg * mask", lambda seg, mask, **_: seg * mask, "int32", 0, kind="label")
        wide = {**item(), "seg": np.random.default_rng(1).integers(2**30, 2**31, SHAPE, "int32")}
        self.check(
            "where(seg % 2 == 0, seg - 1, seg)",
            lambda seg, **_: np.where(seg % 2 == 0, seg - 1, seg),
            "int32",
            0,
            wide,
            output=None,
            on="seg",
        )
        self.check("seg - min(seg)", lambda seg, **_: seg - seg.min(), "int32", 0, wide, kind="label")

    def test_reductions(self):
        arrays = item()
        t1, mask = arrays["t1"].astype(float), arrays["mask"] > 0
        for expr, wanted in {
            "sum(t1)": t1.sum(),
            "sum(t1, mask)": t1[mask].sum(),
            "count(t1 > 100)": (t1 > 100).sum(),
            "std(t1, mask)": t1[mask].std(),
            "median(t1, mask)": np.median(t1[mask]),
            "percentile(t1, 37.5, mask)": np.percentile(t1[mask], 37.5),
            "mean(abs(t1 - mean(t1)))": np.abs(t1 - t1.mean()).mean(),
            "median(abs(t1 - median(t1)))": np.median(np.abs(t1 - np.median(t1))),
            "max(t1 * mask) - min(t1 * mask)": np.ptp(t1 * mask),
            "sum(seg == 2) * spacing_x * spacing_y * spacing_z": (arrays["seg"] == 2).sum() * 0.8 * 1.3 * 2.5,
        }.items():
            self.check(expr + " + 0 * i", np.full(SHAPE, wanted))

    def test_nonfinite_voxels(self):
        arrays = item()
        arrays["t1"][2, 3, 4], arrays["t1"][0, 0, 0], arrays["t1"][5, 5, 5] = np.nan, np.inf, -np.inf
        finite = np.isfinite(arrays["t1"])
        t1 = arrays["t1"].astype(float)
        self.check("where(isfinite(t1), t1, mean(t1))", np.where(finite, t1, t1[finite].mean()), arrays=arrays)
        self.check("where(isnan(t1), 0, clamp(t1, -1, 1))", np.nan_to_num(np.clip(t1, -1, 1)), arrays=arrays)
        self.check("count(isfinite(t1)) + 0 * mask", np.full(SHAPE, finite.sum()), arrays=arrays)

    def test_places(self):
        i, j, k = np.indices(SHAPE)
        x, y, z = np.moveaxis(nibabel.affines.apply_affine(affine(**GEOMETRY), np.stack((i, j, k), -1)), -1, 0)
        self.check("i + 100 * j + 10000 * k", i + 100 * j + 10000 * k, tolerance=0)
        self.check("(i + j + k) % 2 == 0", (i + j + k) % 2 == 0, "uint8", 0)
        self.check("x", x)
        self.check("y - z", y - z)
        self.check("t1 * (1 + 0.01 * x)", lambda t1, **_: t1 * (1 + 0.01 * x))
        # c3d's and MATLAB's ball: no voxel lies within 1e-3 mm of its surface.
        distance = np.sqrt((x + 30) ** 2 + (y - 12) ** 2 + (z - 60) ** 2)
        assert np.abs(distance - 9).min() > 1e-3
        self.check("sqrt((x + 30)^2 + (y - 12)^2 + (z - 60)^2) <= 9", distance <= 9, "uint8", 0)
        self.check(
            "sum(x * mask) / sum(mask) + 0 * t1",
            lambda mask, **_: np.full(SHAPE, (x * mask).sum() / mask.sum()),
        )

    def test_neighbours(self):
        def shifted(a, dx, dy, dz, mode, **more):
            padded = np.pad(a, 2, mode, **more)
            return padded[tuple(slice(2 + d, 2 + d + n) for d, n in zip((dx, dy, dz), a.shape))]

        modes = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "grid-wrap": "wrap"}
        for boundary, mode in modes.items():
            self.check(
                "(t1[1,0,0] - t1[-1,0,0]) / (2 * spacing_x) + t2[0,-2,1]",
                lambda t1, t2, **_: (shifted(t1, 1, 0, 0, mode) - shifted(t1, -1, 0, 0, mode)) / 1.6
                + shifted(t2, 0, -2, 1, mode),
                boundary=boundary,
            )
        cross = [(0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
        self.check(
            "max(mask, mask[1,0,0], mask[-1,0,0], mask[0,1,0], mask[0,-1,0], mask[0,0,1], mask[0,0,-1])",
            lambda mask, **_: np.max([shifted(mask, *offset, "constant") for offset in cross], axis=0),
            boundary="constant",
            tolerance=0,
        )  # a dilation
        self.check(
            "seg != seg[1,0,0] or seg != seg[0,1,0] or seg != seg[0,0,1]",
            lambda seg, **_: np.any([seg != shifted(seg, *d, "edge") for d in np.eye(3, dtype=int)], axis=0),
            "uint8",
            0,
            boundary="nearest",
        )  # borders between labels

    def test_pixel_types_saturate_and_round(self):
        self.check("ct * 20", lambda ct, **_: np.clip(ct * 20, -32768, 32767), "int16", 0, dtype="int16")
        self.check("t1 / 7", lambda t1, **_: np.floor(np.abs(t1 / 7) + 0.5) * np.sign(t1), "int32", 0, dtype="int32")
        self.check("ct / 3", lambda ct, **_: ct / 3, "float64", 1e-15, dtype="float64")
        self.check("t1 + t2", lambda t1, t2, **_: t1 + t2, "float64", 1e-15, precision="double")


if __name__ == "__main__":
    unittest.main()
