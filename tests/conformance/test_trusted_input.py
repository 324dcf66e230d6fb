"""What is trusted in a file: rows of what stock ITK 5.2.1 does with bad input, and reports of users of MONAI, TorchIO,
ITK, SimpleITK and dcm2niix on loading and saving, each as a small input with the right answer.

ITK_ROWS and REPORTS say which test holds which row; the last test sees to it that they all exist.
"""

import gzip
import itertools
import json
import os
import pathlib
import resource
import struct
import unittest
import zlib

import nibabel
import numpy as np

from file_samples import (
    BIG_ENDIAN,
    ENHANCED_CT,
    RLE,
    SECONDARY_CAPTURE,
    dicom,
    element,
    nifti,
    numbers,
    rle_frame,
    sequence,
    write_series,
)
from support import affine, assert_affine, call, data, image, load, rotation, write_spec
from test_public_reports import LPS, Case, exact_affine, metaimage, nrrd

# What ITK 5.2.1 reads silently, or ends the process by: the test that says what happens here.
ITK_ROWS = {
    "NaN and infinite voxels become 0": "NiftiValues.test_non_finite_voxels_are_kept_and_counted",
    "a NaN in the sform aborts the process": "NiftiGeometry.test_nan_in_an_sform",
    "pixdim 0 or NaN is 1.0": "NiftiGeometry.test_pixdim_must_be_positive",
    "pixdim -2 is 2 and a flip": "NiftiGeometry.test_pixdim_must_be_positive",
    "dim[2] of 0 or -5 is 1": "NiftiHeader.test_impossible_fields",
    "shear is refused, or rounding kept": "NiftiGeometry.test_shear_and_rounding",
    "a sheared sform beside a qform is dropped": "NiftiGeometry.test_both_maps",
    "qform or sform by code, both rewritten": "NiftiGeometry.test_both_maps",
    "an sform of 2 mm beside a pixdim of 1": "NiftiGeometry.test_pixdim_beside_the_sform",
    "the first volume of 4-D and 5-D, directions lost": "NiftiAxes.test_frames_and_channels",
    "2-D with pixdim[3] 0 is refused": "NiftiAxes.test_two_dimensions",
    "scl_slope NaN or infinite is 1": "NiftiValues.test_unusable_slopes",
    "scl_slope 0 adds the intercept": "NiftiValues.test_unusable_slopes",
    "int32 is scaled in float32": "NiftiValues.test_scaling_in_double",
    "vox_offset 0 or NaN shifts the voxels": "NiftiHeader.test_impossible_fields",
    "a bad magic is Analyze": "NiftiHeader.test_impossible_fields",
    "a quaternion longer than 1 is normalised": "NiftiGeometry.test_quaternion_longer_than_one",
    "bitpix that is not the datatype's is ignored": "NiftiHeader.test_impossible_fields",
    "a truncated .nii is filled with 0": "Damage.test_truncated_files",
    "a truncated .nii.gz is filled with 0": "Damage.test_truncated_files",
    "a bad CRC or a flipped bit is read": "Damage.test_checksums",
    "gzip named .nii is not recognised": "Damage.test_names_that_mislead",
    "32767^3 is allocated before it fails": "NiftiHeader.test_sizes_that_no_file_has",
    "a missing output folder is no error": "Writing.test_missing_folders_are_made",
    "a full disk is no error": "Writing.test_a_file_that_cannot_grow",
    "a repeated .nii.gz is the same": "Writing.test_the_same_bytes_again",
    "a missing slice averages the spacing": "DicomGaps.test_missing_slice",
    "a copy of a slice is one more slice": "DicomRepeats.test_copies",
    "two volumes of one UID are stacked": "DicomRepeats.test_two_volumes_under_one_uid",
    "gantry tilt is straightened silently": "DicomPlaces.test_gantry_tilt",
    "MONOCHROME1 is inverted": "DicomValues.test_monochrome1",
    "multi-frame without positions is 1 mm apart": "DicomPlaces.test_frames_without_positions",
    "no spacing or position is 1 mm and file order": "DicomPlaces.test_no_geometry",
    "short pixel data are filled with 0": "DicomValues.test_short_pixel_data",
    "order, reversed z, junk, unicode, two UIDs, localizer, unequal spacing": "DicomPlaces.test_what_itk_does_right",
    "concatenated members are legal, a missing trailer is not": "Damage.test_members_and_trailers",
}

# By number in the list of reports; the numbers that are missing are none of loading and saving.
REPORTS = {
    "28 MONAI #8468 enhanced CT": "DicomPlaces.test_enhanced_frames",
    "29 MONAI #6944 #6942 #6159 one file": "DicomPlaces.test_single_slice",
    "31 MONAI PydicomReader order": "DicomGaps.test_instance_numbers_do_not_count",
    "32 MONAI #1711 axes": "DicomPlaces.test_axes_of_a_ct",
    "33 MONAI #2613 to NIfTI and back": "DicomPlaces.test_to_nifti_and_back",
    "34 ITK #6656, Slicer #4409 gantry tilt": "DicomPlaces.test_gantry_tilt",
    "36 rse-panimg #7, ITK #1607 steps": "DicomGaps.test_float_noise_and_a_gap",
    "38 MONAI PR #8188 #8283 scaling and byte order": "Encodings.test_all_give_the_same_voxels",
    "39 MONAI #3176 #7185, TorchIO #684 vectors and 4-D": "NiftiAxes.test_frames_and_channels",
    "40 TorchIO #1467 #669, ITK #3994 skew": "NiftiGeometry.test_shear_and_rounding",
    "42 MONAI #7371 #7912 #3356 #8653 NRRD": "Nrrd.test_directions_and_kinds",
    "43 MONAI #2028 #2090 round trip": "Writing.test_round_trip",
    "44 MONAI #2316 memory": "Memory.test_a_result_that_does_not_fit_is_refused_first",
    "45 MONAI #8107 order of voxels": "NiftiAxes.test_first_axis_runs_fastest",
}

