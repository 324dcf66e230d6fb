"""Adaptive histogram equalization against scikit-image's equalize_adapthist."""

import unittest

import numpy as np
from scipy import ndimage
from skimage.exposure import equalize_adapthist

from support import assert_close, data, image, run

# scikit-image cuts off what its 2^14 levels cannot hold, so it lies below by less than a level; both are then stretched
# from their least to their greatest value, which where that is nearly all levels adds a few hundredths.
TOLERANCE = 1.1 / (2**14 - 1)


def smooth_noise(shape, seed=0, sigma=3):
    """uint16 over all its range, for which scikit-image's first conversion changes nothing."""
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=shape), sigma)
    return np.round((noise - noise.min()) / np.ptp(noise) * 65535).astype(np.uint16)


class Clahe(unittest.TestCase):
    def check(self, array, wanted, **parameters):
        stage = {"op": "clahe", "units": "voxel", **parameters}
        assert_close(data(run([stage], {"a": image(array)})["a"]), wanted, str(stage), TOLERANCE)

    def test_defaults(self):
        for shape in ((64, 48, 40), (33, 50, 21), (16, 100, 17)):
            array = smooth_noise(shape)
            self.check(array, equalize_adapthist(array))

    def test_tiles(self):
        array = smooth_noise((40, 33, 30))
        for kernel in ((8, 8, 8), (7, 9, 12), (20, 33, 4), (40, 33, 30), (2, 3, 5)):
            self.check(array, equalize_adapthist(array, kernel), kernel=kernel)

    def test_limits_and_bins(self):
        array = smooth_noise((30, 31, 32))
        for clip_limit in (0, 0.001, 0.03, 0.3, 1):
            for bins in (10, 100, 256, 1000):
                if 0 < clip_limit and max(int(clip_limit * 8 * 16 * 11), 1) * bins < 8 * 16 * 11:
                    continue  # all bins together hold less than a tile, so that few levels are stretched to all
                wanted = equalize_adapthist(array, (8, 16, 11), clip_limit, bins)
                self.check(array, wanted, kernel=(8, 16, 11), clip_limit=clip_limit, bins=bins)

    def test_values_of_other_types(self):
        levels = smooth_noise((30, 28, 26))
        wanted = equalize_adapthist(levels)
        self.check(levels.astype(np.float32), wanted)
        self.check(levels.astype(np.float64) / 1000 - 7, wanted)
        self.check(levels.astype(np.int32) - 30000, wanted)

    def test_slices(self):
        """Each slice is scikit-image's image, where all have the same range."""
        array = smooth_noise((40, 36, 20))
        array[0, 0], array[-1, -1] = 0, 65535
        got = data(run([{"op": "clahe", "units": "voxel", "kernel": 9, "slices": "z"}], {"a": image(array)})["a"])
        for z in range(20):
            part = got[:, :, z].astype(float)
            stretched = (part - part.min()) / np.ptp(part)
            assert_close(stretched, equalize_adapthist(array[:, :, z], 9), f"slice {z}", TOLERANCE)

    def test_each_frame_by_itself(self):
        frames = [smooth_noise((24, 20, 18), seed) for seed in (1, 2)]
        wanted = np.stack([equalize_adapthist(frame) for frame in frames], axis=-1)
        got = data(run([{"op": "clahe"}], {"a": image(np.stack(frames, axis=-1))})["a"])
        assert_close(got, wanted, "frames", TOLERANCE)


if __name__ == "__main__":
    unittest.main()
