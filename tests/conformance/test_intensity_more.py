"""Intensity stages against scikit-image where it has them, and against numpy's own words in double precision."""

import json
import pathlib
import tempfile
import unittest

import nibabel
import numpy as np
from scipy import stats
from skimage import exposure, filters

from support import assert_close, call, data, image, load, odd_images, random_array, random_image, run, write_spec

# float32 arithmetic of a handful of steps: a few ulp (6e-8) of the largest value.
TOLERANCE = 1e-6


def images():
    return {**odd_images(("float32", "int16", "uint8", "float64")), "frames": random_image((5, 4, 3, 2), "int16")}


def populations(shape, means, std, seed=0):
    draw = np.random.default_rng(seed)
    chosen = draw.integers(0, len(means), shape)
    return (np.array(means)[chosen] + draw.normal(0, std, shape)).astype(np.float32)


class Arithmetic(unittest.TestCase):
    def check(self, stage, wanted, inputs=None, tolerance=TOLERANCE):
        inputs = inputs or images()
        for name, got in run([stage], inputs).items():
            source = data(inputs[name]).astype(float)
            with np.errstate(all="ignore"):
                expected = np.asarray(wanted(source), float)
            got = data(got)
            finite = np.isfinite(expected)
            self.assertTrue((np.isfinite(got) == finite).all(), f"{stage} of {name}")
            np.testing.assert_array_equal(got[~finite], expected[~finite])
            assert_close(np.where(finite, got, 0), np.where(finite, expected, 0), f"{stage} of {name}", tolerance)

    def test_adjust_contrast(self):
        def curve(a, gamma):
            return ((a - a.min()) / np.ptp(a)) ** gamma * np.ptp(a) + a.min()

        def retained(a):
            b = curve(a, 2.2)
            return (b - b.mean()) / b.std() * a.std() + a.mean()

        self.check({"op": "adjust_contrast", "gamma": 0.6}, lambda a: curve(a, 0.6), tolerance=5e-6)
        self.check(
            {"op": "adjust_contrast", "gamma": 1.8, "invert_image": True}, lambda a: -curve(-a, 1.8), tolerance=5e-6
        )
        self.check({"op": "adjust_contrast", "gamma": 2.2, "retain_stats": True}, retained, tolerance=5e-6)

    def test_adjust_contrast_of_small_ranges(self):
        """MONAI divides by the range + 1e-7; here the maximum stays whatever the range."""
        array = (np.linspace(0, 1, 24).reshape(2, 3, 4) * 1e-7).astype(np.float32)
        got = data(run([{"op": "adjust_contrast", "gamma": 3}], {"a": image(array)})["a"])
        assert_close(got, (array.astype(float) / array.max()) ** 3 * array.max(), "small range", 5e-6)

    def test_adjust_contrast_as_monai_documents_it(self):
        """MONAI 1.3 AdjustContrast(gamma=1.5) of 0..7, computed by its formula."""
        array = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
        got = data(run([{"op": "adjust_contrast", "gamma": 1.5}], {"a": image(array)})["a"])
        wanted = (array / (7 + 1e-7)) ** 1.5 * 7
        assert_close(got, wanted, "0..7")

    def test_elementary(self):
        self.check({"op": "log"}, np.log)
        self.check({"op": "log", "base": 2, "offset": 1000}, lambda a: np.log2(a + 1000))
        self.check({"op": "log", "base": 10, "offset": 1}, lambda a: np.log10(a + 1))
        self.check({"op": "sqrt"}, np.sqrt)
        self.check({"op": "power", "exponent": 3}, lambda a: a**3)
        self.check(
            {"op": "power", "exponent": 0.7, "keep_sign": True}, lambda a: np.sign(a) * np.abs(a) ** 0.7, tolerance=2e-6
        )
        small = {"a": image(random_array((6, 5, 4), "float32") / 20)}
        self.check({"op": "exp"}, np.exp, small, 2e-6)
        self.check({"op": "exp", "base": 2, "offset": 1}, lambda a: 2**a - 1, small, 2e-6)

    def test_linear(self):
        self.check({"op": "invert_intensity"}, lambda a: a.max() + a.min() - a)
        self.check({"op": "shift", "offset": 12.5}, lambda a: a + 12.5)
        self.check({"op": "shift", "offset": -0.3, "relative": True}, lambda a: a - 0.3 * a.std())
        self.check({"op": "scale", "factor": 1.3}, lambda a: a * 1.3)
        self.check({"op": "scale", "factor": 0.7, "about": "mean"}, lambda a: (a - a.mean()) * 0.7 + a.mean())
        self.check(
            {"op": "scale", "factor": 1.7, "about": "mean", "clip": True},
            lambda a: np.clip((a - a.mean()) * 1.7 + a.mean(), a.min(), a.max()),
        )

    def test_steps(self):
        self.check({"op": "binarize", "threshold": 10}, lambda a: a > 10)
        self.check(
            {"op": "binarize", "above": -50, "below": 70, "inside": 3, "outside": 9},
            lambda a: np.where((a >= -50) & (a <= 70), 3, 9),
        )
        self.check(
            {"op": "sigmoid", "alpha": 30, "beta": 15, "to": [-1, 4]}, lambda a: -1 + 5 / (1 + np.exp((15 - a) / 30))
        )

    def test_replace_nonfinite(self):
        array = random_array((5, 4, 3), "float32")
        array[0, 0] = [np.nan, np.inf, -np.inf]
        stage = {"op": "replace_nonfinite", "nan": 1, "posinf": 5, "neginf": -7}
        got = data(run([stage], {"a": image(array)})["a"])
        np.testing.assert_array_equal(got, np.nan_to_num(array, nan=1, posinf=5, neginf=-7))

    def test_replace_padding(self):
        """A CT's round field of view."""
        i, j = np.mgrid[:20, :20] - 9.5
        array = random_array((20, 20, 3), "int16")
        outside = np.hypot(i, j) > 9.5
        array[outside] = -2000
        array[~outside] = np.abs(array[~outside]) - 1000
        got = data(run([{"op": "replace_padding"}], {"a": image(array)})["a"])
        self.assertEqual(got.dtype, np.int16)
        np.testing.assert_array_equal(got, np.where(outside[..., None], array[~outside].min(), array))