CROPPED = {"op": "crop", "start": [0, 0, 0], "size": [4, 5, 6]}
SHEAR = [[1, 0, 0, 0], [0, 1, np.tan(np.radians(10)), 0], [0, 0, 1, 0], [0, 0, 0, 1]]


class Trust(Case):
    def array(self, dtype=np.float32, shape=(4, 5, 6)):
        return (np.arange(np.prod(shape)) % 100).astype(dtype).reshape(shape, order="F")

    def info(self, path, *options):
        """(exit code, the one entry) of volpipe info --json."""
        done = call("info", "--json", path, *options)
        files = json.loads(done.stdout)["files"]
        self.assertEqual(len(files), 1, done.stdout)
        return done.returncode, files[0]

    def assert_refused(self, path, *reasons, options=()):
        """`info` and `run` name the file and the reason; nothing is written."""
        code, entry = self.info(path, *options)
        self.assertEqual(code, 1, entry)
        for reason in reasons:
            self.assertIn(reason, entry["error"]["message"])
        self.assertIn(entry["error"]["code"], ("input", "unsupported"))
        out = self.folder / f"refused{self.runs}"
        self.runs += 1
        done = call("run", write_spec(self.folder, []), path, "-o", out, "--device", "cpu")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(reasons[0], done.stderr)
        self.assertEqual([p for p in out.rglob("*") if not p.name.startswith("volpipe-") and p.is_file()], [])

    def read(self, path, *options):
        """(voxels and affine as an identity pipeline writes them, codes of the notices, the entry of info)."""
        code, entry = self.info(path, *options)
        self.assertEqual(code, 0, entry["error"])
        got = self.run_one([], pathlib.Path(path)) if not options else None
        return got, [notice["code"] for notice in entry["notices"]], entry

    def nifti(self, name="a.nii", array=None, matrix=None, **fields):
        return self.write(name, nifti(self.array() if array is None else array, matrix, **fields))


class NiftiHeader(Trust):
    def test_impossible_fields(self):
        """nifti_clib #196, #197: fields that ITK ignores or repairs silently."""
        for fields, reason in (
            ({"dim": [3, 4, 0, 6, 1, 1, 1, 1]}, "dim[2] is 0"),
            ({"dim": [3, 4, -5, 6, 1, 1, 1, 1]}, "dim[2] is -5"),
            ({"dim": [0, 4, 5, 6, 1, 1, 1, 1]}, "dim[0] is 0"),
            ({"dim": [200, 4, 5, 6, 1, 1, 1, 1]}, "dim[0]"),
            ({"vox_offset": 0}, "vox_offset"),
            ({"vox_offset": np.nan}, "vox_offset"),
            ({"vox_offset": -1}, "vox_offset"),
            ({"magic": b"xxx"}, "magic"),
            ({"bitpix": 8}, "bitpix"),
            ({"datatype": 77, "bitpix": 32}, "datatype 77"),
        ):
            with self.subTest(reason, **{key: str(value) for key, value in fields.items()}):
                self.assert_refused(self.nifti(**fields), reason)

    def test_sizes_that_no_file_has(self):
        """nifti_clib #196: 377 bytes asked for 18 GB."""
        limit = 2 << 30

        def bounded():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        path = self.nifti(dim=[3, 32767, 32767, 32767, 1, 1, 1, 1])
        self.assert_refused(path, "bytes")
        done = call("info", "--json", path, preexec_fn=bounded)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["files"][0]["error"]["code"], "input")
        packed = self.write("b.nii.gz", gzip.compress(path.read_bytes()))
        self.assert_refused(packed, "")

    def test_other_endianness(self):
        """nifti-rs #34, Neurotica #1: byte order of the header and of the voxels."""
        for dtype in (np.int16, np.float32, np.float64, np.int32):
            array = self.array(dtype)
            got, codes, _ = self.read(self.nifti(array=array, endian=">"))
            np.testing.assert_array_equal(data(got), array)
            self.assertEqual(codes, [])

    def test_units(self):
        """Micrometres and metres are millimetres."""
        for units, scale in ((1, 1e3), (2, 1), (3, 1e-3)):
            matrix = np.diag([2 / scale, 2 / scale, 2 / scale, 1])
            got, _, _ = self.read(self.nifti(matrix=matrix, xyzt_units=units))
            assert_affine(got.affine, np.diag([2, 2, 2, 1]), units)


