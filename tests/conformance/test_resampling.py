"""resize and resample against SciPy in double precision, on grids placed in world coordinates."""

import unittest

import numpy as np
from scipy import ndimage

import oracle
from support import BOUNDARIES, affine, assert_affine, assert_close, data, image, odd_images, random_image, run

SPLINES = ("bspline2", "bspline3", "bspline4", "bspline5")
INTERPOLATIONS = ("nearest", "linear", *SPLINES)
# Ratios whose coordinates stay away from halves, where rounding decides the nearest voxel, and from the last sample.
TARGET_SIZE = (11, 17, 4)
SPACING = (1.13, 0.71, 1.9)


def spacing_of(volume):
    return np.linalg.norm(volume.affine[:3, :3], axis=0)


class Resize(unittest.TestCase):
    def check(self, align, interpolation, boundary):
        images = odd_images()
        stage = {
            "op": "resize",
            "size": list(TARGET_SIZE),
            "align": align,
            "interpolation": interpolation,
            "boundary": boundary,
            "fill": 7,
            "antialias": False,
        }
        for name, got in run([stage], images).items():
            source = images[name]
            axes = [oracle.resize_coordinates(n, m, align) for n, m in zip(source.shape, TARGET_SIZE)]
            assert_close(data(got), oracle.sample(data(source), axes, interpolation, boundary, 7), f"{stage} of {name}")

    def test_every_boundary(self):
        for align in ("edges", "centers"):
            for interpolation in INTERPOLATIONS:
                for boundary in BOUNDARIES:
                    with self.subTest(align=align, interpolation=interpolation, boundary=boundary):
                        self.check(align, interpolation, boundary)

    def test_is_scipy_zoom(self):
        source = random_image((9, 7, 5), "float64")
        for align, grid_mode in (("edges", True), ("centers", False)):
            for spline in SPLINES:
                stage = {
                    "op": "resize",
                    "size": [18, 7, 8],
                    "align": align,
                    "interpolation": spline,
                    "boundary": "mirror",
                    "antialias": False,
                }
                order = oracle.ORDER[spline]
                wanted = ndimage.zoom(data(source), (18 / 9, 1, 8 / 5), order=order, mode="mirror", grid_mode=grid_mode)
                assert_close(data(run([stage], {"a": source})["a"]), wanted, (align, spline))

    def test_edges_keep_the_field_of_view(self):
        images = odd_images()
        for name, got in run([{"op": "resize", "size": list(TARGET_SIZE)}], images).items():
            source = images[name]
            axes = [((n / m - 1) / 2, n / m) for n, m in zip(source.shape, TARGET_SIZE)]
            assert_affine(got.affine, oracle.grid_affine(source.affine, axes), name)

    def test_centers_keep_the_outer_centers(self):
        source = odd_images()["oblique"]
        got = run([{"op": "resize", "size": list(TARGET_SIZE), "align": "centers"}], {"a": source})["a"]
        axes = [(0, (n - 1) / (m - 1)) for n, m in zip(source.shape, TARGET_SIZE)]
        assert_affine(got.affine, oracle.grid_affine(source.affine, axes))

    def test_scale(self):
        source = random_image((10, 8, 5))
        got = run([{"op": "resize", "scale": [0.5, 2, 1], "antialias": False}], {"a": source})["a"]
        axes = [oracle.resize_coordinates(n, m, "edges") for n, m in zip(source.shape, (5, 16, 5))]
        assert_close(data(got), oracle.sample(data(source), axes))


