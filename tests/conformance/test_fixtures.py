"""Sound and faulty files in one folder: the sound ones are written, each faulty one is named with its reason."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import nibabel
import numpy as np

from support import NO_SHARED, SHARED, call, write_spec

# By stem: the notices expected of a file that is read, or FAILS and words of the reason.
FAILS = "fails"
NIFTI = {
    "01_ok": [],
    "02_nan_inf_voxels_f4": ["non_finite_voxels"],
    "03_pixdim_zero_sform0": (FAILS, "pixdim[3] is 0"),
    "04_pixdim_zero_qform1": (FAILS, "pixdim[3] is 0"),
    "05_pixdim_nan_qform1": (FAILS, "pixdim[3] is nan"),
    "06_pixdim_negative_qform1": (FAILS, "pixdim[2] is -2"),
    "08_sform_nan": (FAILS, "sform"),
    "09_sform_nan_qform1": (FAILS, "sform"),
    "10_sform_zeros": (FAILS, "singular"),
    "12_sform_shear_10deg_only": ["pixdim_mismatch"],
    "13_sform_shear_small_1e-4": ["skew_removed"],
    "15_sform_shear_qform1": ["affine_disagreement", "pixdim_mismatch"],
    "16_q1_s1_conflict_translation": ["affine_disagreement"],
    "17_q1_s2_conflict_translation": ["affine_disagreement"],
    "19_sform_spacing2_pixdim1": ["pixdim_mismatch"] * 3,
    "21_left_handed": [],
    "22_permuted_axes": [],
    "23_4d_t3": [],
    "24_4d_t1": ["single_frame"],
    "25_2d": [],
    "26_2d_as_3d_nz1": [],
    "27_5d_vector": [],
    "28_i2_slope": [],
    "30_i4_bigvalues": [],
    "31_slope_nan": ["scaling_ignored"],
    "32_slope_zero_inter5": ["scaling_ignored"],
    "34_slope_negative": [],
    "35_f8_precision": [],
    "36_i8": ["narrowed"],
    "37_big_endian_i2": [],
    "38_pair": [],
    "39_trunc_data": (FAILS, "truncated"),
    "40_trunc_header": (FAILS, "too short"),
    "41_empty": (FAILS, "empty"),
    "42_text": (FAILS, "too short"),
    "43_trunc": (FAILS, "truncated"),
    "45_badcrc": (FAILS, "CRC"),
    "46_plain_named": ["misleading_name"],
    "48_dim_zero": (FAILS, "dim[2] is 0"),
    "50_dim_huge": (FAILS, "bytes"),
    "51_dim0_0": (FAILS, "dim[0] is 0"),
    "53_bitpix_wrong": (FAILS, "bitpix"),
    "54_datatype_unknown": (FAILS, "datatype 77"),
    "56_vox_offset_0": (FAILS, "vox_offset"),
    "57_units_micron": [],
    "58_units_meter": [],
    "59_magic_bad": (FAILS, "magic"),
    "60_quat_not_unit": (FAILS, "quaternion"),
    "62_qfac_minus1": [],
    "63 ok": [],
    "64_UPPER": [],
}
DAMAGED = {
    "ok": [],
    "gz_ok": [],
    "trailing_garbage": ["trailing_bytes"],
    "trunc50": (FAILS, "truncated"),
    "gz_trunc50": (FAILS, "truncated"),
    "gz_trunc_last100": (FAILS, "truncated"),
    "gz_badcrc": (FAILS, "CRC"),
    "gz_bitflip_mid": (FAILS, "gzip"),
}
# By folder: the number of volumes written, and words of the reason where the folder fails.
DICOM = {
    "A_ok_shuffled_names": (1, None),
    "B_missing_slice": (0, "missing"),
    "C_duplicate_slice": (0, "same position"),
    "D_two_series": (2, None),
    "F_gantry_tilt_20deg": (1, None),
    "G_slope_varies": (1, None),
    "H_multiframe_ct": (0, ""),
    "I_no_ipp": (0, "osition"),
    "J_trunc_one": (0, "2.dcm"),
    "K_with_junk": (1, None),
    "L_monochrome1": (1, None),
    "M_reversed_z": (1, None),
    "O_jitter_0.1mm": (0, ""),
    "Q_single_slice": (1, None),
    "S_unicode é 画像": (1, None),
    "U_no_pixelspacing": (0, "pacing"),
}


class Run:
    """The generator's files through a pipeline that changes nothing."""

    def __init__(self, generator, folder, rename=lambda root: None):
        self.scratch = tempfile.TemporaryDirectory(prefix="volpipe-fixtures-")
        unittest.addModuleCleanup(self.scratch.cleanup)
        root = pathlib.Path(self.scratch.name)
        subprocess.run([sys.executable, SHARED / "fixtures" / generator], cwd=root, check=True)
        self.inputs, self.outputs = root / folder, root / "out"
        rename(self.inputs)
        self.done = call("run", write_spec(root, []), self.inputs, "-o", self.outputs, "--device", "cpu")
        self.items = json.loads((self.outputs / "volpipe-report.json").read_text())["items"]

    def written(self, stem):
        return sorted(self.outputs.rglob(f"{stem}*.nii"))


