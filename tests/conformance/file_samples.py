"""Bytes of small NIfTI and DICOM files, sound and faulty: every field can be set to anything."""

import pathlib
import struct

import nibabel
import numpy as np

CT = "1.2.840.10008.5.1.4.1.1.2"
ENHANCED_CT = "1.2.840.10008.5.1.4.1.1.2.1"
SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
EXPLICIT, BIG_ENDIAN, RLE = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.5"


def nifti(array, affine=None, endian="<", **fields):
    """A single .nii of `array` with an sform alone; `fields` overrides what the header says, with no check at all."""
    header = nibabel.Nifti1Header(endianness=endian)
    raw = header.structarr
    affine = np.eye(4) if affine is None else np.asarray(affine, float)
    raw["dim"] = [array.ndim, *array.shape, *[1] * (7 - array.ndim)]
    header.set_data_dtype(array.dtype)
    pixdim = [1.0, *np.linalg.norm(affine[:3, :3], axis=0), *[1.0] * 4]
    raw["pixdim"] = pixdim
    raw["scl_slope"], raw["scl_inter"], raw["vox_offset"], raw["magic"], raw["xyzt_units"] = 1, 0, 352, b"n+1", 2
    raw["sform_code"] = 1
    for row in range(3):
        raw[f"srow_{'xyz'[row]}"] = affine[row]
    for name, value in fields.items():
        raw[name] = value
    return header.binaryblock + bytes(4) + array.astype(array.dtype.newbyteorder(endian)).tobytes(order="F")


LONG = {"OB", "OW", "SQ", "UN", "UT"}


def element(group, number, vr, value, endian="<"):
    value = value if isinstance(value, bytes) else str(value).encode()
    if len(value) % 2:
        value += b"\0" if vr in ("UI", "OB") else b" "
    head = struct.pack(endian + "HH", group, number) + vr.encode()
    length = struct.pack(endian + "HI", 0, len(value)) if vr in LONG else struct.pack(endian + "H", len(value))
    return head + length + value


def sequence(group, number, items):
    return element(group, number, "SQ", b"".join(struct.pack("<HHI", 0xFFFE, 0xE000, len(i)) + i for i in items))


def numbers(values):
    return "\\".join(f"{value:.10g}" for value in values)


def dicom(pixels, position=(0, 0, 0), orientation=(1, 0, 0, 0, 1, 0), spacing=(0.5, 0.5), thickness=2.5, instance=1,
          series="1.2.3.1", sop=CT, syntax=EXPLICIT, slope=1, intercept=0, photometric="MONOCHROME2", image_type="",
          acquisition=None, between=None, frames=None, groups=b"", cut=0, signed=None, fragments=None):
    """One file of int16 or uint16 `pixels`, (rows, columns) or (frames, rows, columns). None leaves an element out."""
    endian = ">" if syntax == BIG_ENDIAN else "<"
    uid = f"1.2.3.9.{instance}"
    meta = b"".join(
        element(2, number, vr, value)
        for number, vr, value in ((1, "OB", b"\0\1"), (2, "UI", sop), (3, "UI", uid), (0x10, "UI", syntax),
                                  (0x12, "UI", "1.2.3"))
    )
    rows, columns = pixels.shape[-2:]
    short = lambda value: struct.pack(endian + "H", value)
    listed = (
        (0x08, 0x08, "CS", image_type or None), (0x08, 0x16, "UI", sop), (0x08, 0x18, "UI", uid), (0x08, 0x60, "CS", "CT"),
        (0x18, 0x50, "DS", thickness), (0x18, 0x88, "DS", between), (0x20, 0x0D, "UI", "1.2.3.0"),
        (0x20, 0x0E, "UI", series), (0x20, 0x11, "IS", 1), (0x20, 0x12, "IS", acquisition), (0x20, 0x13, "IS", instance),
        (0x20, 0x32, "DS", position and numbers(position)), (0x20, 0x37, "DS", orientation and numbers(orientation)),
        (0x28, 0x02, "US", short(1)), (0x28, 0x04, "CS", photometric), (0x28, 0x08, "IS", frames),
        (0x28, 0x10, "US", short(rows)), (0x28, 0x11, "US", short(columns)),
        (0x28, 0x30, "DS", spacing and numbers(spacing)), (0x28, 0x100, "US", short(16)), (0x28, 0x101, "US", short(16)),
        (0x28, 0x102, "US", short(15)),
        (0x28, 0x103, "US", short(int(pixels.dtype.kind == "i") if signed is None else signed)),
        (0x28, 0x1052, "DS", intercept), (0x28, 0x1053, "DS", slope),
    )  # fmt: skip
    body = b"".join(element(*head, value, endian) for *head, value in listed if value is not None) + groups
    if fragments is None:
        body += element(0x7FE0, 0x10, "OW", pixels.astype(pixels.dtype.newbyteorder(endian)).tobytes(), endian)
    else:
        body += struct.pack("<HH2sHI", 0x7FE0, 0x10, b"OB", 0, 0xFFFFFFFF)
        for fragment in (b"", *fragments):
            body += struct.pack("<HHI", 0xFFFE, 0xE000, len(fragment)) + fragment
        body += struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    whole = bytes(128) + b"DICM" + element(2, 0, "UL", struct.pack("<I", len(meta))) + meta + body
    return whole[: len(whole) - cut]


def rle_frame(pixels):
    """High bytes, then low bytes, each in literal runs."""
    segments = []
    for plane in pixels.astype("<u2").tobytes()[1::2], pixels.astype("<u2").tobytes()[::2]:
        runs = (plane[i : i + 128] for i in range(0, len(plane), 128))
        segment = b"".join(bytes([len(run) - 1]) + run for run in runs)
        segments.append(segment + b"\0" * (len(segment) % 2))
    head = struct.pack("<16I", 2, 64, 64 + len(segments[0]), *[0] * 13)
    return head + b"".join(segments)


def write_series(folder, count=6, step=2.5, names=None, **same):
    """Slices of value 10 (k + 1) at z = step * k; `same` goes to every dicom(), a function of k is called."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        options = {name: value(k) if callable(value) else value for name, value in same.items()}
        pixels = options.pop("pixels", np.full((8, 8), 10 * (k + 1), np.int16))
        options = {"position": (0, 0, step * k), "instance": k + 1, **options}
        (folder / (names[k] if names else f"{k}.dcm")).write_bytes(dicom(pixels, **options))
    return folder
