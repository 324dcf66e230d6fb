"""Stages that only move voxels, against numpy and nibabel: every bit, every pixel type, the place of every voxel."""

import unittest

import nibabel
import numpy as np
import scipy.ndimage
from nibabel import orientations

import oracle
from support import (
    BOUNDARIES,
    DTYPES,
    NO_SHARED,
    ORIENTATIONS,
    SHARED,
    affine,
    assert_affine,
    assert_close,
    data,
    image,
    load,
    odd_images,
    random_image,
    run,
)


def lattice_affine(matrix, linear, offset):
    step = np.eye(4)
    step[:3, :3], step[:3, 3] = linear, offset
    return matrix @ step


class Lattice(unittest.TestCase):
    def check(self, stage, wanted_array, wanted_affine=None, images=None):
        images = images or odd_images(DTYPES)
        for name, got in run([stage] if isinstance(stage, dict) else stage, images).items():
            source = images[name]
            wanted = wanted_array(data(source))
            self.assertEqual(data(got).dtype, data(source).dtype, f"{stage} of {name}")
            np.testing.assert_array_equal(data(got), wanted, f"{stage} of {name}")
            if wanted_affine:
                assert_affine(got.affine, wanted_affine(source), f"{stage} of {name}")

    def test_flip(self):
        for text, axes in (("x", (0,)), ("y", (1,)), ("xz", (0, 2)), ("xyz", (0, 1, 2))):

            def place(source):
                flipped = np.isin(np.arange(3), axes)
                return lattice_affine(
                    source.affine, np.diag(np.where(flipped, -1, 1)), np.where(flipped, np.array(source.shape) - 1, 0)
                )

            self.check({"op": "flip", "axes": text}, lambda a: np.flip(a, axes), place)

    def test_permute(self):
        for order in ([1, 0, 2], [2, 0, 1], [1, 2, 0], [0, 1, 2]):
            self.check(
                {"op": "permute", "order": order},
                lambda a: np.transpose(a, order),
                lambda s: lattice_affine(s.affine, np.eye(3)[:, order], 0),
            )

    def test_rotate90(self):
        for text, first, second in (("xy", 0, 1), ("yx", 1, 0), ("xz", 0, 2), ("zy", 2, 1)):
            for k in (1, 2, 3, -1, 4, 6):

                def place(source):
                    """Each quarter turn by itself: axis `first` comes from `second` reversed, `second` from `first`."""
                    matrix, shape = source.affine, list(source.shape)
                    for _ in range(k % 4):
                        step, offset = np.eye(3), np.zeros(3)
                        step[[first, second]] = step[[second, first]]
                        step[second, first], offset[second] = -1, shape[second] - 1
                        matrix = lattice_affine(matrix, step, offset)
                        shape[first], shape[second] = shape[second], shape[first]
                    return matrix

                stage = {"op": "rotate90", "axes": text, "k": k}
                self.check(stage, lambda a: np.rot90(a, k, (first, second)), place)

    def test_rotate90_in_the_world(self):
        source = random_image((7, 4, 5), "int16", spacing=(0.5, 2, 3), angles=(10, -20, 30), origin=(5, 6, 7))
        got = run([{"op": "rotate90", "move_world": True}], {"a": source})["a"]
        np.testing.assert_array_equal(data(got), np.rot90(data(source)))
        directions = source.affine[:3, :3] / [0.5, 2, 3]
        wanted = np.eye(4)
        wanted[:3, :3] = directions * [2, 0.5, 3]
        centre = source.affine @ [3, 1.5, 2, 1]
        wanted[:3, 3] = centre[:3] - wanted[:3, :3] @ [1.5, 3, 2]
        assert_affine(got.affine, wanted)

    def test_crop_foreground(self):
        array = np.zeros((17, 13, 9), np.int16)
        array[4:9, 3:12, 2:5] = np.arange(135).reshape(5, 9, 3) - 60
        array[6, 0, 0] = 3
        images = {"a": image(array, affine((0.8, 1.3, 2.5), (10, -20, 35), (-30, 12, 55)))}
        inside = np.argwhere(array > 20)
        low, high = inside.min(0), inside.max(0) + 1
        block = tuple(map(slice, low, high))
        self.check(
            {"op": "crop_foreground", "mask": {"above": 20}},
            lambda a: a[block],
            lambda s: lattice_affine(s.affine, np.eye(3), low),
            images,
        )
        margin = np.ceil(3 / np.array([0.8, 1.3, 2.5])).astype(int)
        clipped = np.maximum(low - margin, 0), np.minimum(high + margin, array.shape)
        self.check(
            {"op": "crop_foreground", "mask": {"above": 20}, "margin": 3},
            lambda a: a[tuple(map(slice, *clipped))],
            lambda s: lattice_affine(s.affine, np.eye(3), clipped[0]),
            images,
        )

    def test_crop(self):
        images = {"a": random_image((17, 13, 9), "int16", angles=(10, 20, 30))}
        self.check(
            {"op": "crop", "start": [3, 0, 2], "size": [5, 13, 4]},
            lambda a: a[3:8, :, 2:6],
            lambda s: lattice_affine(s.affine, np.eye(3), (3, 0, 2)),
            images,
        )

    def test_pad_every_boundary(self):
        images = odd_images(("int16", "float32", "uint8"))
        for boundary in BOUNDARIES:
            self.check(
                {"op": "pad", "before": [3, 0, 2], "after": [1, 4, 25], "boundary": boundary, "fill": 7},
                lambda a: oracle.pad(a, (3, 0, 2), (1, 4, 25), boundary, 7),
                lambda s: lattice_affine(s.affine, np.eye(3), (-3, 0, -2)),
                images,
            )

    def test_crop_or_pad(self):
        images = {"a": random_image((10, 4, 7), "int32", spacing=(1, 2, 3))}

        def wanted(a):
            return np.pad(a[2:8], ((0, 0), (2, 2), (0, 0)))

        self.check(
            {"op": "crop_or_pad", "size": [6, 8, 7]},
            wanted,
            lambda s: lattice_affine(s.affine, np.eye(3), (2, -2, 0)),
            images,
        )

    def test_numpy_agrees_where_it_pads_once(self):
        modes = {
            "constant": "constant",
            "nearest": "edge",
            "mirror": "reflect",
            "reflect": "symmetric",
            "grid-wrap": "wrap",
        }
        images = {"a": random_image((6, 5, 4), "int16")}
        for boundary, mode in modes.items():
            self.check(
                {"op": "pad", "before": 2, "after": [3, 1, 0], "boundary": boundary},
                lambda a: np.pad(a, ((2, 3), (2, 1), (2, 0)), mode),
                None,
                images,
            )

    def test_there_and_back(self):
        images = {"a": random_image((4, 5, 6), "uint16", orientation="LSP", angles=(5, 5, 5))}
        self.check(
            [
                {"op": "reorient", "axes": "RAS"},
                {"op": "flip", "axes": "y"},
                {"op": "pad", "before": 2, "after": 3},
                {"op": "crop", "start": [2, 2, 2], "size": [4, 6, 5]},
                {"op": "reorient", "axes": "LSP"},
            ],
            lambda a: a,
            lambda s: s.affine,
            images,
        )

    def test_every_dtype_keeps_every_bit(self):
        images = {dtype: random_image((5, 4, 3), dtype) for dtype in DTYPES}
        self.check(
            [
                {"op": "flip", "axes": "x"},
                {"op": "crop", "start": [1, 0, 0], "size": [3, 4, 3]},
                {"op": "permute", "order": [1, 0, 2]},
            ],
            lambda a: np.transpose(np.flip(a, 0)[1:4], (1, 0, 2)),
            None,
            images,
        )

    def test_not_a_number_is_copied(self):
        array = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 1], np.float32).reshape(6, 1, 1)
        got = data(run([{"op": "flip", "axes": "x"}], {"a": image(array)})["a"])
        self.assertEqual(got.tobytes(), np.ascontiguousarray(array[::-1]).tobytes())

    def test_select_frames(self):
        images = {"a": random_image((4, 3, 5, 6), "int16")}
        self.check({"op": "select_frames", "frames": [4, -1, 0]}, lambda a: a[..., [4, -1, 0]], None, images)
        for start, stop, step in ((1, None, 2), (None, None, -1), (-3, 99, None), (99, 1, -2)):
            given = {"start": start, "stop": stop, "step": step}
            stage = {"op": "select_frames", **{name: value for name, value in given.items() if value is not None}}
            self.check(stage, lambda a: a[..., slice(start, stop, step)], None, images)

    def test_split_and_stack(self):
        images = {"a": random_image((4, 3, 6, 3), "int16", angles=(5, 5, 5))}
        split = {"op": "split", "into": ["p", "q", "r"]}
        stack = {"op": "stack", "on": ["r", "p", "q"], "output": "image"}  # frames stay frames, the fourth axis of NIfTI
        self.check([split, stack], lambda a: a[..., [2, 0, 1]], lambda s: s.affine, images)
        split["axis"] = "z"
        stack = {"op": "stack", "on": ["p", "q"], "axis": "z", "output": "image"}
        self.check([split, stack], lambda a: a[:, :, :4], lambda s: s.affine, images)

    def test_frames(self):
        images = {"a": random_image((4, 3, 5, 6), "int16")}
        self.check({"op": "flip", "axes": "z"}, lambda a: np.flip(a, 2), None, images)


