"""Real files of other software: each is right, or a named error; never a crash, never a silent wrong result."""

import json
import pathlib
import tempfile
import unittest

import nibabel
import numpy as np

import oracle
from support import NO_SHARED, SHARED, assert_affine, assert_close, call, write_spec

GEOMETRY = [{"op": "reorient", "axes": "RAS"}, {"op": "resample", "spacing": 3, "antialias": False}]
NORMALIZE = [*GEOMETRY, {"op": "normalize"}]
SPACING = 3


def run(stages):
    """The report, standard error and {id: image} of `stages` over every file of the shared data."""
    with tempfile.TemporaryDirectory(prefix="volpipe-real-") as folder:
        output = pathlib.Path(folder) / "out"
        done = call("run", write_spec(folder, stages), SHARED / "data", "-o", output, "--device", "cpu")
        report = json.loads((output / "volpipe-report.json").read_text())
        images = {}
        for item in report["items"]:
            if item["status"] == "ok":
                volume = nibabel.load(item["outputs"][0]["path"])
                images[item["id"]] = nibabel.Nifti1Image(np.array(volume.dataobj), volume.affine)
        return done, report, images


def read_canonical(path):
    """Voxels as nibabel reads them, RGB as components, brought to RAS."""
    volume = nibabel.load(path)
    array = np.asanyarray(volume.dataobj)
    if array.dtype.names:
        array = np.stack([array[name] for name in array.dtype.names], -1)
    return nibabel.as_closest_canonical(nibabel.Nifti1Image(array.astype(float), volume.affine))


def expected(path):
    source = read_canonical(path)
    array = source.get_fdata()
    spacing = np.linalg.norm(source.affine[:3, :3], axis=0)
    axes = [oracle.resample_axis(n, s, SPACING, "extent") for n, s in zip(array.shape, spacing)]
    volumes = array.reshape(*array.shape[:3], -1)
    sampled = np.stack([oracle.sample(volumes[..., c], axes) for c in range(volumes.shape[3])], -1)
    return sampled, oracle.grid_affine(source.affine, [(c[0], SPACING / s) for c, s in zip(axes, spacing)])


@unittest.skipUnless(SHARED.is_dir(), NO_SHARED)
class RealData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.done, cls.report, cls.images = run(GEOMETRY)

    def test_every_file_is_accounted_for(self):
        items = self.report["items"]
        failed = [item for item in items if item["status"] == "failed"]
        self.assertEqual(self.done.returncode, 1 if failed else 0, self.done.stderr)
        for item in failed:
            self.assertTrue(item["error"]["message"])
            self.assertIn(item["error"]["message"], self.done.stderr)
            self.assertTrue(item["error"]["path"])
        seen = " ".join([item["id"] for item in items])
        for path in (SHARED / "data").rglob("*"):
            if path.suffix in (".gz", ".nii", ".mha"):
                self.assertIn(path.name.split(".")[0], seen)

    def test_nifti_is_scipy_on_nibabel(self):
        by_path = {item["inputs"][0]["path"]: item["id"] for item in self.report["items"] if item["inputs"]}
        for path in sorted((SHARED / "data").rglob("*.nii*")):
            with self.subTest(path.name):
                got = self.images[by_path[str(path)]]
                wanted, matrix = expected(path)
                array = np.asarray(got.dataobj, float)
                # the steps of a stored affine are float32: a grid of 100 voxels is placed to about 1e-5 voxel
                assert_close(array.reshape(wanted.shape), wanted, path.name, tolerance=5e-5)
                if path.name != "minimal.nii.gz":  # no sform and no qform: nibabel centres and flips such a grid
                    assert_affine(got.affine, matrix, path.name)

    def test_normalize_has_mean_0_and_std_1(self):
        _, _, normalized = run(NORMALIZE)
        self.assertEqual(set(normalized), set(self.images))
        for name, got in normalized.items():
            before, after = np.asarray(self.images[name].dataobj, float), np.asarray(got.dataobj, float)
            wanted = (before - before.mean()) / before.std() if before.std() > 0 else np.zeros_like(before)
            assert_close(after, wanted, name)

    def test_the_dicom_series_is_one_volume(self):
        series = [item for item in self.report["items"] if "torchio_dicom" in item["id"]]
        self.assertEqual([item["status"] for item in series], ["ok"], [item.get("error") for item in series])
        self.assertEqual(series[0]["inputs"][0]["geometry"]["size"][2], 17)


if __name__ == "__main__":
    unittest.main()
