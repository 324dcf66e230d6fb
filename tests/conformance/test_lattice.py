"""Stages that only move voxels, against numpy and nibabel: every bit, every pixel type, the place of every voxel."""

import unittest

import nibabel
import numpy as np
from nibabel import orientations

import oracle
from support import (
    BOUNDARIES,
    DTYPES,
    NO_SHARED,
    ORIENTATIONS,
    SHARED,
    assert_affine,
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


if __name__ == "__main__":
    unittest.main()