class Noise(unittest.TestCase):
    """Draws against their distributions; a Kolmogorov-Smirnov distance of 2 / sqrt(n) has a probability below 1e-3."""

    def added(self, stage, value):
        return data(run([{"op": "noise", **stage}], {"a": image(np.full((40, 40, 40), value, np.float32))})["a"]).ravel()

    def assert_distributed(self, values, distribution):
        distance = stats.kstest(values, distribution.cdf).statistic
        self.assertLess(distance, 2 / np.sqrt(values.size))

    def test_distributions(self):
        self.assert_distributed(self.added({"std": 3, "mean": 1}, 10), stats.norm(11, 3))
        self.assert_distributed(self.added({"kind": "rician", "std": 2}, 5), stats.rice(5 / 2, scale=2))
        self.assert_distributed(self.added({"kind": "speckle", "std": 0.5}, 4), stats.norm(4, 2))

    def test_poisson(self):
        for mean in (0.7, 8, 30):
            values = self.added({"kind": "poisson"}, mean)
            expected = stats.poisson(np.float32(mean))
            counts = np.bincount(values.astype(int))
            for k, count in enumerate(counts):
                share = expected.pmf(k)
                self.assertLess(abs(count / values.size - share), 5 * np.sqrt(share / values.size) + 2 / values.size)


