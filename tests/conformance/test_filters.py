"""gaussian against SciPy in double precision; lengths are millimetres."""

import unittest

import numpy as np
from scipy import ndimage

from support import BOUNDARIES, assert_affine, assert_close, data, image, odd_images, random_image, run


def scipy_gaussian(array, sigma, order, boundary, fill, truncate=4.0):
    return ndimage.gaussian_filter(np.asarray(array, float), sigma, order, mode=boundary, cval=fill, truncate=truncate)


class Gaussian(unittest.TestCase):
    def check(self, sigma_mm, order, boundary):
        images = odd_images()
        stage = {"op": "gaussian", "sigma": sigma_mm, "order": order, "boundary": boundary, "fill": 3}
        for name, got in run([stage], images).items():
            source = images[name]
            spacing = np.linalg.norm(source.affine[:3, :3], axis=0)
            per_mm = np.prod(spacing ** -np.asarray(order, float))  # SciPy's derivatives are per voxel
            # a derivative of a random volume has a smaller range than its input, whose rounding it inherits
            scale = np.ptp(data(source).astype(float)) * per_mm
            wanted = scipy_gaussian(data(source), np.asarray(sigma_mm) / spacing, order, boundary, 3) * per_mm
            assert_close(data(got), wanted, f"{stage} of {name}", scale=scale)
            assert_affine(got.affine, source.affine, name)

    def test_every_boundary(self):
        for boundary in BOUNDARIES:
            with self.subTest(boundary=boundary):
                self.check([1.7, 0.8, 2.9], [0, 0, 0], boundary)

    def test_orders(self):
        for order in ([1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 0], [2, 0, 1], [3, 3, 3]):
            with self.subTest(order=order):
                self.check([1.5, 1.5, 2.5], order, "reflect")

    def test_defaults(self):
        source = random_image((14, 9, 6), spacing=(1, 2, 0.5))
        got = run([{"op": "gaussian", "sigma": 1}], {"a": source})["a"]
        assert_close(data(got), scipy_gaussian(data(source), (1, 0.5, 2), 0, "reflect", 0))

    def test_truncate_and_voxel_units(self):
        source = random_image((14, 9, 6), spacing=(1, 2, 0.5))
        stage = {"op": "gaussian", "sigma": [2, 1, 0], "order": [1, 0, 0], "truncate": 2, "units": "voxel"}
        wanted = scipy_gaussian(data(source), (2, 1, 0), (1, 0, 0), "reflect", 0, 2)
        assert_close(data(run([stage], {"a": source})["a"]), wanted)

    def test_wider_than_the_volume(self):
        source = random_image((3, 2, 1))
        for boundary in ("reflect", "mirror", "nearest", "grid-wrap"):
            got = run([{"op": "gaussian", "sigma": 5, "boundary": boundary}], {"a": source})["a"]
            assert_close(data(got), scipy_gaussian(data(source), 5, 0, boundary, 0), boundary)

    def test_constant_stays(self):
        got = data(
            run([{"op": "gaussian", "sigma": 2}], {"a": image(np.full((9, 8, 7), 29, np.uint8))}, dtype="uint8")["a"]
        )
        self.assertTrue((got == 29).all())

    def test_frames_are_filtered_one_by_one(self):
        source = random_image((6, 5, 4, 3), "float32")
        got = data(run([{"op": "gaussian", "sigma": 1}], {"a": source})["a"])
        for frame in range(3):
            assert_close(got[..., frame], scipy_gaussian(data(source)[..., frame], 1, 0, "reflect", 0), frame)


if __name__ == "__main__":
    unittest.main()