def stem_of(item):
    """A file that no format claims has its whole name as id."""
    return pathlib.PurePath(item["id"]).name.split(".")[0]


def item_of(run, stem):
    found = [item for item in run.items if stem_of(item) == stem]
    assert len(found) == 1, f"{stem}: {len(found)} items of {[item['id'] for item in run.items]}"
    return found[0]


def prefix_packed(root):
    """trunc50.nii and trunc50.nii.gz would have one output."""
    for path in root.glob("*.nii.gz"):
        path.rename(path.with_name("gz_" + path.name))


@unittest.skipUnless(SHARED.is_dir(), NO_SHARED)
class Nifti(unittest.TestCase):
    def check(self, run, table):
        self.assertEqual(run.done.returncode, 1, run.done.stderr)
        self.assertEqual({stem_of(item) for item in run.items}, set(table))
        for stem, expected in table.items():
            with self.subTest(stem):
                item = item_of(run, stem)
                if isinstance(expected, tuple):
                    self.assertEqual(item["status"], "failed")
                    self.assertIn(expected[1], item["error"]["message"])
                    self.assertTrue(any(stem in line and expected[1] in line for line in run.done.stderr.splitlines()))
                    self.assertEqual(run.written(stem), [])
                else:
                    self.assertEqual(item["status"], "ok", item.get("error"))
                    self.assertEqual([notice["code"] for notice in item["warnings"]], expected)

    def test_headers(self):
        run = Run("make_nifti.py", "d")
        self.check(run, NIFTI)
        for stem, expected in NIFTI.items():
            if isinstance(expected, list):
                with self.subTest(stem):
                    self.check_content(run, stem)

    def check_content(self, run, stem):
        """What nibabel reads, in millimetres."""
        path = next(path for path in sorted(run.inputs.rglob(f"{stem}.*")))
        source = nibabel.load(path) if stem != "46_plain_named" else nibabel.Nifti1Image.from_bytes(path.read_bytes())
        got = nibabel.load(run.written(stem)[0])
        wanted = source.get_fdata()
        np.testing.assert_allclose(np.squeeze(got.get_fdata()), np.squeeze(wanted), rtol=1e-7, atol=0)
        affine = source.affine.copy()
        affine[:3] *= {"57_units_micron": 1e-3, "58_units_meter": 1e3}.get(stem, 1)
        np.testing.assert_allclose(got.affine, affine, atol=2e-4 if stem.startswith("13_") else 1e-6)

    def test_damaged(self):
        self.check(Run("make_nifti_damaged.py", "e", prefix_packed), DAMAGED)


@unittest.skipUnless(SHARED.is_dir(), NO_SHARED)
class Dicom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_of = Run("make_dicom.py", "s")

    def test_table(self):
        run = self.run_of
        self.assertEqual(run.done.returncode, 1, run.done.stderr)
        for folder, (count, reason) in DICOM.items():
            with self.subTest(folder):
                self.assertEqual(len(run.written(folder)), count, run.done.stderr)
                if reason is not None:
                    lines = [line for line in run.done.stderr.splitlines() if folder in line and "error" in line]
                    self.assertTrue(any(reason in line for line in lines), lines)

    def volume(self, folder):
        return nibabel.load(self.run_of.written(folder)[0])

    def test_slices_are_sorted_by_position(self):
        """The generator gives slice k the value 10 (k + 1) and puts it at z = 2.5 k mm, in M_reversed_z at -2.5 k."""
        for folder, step in (("A_ok_shuffled_names", 2.5), ("M_reversed_z", -2.5), ("S_unicode é 画像", 2.5)):
            got = self.volume(folder)
            z = got.affine[2, 3] + got.affine[2, 2] * np.arange(got.shape[2])
            np.testing.assert_allclose(got.get_fdata()[0, 0], 10 * (z / step + 1), atol=1e-4, err_msg=folder)

    def test_slope_of_each_slice(self):
        got = self.volume("G_slope_varies").get_fdata()[0, 0]
        np.testing.assert_allclose(got, 101 * np.array([1, 0.5, 0.25, 2]), rtol=1e-7)

    def test_monochrome1_is_not_inverted(self):
        np.testing.assert_array_equal(self.volume("L_monochrome1").get_fdata()[0, 0], [10, 20, 30])

    def test_gantry_tilt_is_a_sheared_grid(self):
        """Slices 2.5 mm apart along z, rows tilted by 20 degrees: the third axis is where the slices are."""
        got = self.volume("F_gantry_tilt_20deg").affine
        np.testing.assert_allclose(np.abs(got[:3, 2]), [0, 0, 2.5], atol=1e-5)
        cosine = got[:3, 1] @ got[:3, 2] / np.linalg.norm(got[:3, 1]) / np.linalg.norm(got[:3, 2])
        self.assertAlmostEqual(abs(cosine), np.sin(np.radians(20)), places=5)


if __name__ == "__main__":
    unittest.main()