class Reorient(unittest.TestCase):
    def assert_same_volume(self, got, wanted, where):
        np.testing.assert_array_equal(data(got), data(wanted), where)
        self.assertEqual(data(got).dtype, data(wanted).dtype, where)
        assert_affine(got.affine, wanted.affine, where)

    def test_every_orientation_to_ras_is_nibabel(self):
        images = {
            code: random_image(
                (3, 4, 5), DTYPES[i % 8], i, spacing=(1, 2, 3), angles=(8, -6, 12), orientation=code, origin=(5, -7, 11)
            )
            for i, code in enumerate(ORIENTATIONS)
        }
        self.assertEqual([nibabel.aff2axcodes(v.affine) for v in images.values()], [tuple(c) for c in ORIENTATIONS])
        for code, got in run([{"op": "reorient", "axes": "RAS"}], images).items():
            self.assert_same_volume(got, nibabel.as_closest_canonical(images[code]), code)

    def test_ras_to_every_orientation(self):
        source = random_image((3, 4, 5), "int16", spacing=(1, 2, 3), angles=(8, -6, 12))
        for code in ORIENTATIONS:
            change = orientations.ornt_transform(
                orientations.io_orientation(source.affine), orientations.axcodes2ornt(code)
            )
            self.assert_same_volume(
                run([{"op": "reorient", "axes": code}], {"a": source})["a"], source.as_reoriented(change), code
            )

    @unittest.skipUnless(SHARED.is_dir(), NO_SHARED)
    def test_one_brain_in_24_orientations(self):
        images = {
            path.name.split(".")[0]: load(path) for path in sorted((SHARED / "data/orientations").glob("*.nii.gz"))
        }
        results = run([{"op": "reorient", "axes": "RAS"}], images)
        first = next(iter(results.values()))
        self.assertEqual(len(results), 24)
        for name, got in results.items():
            np.testing.assert_array_equal(data(got), data(first), name)
            self.assertLess(np.abs(got.affine - first.affine).max(), 1e-3, name)


