"""K-space stages against numpy.fft in double precision."""

import unittest

import numpy as np

from support import assert_affine, assert_close, data, odd_images, random_image, run

# The transform is of the image without its mean; then voxels are rounded to float32: some ulp (6e-8) of the largest.
TOLERANCE = 1e-6


def images():
    return {
        **odd_images(("float32", "int16", "uint8", "float64")),
        "frames": random_image((6, 5, 4, 2), "int16"),
        "even": random_image((16, 12, 10)),
        "prime": random_image((37, 41, 3)),
    }


def frequencies(n):
    """Cycles per field of view, signed, in the order of numpy.fft."""
    return np.round(np.fft.fftfreq(n) * n)


def filtered(array, mask):
    """Spatial axes first; the mask must leave a real image."""
    spectrum = np.fft.fftn(array, axes=(0, 1, 2))
    result = np.fft.ifftn(spectrum * mask.reshape(mask.shape + (1,) * (array.ndim - 3)), axes=(0, 1, 2))
    assert np.abs(result.imag).max() <= 1e-12 * np.abs(array).max()
    return result.real


class KSpace(unittest.TestCase):
    def check(self, stage, wanted):
        inputs = images()
        for name, got in run([stage], inputs).items():
            assert_close(data(got), wanted(data(inputs[name]).astype(float)), f"{stage} of {name}", TOLERANCE)
            assert_affine(got.affine, inputs[name].affine, name)

    def test_gibbs(self):
        for alpha in (0, 0.1, 0.45, 0.8, 1):

            def wanted(array):
                axes = [n for n in array.shape[:3] if n > 1]
                shares = np.meshgrid(*(2 * np.fft.fftfreq(n) for n in array.shape[:3]), indexing="ij")
                radius = sum(share**2 for share in shares)
                return filtered(array, radius <= len(axes) * (1 - alpha) ** 2 + 1e-9)

            self.check({"op": "gibbs", "alpha": alpha}, wanted)

    def test_ghosting(self):
        for axis, ghosts, intensity, restore in (("x", 2, 1, 0), ("y", 3, 0.6, 0.02), ("z", 4, 0.25, 0.5)):

            def wanted(array):
                number = "xyz".index(axis)
                k = frequencies(array.shape[number])
                line = np.where((k % ghosts == 0) & (abs(k) > restore * len(k) / 2), 1 - intensity, 1)
                shape = [1, 1, 1]
                shape[number] = -1
                return filtered(array, np.broadcast_to(line.reshape(shape), array.shape[:3]))

            stage = {"op": "ghosting", "axis": axis, "ghosts": ghosts, "intensity": intensity, "restore": restore}
            self.check(stage, wanted)

    def test_spike(self):
        for location in ((2, 0, 0), (1, -3, 2), (-4, 3, -1)):

            def wanted(array):
                shape = array.shape[:3]
                if any(2 * abs(k) > n for k, n in zip(location, shape)):
                    return None
                flat = array.reshape(shape + (-1,))
                result = np.empty_like(flat)
                for c in range(flat.shape[-1]):
                    spectrum = np.fft.fftn(flat[..., c])
                    height = 0.25 * np.ptp(flat[..., c]) * flat[..., c].size / 2
                    spectrum[location] += height
                    spectrum[tuple(-k for k in location)] += height
                    result[..., c] = np.fft.ifftn(spectrum).real
                return result.reshape(array.shape)

            stage = {"op": "kspace_spike", "location": list(location), "intensity": 0.25}
            inputs = {name: volume for name, volume in images().items() if wanted(data(volume).astype(float)) is not None}
            for name, got in run([stage], inputs).items():
                assert_close(data(got), wanted(data(inputs[name]).astype(float)), f"{stage} of {name}", TOLERANCE)

    def test_motion_keeps_the_mean_and_the_middle_of_k_space(self):
        inputs = images()
        for name, got in run([{"op": "motion", "movements": 3, "axis": "x"}], inputs).items():
            before, after = (data(volume).astype(float) for volume in (inputs[name], got))
            k = frequencies(before.shape[0])
            first = abs(k) <= 0.5 / 4 * len(k) / 2  # no movement is earlier
            lines = [np.fft.fft(array, axis=0)[first] for array in (before, after)]
            assert_close(after.mean((0, 1, 2)), before.mean((0, 1, 2)), name, TOLERANCE, np.abs(before).max())
            scale = np.abs(np.fft.fft(before, axis=0)).max()
            assert_close(np.abs(lines[0] - lines[1]), 0 * np.abs(lines[0]), name, 10 * TOLERANCE, scale)


if __name__ == "__main__":
    unittest.main()