class Histograms(unittest.TestCase):
    def test_equalize(self):
        for name, array in (
            ("normal", random_array((30, 20, 10), "float32")),
            ("two", populations((20, 20, 20), (0, 80), 5)),
            ("double", random_array((9, 8, 7), "float64")),
        ):
            for bins in (256, 31):
                got = data(run([{"op": "histogram_equalize", "bins": bins}], {"a": image(array)})["a"])
                wanted = exposure.equalize_hist(array.astype(np.float32).astype(float), nbins=bins)
                assert_close(got, wanted, f"{name} {bins}", 2e-6)

    def test_equalize_under_a_mask(self):
        array = random_array((12, 11, 10), "float32")
        array[:3] = 0
        got = data(run([{"op": "histogram_equalize", "mask": "nonzero", "to": [0, 255]}], {"a": image(array)})["a"])
        wanted = 255 * exposure.equalize_hist(array.astype(float), nbins=256, mask=array != 0)
        assert_close(got, wanted, "nonzero", 2e-6)

    def test_otsu(self):
        """scikit-image's threshold is the middle of the background's last bin; ours the end of that bin."""
        for seed, means in enumerate(((0, 60), (0, 20, 90), (-5, 5))):
            array = populations((20, 18, 16), means, 8, seed)
            half_bin = float(np.ptp(array)) / 512
            threshold = filters.threshold_otsu(array.astype(float), nbins=256) + half_bin
            got = data(run([{"op": "otsu"}], {"a": image(array)})["a"])
            self.assertEqual(got.dtype, np.uint8)
            clear = np.abs(array - threshold) > 1e-4
            np.testing.assert_array_equal(got[clear], (array > threshold)[clear])

    def test_multi_otsu(self):
        for classes, means in ((3, (0, 50, 120)), (4, (0, 50, 120, 200)), (5, (0, 40, 90, 150, 220))):
            array = populations((16, 15, 14), means, 10, classes)
            half_bin = float(np.ptp(array)) / 512
            thresholds = filters.threshold_multiotsu(array.astype(float), classes, nbins=256) + half_bin
            got = data(run([{"op": "multi_otsu", "classes": classes}], {"a": image(array)})["a"])
            clear = np.min(np.abs(array[..., None] - thresholds), axis=-1) > 1e-4
            np.testing.assert_array_equal(got[clear], np.digitize(array, thresholds)[clear])

    def match(self, stage, source, reference):
        """`reference` is a file in the folder of the spec."""
        with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
            folder = pathlib.Path(folder)
            nibabel.save(reference, folder / "reference.nii")
            (folder / "in").mkdir()
            nibabel.save(source, folder / "in" / "a.nii")
            spec = write_spec(folder, [{"op": "histogram_match", "reference": "reference.nii", **stage}])
            done = call("run", spec, folder / "in", "-o", folder / "out", "--device", "cpu", "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
            return data(load(folder / "out" / "a.nii"))

    def test_match_is_the_map_of_quantiles(self):
        source, reference = populations((14, 13, 12), (0, 30), 4, 1), populations((9, 20, 11), (100, 180, 400), 15, 2)
        for points in (8, 64, 300):
            percents = np.linspace(0, 100, points + 1)
            x, y = (np.percentile(a.astype(float), percents) for a in (source, reference))
            wanted = np.interp(source, x, y)
            got = self.match({"points": points}, image(source), image(reference))
            assert_close(got, wanted, f"{points} points", 2e-6)

    def test_match_of_every_quantile_is_scikit_images(self):
        """With a point a voxel and no ties, the map of quantiles is scikit-image's match_histograms."""
        source, reference = random_array((5, 5, 5), "float32", 1), random_array((5, 5, 5), "float32", 2)
        got = self.match({"points": 124}, image(source), image(reference))
        assert_close(got, exposure.match_histograms(source.astype(float), reference.astype(float)), "match", 2e-6)

    def test_match_of_integers_with_a_background(self):
        source = np.maximum(random_array((12, 11, 10), "int16") // 64, 0).astype(np.int16)
        reference = np.maximum(populations((10, 10, 10), (0, 0, 300), 40, 3), 0)
        percents = np.linspace(0, 100, 65)
        x, y = np.percentile(source, percents), np.percentile(reference.astype(float), percents)
        merged = np.unique(x)
        wanted = np.interp(source, merged, [y[x == v].mean() for v in merged])
        assert_close(self.match({}, image(source), image(reference)), wanted, "ties", 2e-6)


class Landmarks(unittest.TestCase):
    PERCENTILES = (1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99)

    def standard_scale(self, arrays, mask):
        mapped = []
        for array in arrays:
            found = np.percentile(array[mask(array)].astype(float), self.PERCENTILES)
            mapped.append((found - found[0]) / (found[-1] - found[0]) * 100)
        return np.mean(mapped, axis=0)

    def test_training_and_standardizing(self):
        arrays = {f"{k}": populations((12, 11, 10), (0, 40 + 9 * k, 100 + 20 * k), 3, k) * (k + 1) for k in range(4)}

        def above(a):
            return a > 20

        with tempfile.TemporaryDirectory(prefix="volpipe-conformance-") as folder:
            folder = pathlib.Path(folder)
            (folder / "in").mkdir()
            for name, array in arrays.items():
                nibabel.save(image(array), folder / "in" / f"{name}.nii")
            done = call("train-landmarks", folder / "in", "-o", folder / "l.json", "--mask", '{"above": 20}')
            self.assertEqual(done.returncode, 0, done.stderr)
            learned = json.loads((folder / "l.json").read_text())
            self.assertEqual(learned["images"], 4)
            self.assertEqual(learned["percentiles"], list(self.PERCENTILES))
            wanted = self.standard_scale(arrays.values(), above)
            assert_close(np.array(learned["landmarks"]), wanted, "landmarks", 1e-12)

            spec = write_spec(folder, [{"op": "histogram_standardize", "landmarks": "l.json"}])
            done = call("run", spec, folder / "in", "-o", folder / "out", "--device", "cpu", "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
            for name, array in arrays.items():
                x = np.percentile(array[above(array)].astype(float), self.PERCENTILES)
                slopes = np.diff(wanted) / np.diff(x)
                a = array.astype(float)
                mapped = np.interp(a, x, wanted)
                mapped = np.where(a < x[0], wanted[0] + (a - x[0]) * slopes[0], mapped)
                mapped = np.where(a > x[-1], wanted[-1] + (a - x[-1]) * slopes[-1], mapped)
                assert_close(data(load(folder / "out" / f"{name}.nii")), mapped, name, 2e-6)

    def test_match_landmarks(self):
        array = random_array((8, 7, 6), "float32")
        stage = {"op": "match_landmarks", "from": {"percentiles": [5, 40, 95]}, "to": [0, 1, 1.5], "clip": True}
        wanted = np.interp(array, np.percentile(array.astype(float), [5, 40, 95]), [0, 1, 1.5])
        assert_close(data(run([stage], {"a": image(array)})["a"]), wanted, "clip", 2e-6)


class Fields(unittest.TestCase):
    def test_bias_field_is_the_exponential_of_a_polynomial(self):
        """All monomials of total degree 3 fit its logarithm, whose mean is 0; those of degree 2 do not."""
        shape = (11, 9, 8)
        got = data(run([{"op": "bias_field", "magnitude": 0.4}], {"a": image(np.ones(shape, np.float32))})["a"])
        logarithm = np.log(got.astype(float)).ravel()
        self.assertLess(abs(logarithm.mean()), 1e-7)
        x, y, z = (np.linspace(-1, 1, n)[c] for n, c in zip(shape, np.indices(shape).reshape(3, -1)))
        for degree, fits in ((2, False), (3, True)):
            powers = [(a, b, c) for a in range(4) for b in range(4) for c in range(4) if a + b + c <= degree]
            basis = np.stack([x**a * y**b * z**c for a, b, c in powers], axis=1)
            rest = logarithm - basis @ np.linalg.lstsq(basis, logarithm, rcond=None)[0]
            self.assertEqual(np.abs(rest).max() < 3e-7, fits, f"degree {degree}: {np.abs(rest).max()}")


if __name__ == "__main__":
    unittest.main()