class Untilt(unittest.TestCase):
    def test_a_tilted_series_is_scipy_on_an_upright_grid(self):
        matrix = affine((0.8, 0.9, 5), (3, -8, 20), (10, 20, 30))
        tilted = matrix.copy()
        tilted[:3, 2] += 0.31 * 5 / 0.9 * matrix[:3, 1]  # slices shifted along y
        tilted = tilted.astype(np.float32).astype(float)
        source = image(np.random.default_rng(1).normal(100, 30, (12, 11, 9)).astype(np.float32), tilted)
        got = run([{"op": "untilt", "fill": -500}], {"a": source})["a"]
        np.testing.assert_allclose(got.affine[:3, :2], tilted[:3, :2], atol=1e-5)
        steps = got.affine[:3, :3]
        np.testing.assert_allclose(steps.T @ steps, np.diag([0.64, 0.81, 25]), atol=1e-4)
        self.assertEqual(got.shape, (12, 11 + int(np.ceil(8 * 0.31 * 5 / 0.9)), 9))
        to_source = np.linalg.inv(tilted) @ got.affine
        targets = np.indices(got.shape).reshape(3, -1)
        index = to_source @ np.vstack([targets, np.ones(targets.shape[1])])
        index = np.where(np.abs(index - np.round(index)) < 1e-4, np.round(index), index)[:3]
        wanted = scipy.ndimage.map_coordinates(data(source).astype(float), index, order=1, mode="constant", cval=-500)
        assert_close(data(got).reshape(-1), wanted, "untilt", 1e-4)


if __name__ == "__main__":
    unittest.main()