class NiftiGeometry(Trust):
    def test_nan_in_an_sform(self):
        """ITK ends the process, whatever the qform says; here it is one file that fails."""
        offset = np.eye(4)
        offset[0, 3] = np.nan
        first = np.eye(4)
        first[0, 0] = np.nan
        for matrix, qform in itertools.product((first, offset), (0, 1)):
            fields = {f"srow_{'xyz'[row]}": matrix[row] for row in range(3)}
            self.assert_refused(self.nifti(qform_code=qform, **fields), "sform")

    def test_a_singular_sform(self):
        fields = {f"srow_{axis}": np.zeros(4) for axis in "xyz"}
        self.assert_refused(self.nifti(**fields), "singular")

    def test_pixdim_must_be_positive(self):
        """ANTs #353, mriqc #378: the field is named."""
        for value, text in ((0, "pixdim[3] is 0"), (np.nan, "pixdim[3] is nan"), (-2, "pixdim[3] is -2")):
            for qform in (0, 1):
                path = self.nifti(sform_code=0, qform_code=qform, pixdim=[1, 1, 1, value, 1, 1, 1, 1])
                self.assert_refused(path, text)

    def test_shear_and_rounding(self):
        """ITK #3994, #2674: one threshold; rounding is removed and said, shear is kept exactly."""
        for shear, codes in ((np.tan(np.radians(10)), []), (np.tan(np.radians(5)), []), (2e-3, []), (1e-4, ["skew_removed"]), (0, [])):
            matrix = np.eye(4)
            matrix[1, 2] = shear
            got, found, _ = self.read(self.nifti(matrix=matrix))
            self.assertEqual(found, codes, shear)
            np.testing.assert_allclose(got.affine, matrix, atol=1e-6 if not codes else 1e-4)
        angle = np.radians(10)
        self.assertLess(np.sin(angle), np.tan(angle))

    def test_both_maps(self):
        """MRtrix3 #1210, ANTsPy #854, simnibs #110: the sform where its code is above 0, the other said in mm."""
        moved = np.eye(4)
        moved[0, 3] = 50
        for matrix, codes, distance in ((moved, (1, 1), 40), (moved, (1, 2), 40), (moved, (2, 1), 40), (SHEAR, (1, 1), None)):
            path = self.nifti(matrix=matrix, qform_code=codes[0], sform_code=codes[1], qoffset_x=10)
            got, found, entry = self.read(path)
            assert_affine(got.affine, matrix)
            self.assertIn("affine_disagreement", found)
            self.assertEqual((entry["header"]["qform_code"], entry["header"]["sform_code"]), codes)
            self.assertEqual(entry["header"]["affine_used"], "sform")
            if distance:
                self.assertAlmostEqual(entry["header"]["disagreement_mm"], distance, places=4)
            self.assertEqual(np.array(entry["header"]["sform_mm"]).shape, (3, 4))
        path = self.nifti(matrix=moved, qform_code=0, qoffset_x=10)
        self.assertEqual(self.read(path)[1], [])

    def test_the_user_decides(self):
        """MRtrix3 #1210: --affine; a map that is not there is an error."""
        moved = np.eye(4)
        moved[0, 3] = 50
        path = self.nifti(matrix=moved, qform_code=1, qoffset_x=10)
        for name, origin in (("auto", 50), ("sform", 50), ("qform", 10)):
            _, found, entry = self.read(path, "--affine", name)
            self.assertEqual(entry["geometry"]["origin_mm"][0], origin)
            self.assertIn("affine_disagreement", found)
        _, _, entry = self.read(path, "--affine", "pixdim")
        self.assertEqual(entry["header"]["affine_used"], "pixdim")
        code, entry = self.info(self.nifti("b.nii", qform_code=0), "--affine", "qform")
        self.assertEqual(code, 1)
        self.assertIn("qform", entry["error"]["message"])

    def test_no_map_is_said(self):
        """nilearn #3168: both codes 0."""
        _, found, entry = self.read(self.nifti(sform_code=0))
        self.assertEqual(found, ["no_affine"])
        self.assertEqual(entry["header"]["affine_used"], "pixdim")

    def test_pixdim_beside_the_sform(self):
        """nifti_clib #127: the spacing is that of the map used, the difference is said."""
        matrix = np.diag([2.0, 2, 2, 1])
        got, found, _ = self.read(self.nifti(matrix=matrix, pixdim=[1, 1, 1, 1, 1, 1, 1, 1]))
        assert_affine(got.affine, matrix)
        self.assertEqual(found, ["pixdim_mismatch"] * 3)
        got, found, _ = self.read(self.nifti(matrix=matrix, qform_code=1, pixdim=[1, 1, 1, 1, 1, 1, 1, 1]))
        assert_affine(got.affine, matrix)
        self.assertIn("affine_disagreement", found)

    def test_quaternion_longer_than_one(self):
        path = self.nifti(sform_code=0, qform_code=1, quatern_b=0.9, quatern_c=0.9, quatern_d=0.9)
        self.assert_refused(path, "quaternion")

    def test_left_handed_and_permuted(self):
        """ITK #1771, dcm2niix #863: the sign of the determinant stays, by either map."""
        for matrix in (np.diag([-1.0, 1, 1, 1]), np.array([[0, 0, 3.0, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1]])):
            got, found, _ = self.read(self.nifti(matrix=matrix))
            assert_affine(got.affine, matrix)
            self.assertEqual(found, [])
        got, _, _ = self.read(self.nifti(sform_code=0, qform_code=1, pixdim=[-1, 1, 1, 1, 1, 1, 1, 1]))
        assert_affine(got.affine, np.diag([1, 1, -1, 1]))