class Resample(unittest.TestCase):
    def check(self, interpolation, boundary, grid):
        images = odd_images()
        stage = {
            "op": "resample",
            "spacing": list(SPACING),
            "interpolation": interpolation,
            "boundary": boundary,
            "grid": grid,
            "fill": 5,
            "antialias": False,
        }
        for name, got in run([stage], images).items():
            source = images[name]
            spacing = spacing_of(source)
            axes = [oracle.resample_axis(*axis, grid) for axis in zip(source.shape, spacing, SPACING)]
            wanted = oracle.grid_affine(source.affine, [(c[0], t / s) for c, t, s in zip(axes, SPACING, spacing)])
            assert_affine(got.affine, wanted, f"{stage} of {name}")
            assert_close(data(got), oracle.sample(data(source), axes, interpolation, boundary, 5), f"{stage} of {name}")

    def test_every_boundary(self):
        for interpolation in INTERPOLATIONS:
            for boundary in BOUNDARIES:
                with self.subTest(interpolation=interpolation, boundary=boundary):
                    self.check(interpolation, boundary, "extent")

    def test_grid_center(self):
        for interpolation in INTERPOLATIONS:
            self.check(interpolation, "nearest", "center")

    def test_voxels_agree_in_world_coordinates(self):
        """Without the rule of the grid: whatever grid came out, each voxel is the input at that place in the world."""
        images = odd_images()
        for name, got in run([{"op": "resample", "spacing": 0.9, "antialias": False}], images).items():
            source = images[name]
            index = np.indices(got.shape).reshape(3, -1)
            place = np.linalg.inv(source.affine) @ got.affine @ np.vstack([index, np.ones(index.shape[1])])
            wanted = ndimage.map_coordinates(data(source).astype(float), place[:3], order=1, mode="nearest")
            # the output's affine is stored in float32: places are known to about 1e-5 voxel
            assert_close(data(got).ravel(), wanted, name, tolerance=1e-4)

    def test_sizes(self):
        cases = [
            ((25, 25, 16), 0.1, 0.01, (250, 250, 160)),
            ((5, 4, 3), 1, 2, (3, 2, 2)),
            ((3, 3, 3), 1, 100, (1, 1, 1)),
            ((10, 10, 10), 0.3, 0.1, (30, 30, 30)),
            ((7, 1, 2), 1, 1, (7, 1, 2)),
        ]
        for shape, spacing, target, wanted in cases:
            source = random_image(shape, spacing=(spacing,) * 3)
            self.assertEqual(run([{"op": "resample", "spacing": target}], {"a": source})["a"].shape, wanted)

    def test_null_keeps_an_axis(self):
        source = odd_images()["oblique"]
        got = run([{"op": "resample", "spacing": [None, 2.6, None], "antialias": False}], {"a": source})["a"]
        axes = [np.arange(17.0), oracle.resample_axis(13, spacing_of(source)[1], 2.6, "extent"), np.arange(9.0)]
        assert_close(data(got), oracle.sample(data(source), axes))

    def test_antialias_is_a_gaussian_before_sampling(self):
        source = random_image((40, 31, 9), spacing=(1, 1, 3))
        target = (2.3, 5.1, 2.2)
        axes = [oracle.resample_axis(n, s, t, "extent") for n, s, t in zip(source.shape, (1, 1, 3), target)]
        smooth = oracle.antialias(data(source), (2.3, 5.1, 2.2 / 3))
        for interpolation in ("linear", "bspline3", "bspline4"):
            stage = {"op": "resample", "spacing": list(target), "interpolation": interpolation}
            assert_close(
                data(run([stage], {"a": source})["a"]), oracle.sample(smooth, axes, interpolation), interpolation
            )

    def test_nearest_ties_go_up(self):
        source = image(np.arange(6, dtype=np.int16).reshape(6, 1, 1))
        got = run(
            [{"op": "resample", "spacing": [2, 1, 1], "interpolation": "nearest", "antialias": False}], {"a": source}
        )["a"]
        self.assertEqual(data(got).ravel().tolist(), [1, 3, 5])

    def test_frames_are_resampled_one_by_one(self):
        source = random_image((6, 5, 4, 3), "int16")
        got = data(run([{"op": "resample", "spacing": 0.7}], {"a": source})["a"])
        for frame in range(3):
            axes = [oracle.resample_axis(n, 1, 0.7, "extent") for n in source.shape[:3]]
            assert_close(got[..., frame], oracle.sample(data(source)[..., frame], axes), frame)


    def test_kernels_without_a_prefilter(self):
        """Inside, where no boundary is felt; the middle of a volume that varies on one axis."""

        def cubic(x):
            inner, outer = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
            return np.where(x < 1, inner, np.where(x < 2, outer, 0))

        def lanczos(x):
            return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)

        source = random_image((31, 1, 1), "int16")
        size = 50
        axis = oracle.resize_coordinates(31, size, "edges")
        for interpolation, kernel in (("cubic", cubic), ("lanczos3", lanczos)):
            weights = kernel(np.abs(axis[:, None] - np.arange(31)))
            wanted = (weights @ data(source).ravel().astype(float)) / weights.sum(axis=1)
            stage = {"op": "resize", "size": [size, 1, 1], "interpolation": interpolation}
            got = data(run([stage], {"a": source})["a"]).ravel()
            assert_close(got[6:-6], wanted[6:-6], interpolation)


class Labels(unittest.TestCase):
    STAGES = [
        {"op": "reorient", "axes": "LPI"},
        {"op": "resample", "spacing": 0.6},
        {"op": "crop", "start": [1, 0, 2], "size": [9, 8, 7]},
        {"op": "pad", "before": 2, "after": 1},
    ]

    def test_survive_above_2_24(self):
        for dtype in ("int32", "uint32"):
            array = (2**24 + 1 + 2 * np.arange(6 * 7 * 8)).astype(dtype).reshape(6, 7, 8)
            got = data(run(self.STAGES, {"a": image(array, affine(orientation="RSA"))}, kind="label")["a"])
            self.assertEqual(got.dtype, array.dtype)
            self.assertLessEqual(set(got.ravel().tolist()), set(array.ravel().tolist()) | {0})
            self.assertGreater(len(np.unique(got)), 100)

    def test_default_to_nearest(self):
        array = np.random.default_rng(0).choice([0, 2, 4, 250], (9, 8, 7)).astype(np.uint8)
        got = data(run([{"op": "resample", "spacing": 0.37}], {"a": image(array)}, kind="label")["a"])
        self.assertEqual(set(np.unique(got)), {0, 2, 4, 250})


class NotANumber(unittest.TestCase):
    def test_spreads_no_further_than_the_support(self):
        array = np.ones((15, 1, 1), np.float32)
        array[7] = np.nan
        got = data(run([{"op": "resample", "spacing": [0.5, 1, 1]}], {"a": image(array)})["a"]).ravel()
        self.assertTrue(np.isnan(got).any())
        self.assertFalse(np.isnan(got[:12]).any() or np.isnan(got[19:]).any())


if __name__ == "__main__":
    unittest.main()
