"""Intensity stages against numpy in double precision."""

import unittest

import numpy as np

from support import DTYPES, assert_affine, assert_close, data, image, odd_images, random_array, random_image, run

# float32 arithmetic of a handful of steps: a few ulp (6e-8) of the largest value; and 1e-6 where a mean is taken away.
TOLERANCE = 1e-6


def images():
    return {**odd_images(("float32", "int16", "uint8", "float64")), "frames": random_image((5, 4, 3, 2), "int16")}


def round_half_away(values):
    return np.sign(values) * np.floor(np.abs(values) + 0.5)


def cast(values, dtype):
    """Rounded half away from zero, saturated; NaN is 0."""
    values = np.nan_to_num(np.asarray(values, float), nan=0, posinf=np.inf, neginf=-np.inf)
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(round_half_away(values), limits.min, limits.max).astype(dtype)


class Pointwise(unittest.TestCase):
    def check(self, stages, wanted, inputs=None, tolerance=TOLERANCE):
        stages = stages if isinstance(stages, list) else [stages]
        inputs = inputs or images()
        for name, got in run(stages, inputs).items():
            source = data(inputs[name]).astype(float)
            assert_close(data(got), wanted(source), f"{stages} of {name}", tolerance)
            assert_affine(got.affine, inputs[name].affine, name)

    def test_clip(self):
        self.check({"op": "clip", "min": -20, "max": 60.5}, lambda a: np.clip(a, -20, 60.5))
        self.check({"op": "clip", "min": 3}, lambda a: np.maximum(a, 3))
        self.check({"op": "clip", "max": 3}, lambda a: np.minimum(a, 3))
        self.check({"op": "clip", "percentiles": [5, 92.5]}, lambda a: np.clip(a, *np.percentile(a, [5, 92.5])))

    def test_rescale(self):
        def rescale(a, low, high, to, clip=True):
            scaled = (a - low) / (high - low) * (to[1] - to[0]) + to[0]
            return np.clip(scaled, *sorted(to)) if clip else scaled

        self.check({"op": "rescale", "to": [0, 1]}, lambda a: rescale(a, a.min(), a.max(), (0, 1)))
        self.check(
            {"op": "rescale", "to": [-1, 3], "from": [-50, 70], "clip": True}, lambda a: rescale(a, -50, 70, (-1, 3))
        )
        self.check(
            {"op": "rescale", "to": [0, 10], "from": [-50, 70], "clip": False},
            lambda a: rescale(a, -50, 70, (0, 10), False),
        )
        self.check(
            {"op": "rescale", "from": {"percentiles": [1, 99]}, "clip": True},
            lambda a: rescale(a, *np.percentile(a, [1, 99]), (0, 1)),
        )

    def test_normalize(self):
        self.check({"op": "normalize"}, lambda a: (a - a.mean()) / a.std())
        self.check({"op": "normalize", "ddof": 1}, lambda a: (a - a.mean()) / a.std(ddof=1))
        self.check({"op": "normalize", "method": "minmax"}, lambda a: (a - a.min()) / np.ptp(a))
        self.check({"op": "normalize", "method": "mean"}, lambda a: (a - a.mean()) / np.ptp(a))

        def median_iqr(a):
            low, middle, high = np.percentile(a, [25, 50, 75])
            return (a - middle) / (high - low)

        self.check({"op": "normalize", "method": "median_iqr"}, median_iqr)

    def test_normalize_per_component(self):
        self.check(
            {"op": "normalize", "per": "component"},
            lambda a: (a - a.mean((0, 1, 2))) / a.std((0, 1, 2)),
            {"a": random_image((5, 4, 3, 4), "int16")},
        )

    def test_normalize_masks(self):
        array = random_array((9, 8, 7), "float32")
        array[:4] = 0
        inputs = {"a": image(array)}
        for mask, selected in (("nonzero", array != 0), ({"above": 25}, array > 25)):
            chosen = array[selected].astype(float)
            wanted = (array - chosen.mean()) / chosen.std()
            if mask == "nonzero":  # there 0 means no data
                wanted[~selected] = 0
            assert_close(data(run([{"op": "normalize", "mask": mask}], inputs)["a"]), wanted, str(mask), TOLERANCE)

    def test_normalize_foreground(self):
        """Two clear populations: Otsu's threshold lies between them."""
        array = np.where(random_array((9, 8, 7), "float32") > 0, 1000, 10).astype(np.float32) + np.arange(
            7, dtype=np.float32
        )
        got = data(run([{"op": "normalize", "mask": "foreground"}], {"a": image(array)})["a"])
        chosen = array[array > 500].astype(float)
        assert_close(got[array > 500], (chosen - chosen.mean()) / chosen.std(), "foreground", TOLERANCE)

    def test_normalize_of_a_constant_is_zero(self):
        got = data(run([{"op": "normalize"}], {"a": image(np.full((3, 4, 5), 7, np.int16))})["a"])
        self.assertTrue((got == 0).all())

    def test_window(self):
        self.check({"op": "window", "center": 40, "width": 120}, lambda a: np.clip((a + 20) / 120, 0, 1))
        self.check({"op": "window", "preset": "brain", "to": [255, 0]}, lambda a: 255 - 255 * np.clip(a / 80, 0, 1))

    def test_gamma(self):
        inputs = {"a": image(np.abs(random_array((7, 6, 5), "float32")))}

        def gamma(a):
            low, high = a.min(), a.max()
            return ((a - low) / (high - low)) ** 0.7 * (high - low) + low

        self.check({"op": "gamma", "gamma": 0.7}, gamma, inputs, 5e-6)

    def test_threshold(self):
        inputs = {"a": random_image((7, 6, 5), "int16")}
        self.check({"op": "threshold", "above": 100}, lambda a: np.where(a >= 100, a, 0), inputs)
        self.check(
            {"op": "threshold", "above": -50, "below": 700, "value": 9},
            lambda a: np.where((a >= -50) & (a <= 700), a, 9),
            inputs,
        )

    def test_cast(self):
        values = (
            np.concatenate(
                [
                    [
                        -1e12,
                        -129,
                        -128.5,
                        -2.5,
                        -1.5,
                        -0.5,
                        -0.0,
                        0.49,
                        0.5,
                        1.5,
                        2.5,
                        127.5,
                        255.5,
                        65535.5,
                        2**31,
                        1e12,
                    ],
                    [np.nan, np.inf, -np.inf],
                ]
            )
            .astype(np.float32)
            .reshape(-1, 1, 1)
        )
        for dtype in DTYPES:
            with self.subTest(dtype):
                got = data(run([{"op": "cast", "dtype": dtype}], {"a": image(values)})["a"])
                self.assertEqual(got.dtype, np.dtype(dtype))
                if np.dtype(dtype).kind == "f":
                    np.testing.assert_array_equal(got, values.astype(dtype))
                else:
                    np.testing.assert_array_equal(got, cast(values, dtype))

    def test_output_dtype(self):
        inputs = {"a": image(np.array([-1.5, 0.5, 254.5, 300], np.float32).reshape(4, 1, 1))}
        got = data(run([], inputs, dtype="uint8")["a"])
        self.assertEqual(got.ravel().tolist(), [0, 1, 255, 255])

    def test_large_integers_keep_their_last_bit(self):
        inputs = {"a": image(np.array([16777217, 16777219, 2**31 - 1], np.int32).reshape(3, 1, 1))}
        got = data(run([{"op": "clip", "min": 0}], inputs, dtype="int32")["a"])
        self.assertEqual(got.ravel().tolist(), [16777217, 16777219, 2**31 - 1])

    def test_statistics_leave_non_finite_voxels_out(self):
        array = random_array((6, 5, 4), "float32")
        finite = array.copy()
        array[0, 0, 0], array[1, 1, 1] = np.nan, np.inf
        got = data(run([{"op": "normalize"}], {"a": image(array)})["a"])
        inside = np.isfinite(array)
        chosen = finite[inside].astype(float)
        assert_close(got[inside], (chosen - chosen.mean()) / chosen.std(), "finite voxels", TOLERANCE)
        self.assertTrue(np.isnan(got[0, 0, 0]))

    def test_a_chain_is_its_stages_one_by_one(self):
        stages = [
            {"op": "clip", "percentiles": [1, 99]},
            {"op": "rescale", "to": [0, 1]},
            {"op": "normalize"},
            {"op": "clip", "min": -2, "max": 2},
        ]

        def chain(a):
            a = np.clip(a, *np.percentile(a, [1, 99]))
            a = (a - a.min()) / np.ptp(a)
            return np.clip((a - a.mean()) / a.std(), -2, 2)

        self.check(stages, chain, tolerance=3e-6)


if __name__ == "__main__":
    unittest.main()