class NiftiAxes(Trust):
    def test_frames_and_channels(self):
        """MONAI #3176, #7185, TorchIO #684: dim[4] is frames, dim[5] channels; directions stay."""
        matrix = np.diag([-1.0, -1, 2, 1])
        for shape, axis, components in (
            ((8, 8, 8, 5), "frames", 5),
            ((10, 10, 10, 1, 2), "channels", 2),
            ((4, 5, 6, 1, 3), "channels", 3),
        ):
            array = self.array(np.float32, shape)
            got, _, entry = self.read(self.nifti(array=array, matrix=matrix))
            self.assertEqual((entry["component_axis"], entry["components"]), (axis, components))
            self.assertEqual(entry["geometry"]["orientation"], "LPS")
            assert_affine(got.affine, matrix)
            np.testing.assert_array_equal(data(got), array)

    def test_one_frame(self):
        """ITK #3456: a fourth dimension of one is said."""
        _, found, entry = self.read(self.nifti(array=self.array(np.float32, (4, 5, 6, 1))))
        self.assertEqual((found, entry["components"]), (["single_frame"], 1))

    def test_two_dimensions(self):
        """STIR #456: one slice; what the third axis is, is said or taken from the map."""
        flat = self.array(np.float32, (4, 5))
        got, _, entry = self.read(self.nifti(array=flat, pixdim=[1, 1, 1, 0, 0, 0, 0, 0]))
        self.assertEqual(entry["geometry"]["size"], [4, 5, 1])
        np.testing.assert_array_equal(np.squeeze(data(got)), flat)
        _, _, entry = self.read(self.nifti(array=flat[..., None], matrix=np.diag([1.0, 1, 7, 1])))
        self.assertEqual(entry["geometry"]["spacing_mm"], [1, 1, 7])

    def test_first_axis_runs_fastest(self):
        """MONAI #8107: voxels stay in the order of the file; nothing is transposed."""
        array = self.array(np.int16, (7, 5, 3))
        got, _, _ = self.read(self.nifti(array=array))
        np.testing.assert_array_equal(data(got), array)
        self.assertEqual(data(got)[1, 0, 0], 1)


class NiftiValues(Trust):
    def test_non_finite_voxels_are_kept_and_counted(self):
        """ITK PR #6683, ANTsRCore #124, nibabel #1248."""
        array = self.array()
        array.ravel(order="F")[:3] = [np.nan, np.inf, -np.inf]
        array[0, 0, 0], array[1, 0, 0], array[2, 0, 0] = np.nan, np.inf, -np.inf
        got, found, entry = self.read(self.nifti(array=array))
        np.testing.assert_array_equal(data(got), array)
        self.assertEqual(found, ["non_finite_voxels"])
        self.assertEqual(entry["intensity"]["non_finite"], 3)

    def test_unusable_slopes(self):
        """A slope of 0, NaN or infinity means no scaling, intercept and all."""
        array = self.array(np.int16)
        for slope, intercept in ((0, 5), (np.nan, np.nan), (np.inf, 0), (np.nan, 5)):
            got, found, _ = self.read(self.nifti(array=array, scl_slope=slope, scl_inter=intercept))
            np.testing.assert_array_equal(data(got), array)
            self.assertEqual(found, ["scaling_ignored"], (slope, intercept))

    def test_scaling_in_double(self):
        """16777217 times 2 is 33554434, not 33554432."""
        array = (16777217 + np.arange(120, dtype=np.int32)).reshape((4, 5, 6), order="F")
        got, _, _ = self.read(self.nifti(array=array, scl_slope=2))
        np.testing.assert_array_equal(data(got), 2 * array.astype(float))

    def test_scaled_integers(self):
        """nibabel #1001, nifti-rs #28: the values, whatever their type."""
        for dtype, slope, intercept in ((np.int16, 0.01, -3), (np.uint16, 0.5, 0), (np.uint8, -1, 255)):
            array = self.array(dtype)
            got, _, _ = self.read(self.nifti(array=array, scl_slope=slope, scl_inter=intercept))
            wanted = array * float(np.float32(slope)) + intercept
            np.testing.assert_allclose(data(got), wanted, rtol=1e-6, atol=1e-6)

    def test_wide_integers(self):
        """nibabel #1089, AFNI #336: int64 becomes int32 where it fits, and is refused where not."""
        array = self.array(np.int64)
        got, found, _ = self.read(self.nifti(array=array))
        np.testing.assert_array_equal(data(got), array)
        self.assertEqual(found, ["narrowed"])
        array[3, 4, 5] = 2**40
        self.assert_refused(self.nifti(array=array), str(2**40))


class Damage(Trust):
    def packed(self):
        """Of voxels that do not pack to nothing."""
        array = np.random.default_rng(0).integers(0, 4000, (20, 20, 20), np.int16)
        return gzip.compress(nifti(array), mtime=0)

    def test_truncated_files(self):
        """TotalSegmentator #24, fmriprep #2549: never zeros for what is missing."""
        whole = nifti(self.array())
        for kept in (0, 100, 347, 352, 500, len(whole) - 1):
            path = self.write("a.nii", whole[:kept])
            done = call("info", path)
            self.assertEqual((done.returncode, done.stdout), (1, ""), kept)
            self.assertIn("a.nii", done.stderr)
        packed = self.packed()
        for kept in (0, 10, len(packed) // 2, len(packed) - 100, len(packed) - 8, len(packed) - 1):
            path = self.write("a.nii.gz", packed[:kept])
            done = call("info", path)
            self.assertEqual((done.returncode, done.stdout), (1, ""), kept)
            self.assertIn("a.nii.gz", done.stderr)

    def test_checksums(self):
        packed = bytearray(self.packed())
        for at in (-8, -4, len(packed) // 2):
            damaged = bytearray(packed)
            damaged[at] ^= 4
            self.assert_refused(self.write("a.nii.gz", bytes(damaged)), "")

    def test_members_and_trailers(self):
        """gzip files of several members are one stream; a member without its trailer is not whole."""
        array = self.array()
        whole = nifti(array)
        first, second = gzip.compress(whole[:700]), gzip.compress(whole[700:])
        got, found, _ = self.read(self.write("a.nii.gz", first + second))
        np.testing.assert_array_equal(data(got), array)
        self.assertEqual(found, [])
        self.assert_refused(self.write("b.nii.gz", first + second[:-8]), "")
        _, found, _ = self.read(self.write("c.nii.gz", gzip.compress(whole + b"more")))
        self.assertEqual(found, ["trailing_bytes"])

    def test_names_that_mislead(self):
        array = self.array()
        for name, content in (("a.nii", gzip.compress(nifti(array))), ("b.nii.gz", nifti(array))):
            got, found, _ = self.read(self.write(name, content))
            np.testing.assert_array_equal(data(got), array)
            self.assertEqual(found, ["misleading_name"])
        self.assert_refused(self.write("c.nii", b"not an image\n" * 40), "")

    def test_bytes_after_packed_nrrd_and_metaimage(self):
        """As after a NIfTI stream: said, not read."""
        array = self.array(np.int16)
        packed = gzip.compress(array.tobytes(order="F"))
        head = nrrd(array, np.eye(4)).split(b"\n\n")[0].replace(b"encoding: raw", b"encoding: gzip") + b"\n\n"
        self.assertEqual(self.read(self.write("a.nrrd", head + packed))[1], [])
        self.assertEqual(self.read(self.write("b.nrrd", head + packed + b"xyz"))[1], ["trailing_bytes"])
        stream = zlib.compress(array.tobytes(order="F"))
        head = metaimage(array, np.eye(4)).split(b"ElementDataFile")[0]
        head = head.replace(b"CompressedData = False", b"CompressedData = True\nCompressedDataSize = %d" % len(stream))
        head += b"ElementDataFile = LOCAL\n"
        self.assertEqual(self.read(self.write("a.mha", head + stream))[1], [])
        self.assertEqual(self.read(self.write("b.mha", head + stream + b"xyz"))[1], ["trailing_bytes"])

    def test_one_bad_file_costs_one_file(self):
        """fmriprep #1291: the rest of a folder is done, and info shows both."""
        (self.folder / "in").mkdir()
        (self.folder / "in/bad.nii").write_bytes(nifti(self.array(), srow_x=[np.nan] * 4))
        (self.folder / "in/good.nii").write_bytes(nifti(self.array()))
        done = call("info", "--json", self.folder / "in")
        self.assertEqual(done.returncode, 1)
        bad, good = json.loads(done.stdout)["files"]
        self.assertTrue(bad["path"].endswith("bad.nii"))
        self.assertEqual((bad["error"]["code"], good["error"]), ("input", None))
        self.assertEqual(bad["header"]["dim"], [3, 4, 5, 6])
        self.assertTrue(bad["header"]["sform_mm"].startswith("invalid"))
        done = call("run", write_spec(self.folder, []), self.folder / "in", "-o", self.folder / "out", "--device", "cpu")
        self.assertEqual(done.returncode, 1)
        self.assertTrue((self.folder / "out/good.nii").exists())
        self.assertFalse((self.folder / "out/bad.nii").exists())


class Writing(Trust):
    def test_missing_folders_are_made(self):
        out = self.folder / "new/deeper"
        done = call("run", write_spec(self.folder, []), self.nifti(), "-o", out, "--device", "cpu", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((out / "a.nii").exists())

    def test_a_file_that_cannot_grow(self):
        """minc-toolkit #33, ANTs #1507, AFNI #73: an error, and nothing under the final name."""
        path = self.nifti(array=np.random.default_rng(0).normal(size=(64, 64, 64)).astype(np.float32))
        limit = 256 << 10
        for extension in ("nii", "nii.gz", "nrrd", "mha"):
            out = self.folder / f"full_{extension}"
            spec = write_spec(self.folder, [], outputs={"image": {"path": "{stem}." + extension}})
            done = call(
                "run", spec, path, "-o", out, "--device", "cpu", "-q",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            )  # fmt: skip
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertEqual([p.name for p in out.rglob("*") if not p.name.startswith("volpipe-")], [])

    def test_the_same_bytes_again(self):
        path = self.nifti()
        spec = write_spec(self.folder, [], outputs={"image": {"path": "{stem}.nii.gz"}})
        written = []
        for out, threads in (("one", 1), ("two", 1), ("three", 7)):
            done = call("run", spec, path, "-o", self.folder / out, "--device", "cpu", "-q", "--threads", threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            written.append((self.folder / out / "a.nii.gz").read_bytes())
        self.assertEqual(len(set(written)), 1)

    def test_round_trip(self):
        """MONAI #2028, #2090: bit by bit, through each format."""
        array = np.random.default_rng(1).normal(size=(32, 24, 9)).astype(np.float32)
        matrix = affine((0.8, 0.9, 3), (5, -10, 20), (-120, 80, 33))
        path = self.write("in.nii", image(array, matrix))
        for extension in ("nii.gz", "nrrd", "mha", "mhd"):
            back = self.run_one([], self.run_one([], path, extension=extension))
            self.assertEqual(data(back).tobytes(), array.tobytes(), extension)
            np.testing.assert_array_equal(back.affine, matrix, extension)


class Memory(Trust):
    def test_a_result_that_does_not_fit_is_refused_first(self):
        """MONAI #2316, #7469: said with its size, before anything is allocated; nothing is killed."""
        limit = 4 << 30
        spec = write_spec(self.folder, [{"op": "resample", "spacing": 0.0005}])
        done = call(
            "run", spec, self.nifti(), "-o", self.folder / "out", "--device", "cpu",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )  # fmt: skip
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertNotIn("bad_alloc", done.stderr)


class Nrrd(Trust):
    def test_directions_and_kinds(self):
        """MONAI #7371, #7912, #3356, #8653: a sagittal volume keeps its places; a list axis is frames."""
        sagittal = np.array([[0, 0, 3.0, -40], [0.9, 0, 0, 10], [0, -0.8, 0, 70], [0, 0, 0, 1]])
        array = self.array(np.int16)
        for space in ("left-posterior-superior", "right-anterior-superior"):
            got, found, entry = self.read(self.write("a.nrrd", nrrd(array, sagittal, space)))
            np.testing.assert_array_equal(data(got), array)
            assert_affine(got.affine, sagittal)
            self.assertEqual(found, [])
            self.assertEqual(entry["header"]["sizes"], [4, 5, 6])
        frames = self.array(np.int16, (3, 4, 5, 6))
        head = (
            "NRRD0004\ntype: int16\ndimension: 4\nspace: left-posterior-superior\nsizes: 3 4 5 6\n"
            "space directions: none (1,0,0) (0,1,0) (0,0,1)\nkinds: list domain domain domain\nendian: little\n"
            "encoding: raw\nspace origin: (0,0,0)\n\n"
        )
        got, _, entry = self.read(self.write("b.nrrd", head.encode() + frames.tobytes(order="F")))
        self.assertEqual((entry["component_axis"], entry["components"]), ("frames", 3))
        np.testing.assert_array_equal(data(got), np.moveaxis(frames, 0, -1))


class Encodings(Trust):
    def test_all_give_the_same_voxels(self):
        """MONAI PR #8188, #8283: slope, byte order and compression are the reader's business."""
        stored = np.random.default_rng(2).integers(-2000, 2000, (3, 8, 8)).astype(np.int16)
        wanted = stored * 0.5 - 1024
        for endian in "<>":
            array = np.asfortranarray(np.moveaxis(stored, 0, -1))
            got, _, _ = self.read(self.nifti(array=array, endian=endian, scl_slope=0.5, scl_inter=-1024))
            np.testing.assert_array_equal(data(got), np.moveaxis(wanted, 0, -1))
        for name, more in (
            ("plain", {}),
            ("big", {"syntax": BIG_ENDIAN}),
            ("rle", {"syntax": RLE, "fragments": lambda k: [rle_frame(stored[k])]}),
        ):
            folder = write_series(self.folder / name, 3, pixels=lambda k: stored[k], slope=0.5, intercept=-1024, **more)
            got, found, entry = self.read(folder)
            np.testing.assert_array_equal(data(got), np.transpose(wanted, (2, 1, 0)), name)
            self.assertEqual(found, [])
            self.assertEqual(entry["header"]["rescale_slope"], 0.5)


class DicomGaps(Trust):
    def test_missing_slice(self):
        """ITK #441, #1391, dicom2stl #68: named; --allow-gaps says how far slices are off."""
        folder = write_series(self.folder / "s")
        (folder / "3.dcm").unlink()
        self.assert_refused(folder, "missing", "2.dcm and 4.dcm", "--allow-gaps")
        _, found, entry = self.read(folder, "--allow-gaps")
        self.assertEqual(found, ["gaps_allowed"])
        self.assertEqual(entry["geometry"]["spacing_mm"], [0.5, 0.5, 3.125])
        self.assertIn("1.25 mm", entry["notices"][0]["message"])

    def test_instance_numbers_do_not_count(self):
        """ITK #6463, dicom2nifti #7, imageio #347, MONAI PydicomReader: shuffled names and instance numbers."""
        folder = write_series(self.folder / "s", 5, names=list("caedb"), instance=lambda k: (7 * k) % 5 + 1)
        got, found, _ = self.read(folder)
        np.testing.assert_array_equal(data(got)[0, 0], [10, 20, 30, 40, 50])
        self.assertEqual(found, [])

    def test_float_noise_and_a_gap(self):
        """dcm2niix #22 #982, rse-panimg #7, ITK #1607: noise is no gap, 1 % is the bound, 0.6 for 0.3 is a gap."""
        noise = np.random.default_rng(4).normal(0, 1e-9, 8)
        folder = write_series(self.folder / "noise", 8, position=lambda k: (0, 0, 0.3 * k + noise[k]))
        _, found, entry = self.read(folder)
        self.assertEqual(found, [])
        self.assertAlmostEqual(entry["geometry"]["spacing_mm"][2], 0.3, places=7)
        folder = write_series(self.folder / "gap", 8, position=lambda k: (0, 0, 0.3 * (k + (k > 3))))
        self.assert_refused(folder, "missing", "0.6 mm", "3.dcm and 4.dcm")
        folder = write_series(self.folder / "uneven", 6, position=lambda k: (0, 0, 2.5 * k + (0.1 if k == 3 else 0)))
        self.assert_refused(folder, "unevenly spaced", "2.6 mm", "--allow-gaps")


class DicomRepeats(Trust):
    def test_copies(self):
        """SimpleITK #879: one position, two files."""
        folder = write_series(self.folder / "s")
        (folder / "2copy.dcm").write_bytes(dicom(np.full((8, 8), 999, np.int16), position=(0, 0, 5), instance=30))
        self.assert_refused(folder, "same position", "2.dcm, 2copy.dcm", "--allow-duplicates")
        _, found, entry = self.read(folder, "--allow-duplicates")
        self.assertEqual(found, ["duplicates_left_out"])
        self.assertIn("2copy.dcm", entry["notices"][0]["message"])
        self.assertEqual(entry["intensity"]["max"], 60)
        self.assertEqual(entry["geometry"]["size"], [8, 8, 6])

    def test_two_volumes_under_one_uid(self):
        """dcm2niix #529, SimpleITK #1185: told apart by their headers, or refused."""
        same = dict(position=lambda k: (0, 0, 2.5 * (k // 2)), count=8)
        folder = write_series(self.folder / "told", **same, acquisition=lambda k: 1 + k % 2)
        done = call("info", "--json", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = json.loads(done.stdout)["files"]
        self.assertEqual([file["geometry"]["size"] for file in files], [[8, 8, 4]] * 2)
        self.assertEqual(sorted(file["intensity"]["max"] for file in files), [70, 80])
        self.assert_refused(write_series(self.folder / "alike", **same), "same position")

    def test_mixed_series(self):
        """UnityVolumeRendering #61, vedo #95, Slicer #1007: grouped by UID, size and orientation; a split is said."""
        folder = write_series(self.folder / "s", 4)
        write_series(self.folder / "other", 4, series="1.2.3.2")
        for path in (self.folder / "other").iterdir():
            path.rename(folder / ("y" + path.name))
        self.assertEqual(len(json.loads(call("info", "--json", folder).stdout)["files"]), 2)
        folder = write_series(self.folder / "sizes", 6, pixels=lambda k: np.full((8 if k < 3 else 6, 8), k, np.int16))
        found = json.loads(call("info", "--json", folder).stdout)
        self.assertEqual(len(found["files"]), 2)
        self.assertEqual([notice["code"] for notice in found["notices"]], ["series_split"])


class DicomValues(Trust):
    def test_monochrome1(self):
        """SimpleITK #1795: a matter of display."""
        got, _, _ = self.read(write_series(self.folder / "s", 3, photometric="MONOCHROME1"))
        np.testing.assert_array_equal(data(got)[0, 0], [10, 20, 30])

    def test_slope_of_each_slice(self):
        """SimpleITK #1636, #1205, dcm2niix #978: also where the first slice has a whole slope, and for tiny ones."""
        slopes = (1, 0.5, 0.25, 7e-9)
        got, _, entry = self.read(write_series(self.folder / "s", 4, slope=lambda k: slopes[k]))
        np.testing.assert_allclose(data(got)[0, 0], np.array([10, 20, 30, 40]) * slopes, rtol=1e-6)
        self.assertEqual(entry["header"]["rescale_slope"], list(slopes))

    def test_short_pixel_data(self):
        folder = write_series(self.folder / "s", 4, cut=lambda k: 60 if k == 2 else 0)
        self.assert_refused(folder, "2.dcm", "68 bytes of the 128")


class DicomPlaces(Trust):
    def test_gantry_tilt(self):
        """dcm2niix #253, ITK #6656, Slicer #4409: the grid is sheared as the scanner moved, and it is said."""
        for angle in (15, 20):
            shift = 2.5 * np.tan(np.radians(angle))
            folder = write_series(self.folder / f"s{angle}", 5, position=lambda k: (0, shift * k, 2.5 * k))
            got, found, _ = self.read(folder)
            self.assertEqual(found, ["gantry_tilt"])
            np.testing.assert_allclose(got.affine[:3, 2], [0, -shift, 2.5], atol=1e-5)
        tilt = np.radians(20)
        folder = write_series(self.folder / "turned", 5, orientation=(1, 0, 0, 0, np.cos(tilt), -np.sin(tilt)))
        got, found, _ = self.read(folder)
        self.assertEqual(found, ["gantry_tilt"])
        np.testing.assert_allclose(got.affine[:3, 2], [0, 0, 2.5], atol=1e-5)

    def test_frames_without_positions(self):
        """ITKPythonPackage #105, ITK #4109: refused unless the user takes the order of the frames."""
        for sop in ("1.2.840.10008.5.1.4.1.1.2", SECONDARY_CAPTURE):
            pixels = np.repeat(10 * np.arange(1, 6, dtype=np.int16), 64).reshape(5, 8, 8)
            path = self.write("a.dcm", dicom(pixels, frames=5, sop=sop, between=2))
            self.assert_refused(path, "5 frames without a position", "--allow-no-geometry")
            _, found, entry = self.read(path, "--allow-no-geometry")
            self.assertEqual(found, ["geometry_assumed"])
            self.assertEqual(entry["geometry"]["spacing_mm"], [0.5, 0.5, 2])

    def test_no_geometry(self):
        """SimpleITK #2117, ITK #4677: refused, or numbered by the user's decision."""
        folder = write_series(self.folder / "s", 4, position=None, orientation=None, spacing=None, thickness=None,
                              instance=lambda k: 4 - k)  # fmt: skip
        self.assert_refused(folder, "0.dcm", "ImagePositionPatient", "--allow-no-geometry")
        _, found, entry = self.read(folder, "--allow-no-geometry")
        self.assertEqual(found, ["geometry_assumed"])
        self.assertEqual(entry["geometry"]["spacing_mm"], [1, 1, 1])
        folder = write_series(self.folder / "spacing", 4, spacing=None)
        self.assert_refused(folder, "0.dcm", "PixelSpacing")
        done = call("compare", folder, folder, "--allow-no-geometry", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        picture = self.folder / "picture.png"
        done = call("preview", folder, "-o", picture, "--allow-no-geometry")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(picture.exists())

    def test_single_slice(self):
        """MONAI #6944, #6942: spacing of the pixels, and the thickness with a notice."""
        folder = write_series(self.folder / "s", 1, spacing=(0.7, 0.5), thickness=4)
        _, found, entry = self.read(folder)
        self.assertEqual(found, ["slice_thickness"])
        self.assertEqual(entry["geometry"]["spacing_mm"], [0.5, 0.7, 4])

    def test_axes_of_a_ct(self):
        """MONAI #1711: columns, rows, slices; directions kept."""
        array = np.arange(3 * 6 * 9, dtype=np.int16).reshape(3, 6, 9)
        got, _, entry = self.read(write_series(self.folder / "s", 3, pixels=lambda k: array[k], spacing=(0.7, 0.5)))
        self.assertEqual(entry["geometry"]["size"], [9, 6, 3])
        self.assertEqual(entry["geometry"]["orientation"], "LPS")
        np.testing.assert_array_equal(data(got), array.transpose(2, 1, 0))
        assert_affine(got.affine, np.diag([-0.5, -0.7, 2.5, 1]))

    def test_to_nifti_and_back(self):
        """MONAI #2613: the NIfTI of an oblique series is the series."""
        turn = rotation((10, -20, 30))
        array = np.random.default_rng(5).integers(-1000, 1000, (4, 16, 16)).astype(np.int16)
        folder = write_series(self.folder / "s", 4, pixels=lambda k: array[k], orientation=(*turn[:, 0], *turn[:, 1]),
                              position=lambda k: tuple(turn[:, 2] * 3 * k + (5, 6, 7)), spacing=(0.9, 0.8))  # fmt: skip
        got, found, _ = self.read(folder)
        self.assertEqual(found, [])
        wanted = np.eye(4)
        wanted[:3, :3] = turn * (0.8, 0.9, 3)
        wanted[:3, 3] = 5, 6, 7
        assert_affine(got.affine, LPS @ wanted)
        nibabel.save(got, self.folder / "b.nii")
        done = call("compare", folder, self.folder / "b.nii")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_enhanced_frames(self):
        """MONAI #8468: four frames whose places stand in the per-frame groups alone, out of order."""
        heights = (7.5, 0, 5, 2.5)
        shared = sequence(0x5200, 0x9229, [
            sequence(0x20, 0x9116, [element(0x20, 0x37, "DS", numbers((1, 0, 0, 0, 1, 0)))])
            + sequence(0x28, 0x9110, [element(0x18, 0x50, "DS", 5) + element(0x28, 0x30, "DS", "0.7\\0.5")])
        ])  # fmt: skip
        each = sequence(0x5200, 0x9230, [
            sequence(0x20, 0x9113, [element(0x20, 0x32, "DS", numbers((1, 2, z)))]) for z in heights
        ])  # fmt: skip
        pixels = np.repeat(np.arange(4, dtype=np.int16), 64).reshape(4, 8, 8)
        path = self.write("a.dcm", dicom(pixels, None, None, None, None, sop=ENHANCED_CT, frames=4, groups=shared + each))
        got, found, entry = self.read(path)
        np.testing.assert_array_equal(data(got)[0, 0], [1, 3, 2, 0])
        np.testing.assert_allclose(entry["geometry"]["spacing_mm"], [0.5, 0.7, 2.5])
        self.assertEqual(found, [])

    def test_what_itk_does_right(self):
        """Order, reversed z, junk beside, unicode, two UIDs, a localizer of the same UID, unequal pixel spacing."""
        got, _, _ = self.read(write_series(self.folder / "reversed", 5, step=-2.5))
        np.testing.assert_array_equal(data(got)[0, 0], [50, 40, 30, 20, 10])
        folder = write_series(self.folder / "S unicode é 画像", 3, spacing=(0.7, 0.3))
        (folder / "readme.txt").write_text("hello")
        (folder / "empty.dcm").write_bytes(b"")
        (folder / "._0.dcm").write_bytes(b"\0\5\x16\7" + b"x" * 100)
        got, _, entry = self.read(folder)
        np.testing.assert_array_equal(data(got)[0, 0], [10, 20, 30])
        np.testing.assert_allclose(entry["geometry"]["spacing_mm"], [0.3, 0.7, 2.5])
        folder = write_series(self.folder / "localizer", 3)
        (folder / "scout").write_bytes(
            dicom(np.ones((8, 8), np.int16), orientation=(0, 1, 0, 0, 0, -1), image_type="ORIGINAL\\PRIMARY\\LOCALIZER",
                  instance=99))  # fmt: skip
        sizes = [file["geometry"]["size"] for file in json.loads(call("info", "--json", folder).stdout)["files"]]
        self.assertEqual(sorted(sizes), [[8, 8, 1], [8, 8, 3]])


class Completeness(unittest.TestCase):
    def test_every_row_has_its_test(self):
        for row, name in {**ITK_ROWS, **REPORTS}.items():
            place, test = name.split(".")
            self.assertTrue(callable(getattr(globals().get(place), test, None)), f"{row}: there is no {name}")


if __name__ == "__main__":
    unittest.main()
