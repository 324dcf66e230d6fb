"""What is right, in double precision: SciPy where it is, the mathematics where SciPy 1.10 is not."""

import numpy as np
from scipy import interpolate, ndimage

ORDER = {"nearest": 0, "linear": 1, "bspline2": 2, "bspline3": 3, "bspline4": 4, "bspline5": 5}


def resize_coordinates(size, target, align):
    """Source coordinate of each target voxel of one axis; edges: zoom(grid_mode=True), centers: grid_mode=False."""
    k = np.arange(target)
    if align == "edges":
        return (k + 0.5) * size / target - 0.5
    return k * (size - 1) / max(target - 1, 1)


def resample_axis(size, spacing, target_spacing, grid):
    """Source coordinates of one axis: "extent" keeps the field of view, "center" the first voxel's centre.

    As many voxels as come nearest to the extent, or to the distance of the outer centres."""
    if grid == "extent":
        shift, steps = (target_spacing / spacing - 1) / 2, size * spacing / target_spacing - 1
    else:
        shift, steps = 0.0, (size - 1) * spacing / target_spacing
    target = max(1, int(np.floor(steps + 0.5 + 1e-6)) + 1)
    return np.arange(target) * target_spacing / spacing + shift


def reflect_index(i, size):
    i = np.mod(i, 2 * size)
    return np.minimum(i, 2 * size - 1 - i)


def reflect_basis(size, coordinates, order):
    """What each coefficient of a reflected axis adds at each coordinate."""
    basis = interpolate.BSpline.basis_element(np.arange(order + 2) - (order + 1) / 2, extrapolate=False)
    matrix = np.zeros((len(coordinates), size))
    nearest = np.floor(np.asarray(coordinates) + 0.5).astype(int)
    for offset in range(-3, 4):
        weight = np.nan_to_num(basis(coordinates - (nearest + offset)))
        np.add.at(matrix, (np.arange(len(coordinates)), reflect_index(nearest + offset, size)), weight)
    return matrix


def reflect_spline_matrix(size, coordinates, order):
    """Spline through the samples of one axis, reflected at its edges, by solving for the coefficients."""
    return reflect_basis(size, coordinates, order) @ np.linalg.inv(reflect_basis(size, np.arange(size), order))


def sample(array, axes, interpolation="linear", boundary="nearest", fill=0.0):
    """array at the grid of coordinates axes[0] x axes[1] x axes[2]."""
    array = np.asarray(array, float)
    order = ORDER[interpolation]
    if order > 1 and boundary == "reflect":
        # SciPy < 1.18 starts the reflect prefilter with a value it has already changed (scipy issue 24550).
        for axis, coordinates in enumerate(axes):
            if array.shape[axis] > 1:
                matrix = reflect_spline_matrix(array.shape[axis], coordinates, order)
                array = np.moveaxis(np.tensordot(matrix, array, (1, axis)), 0, axis)
            else:
                array = np.repeat(array, len(coordinates), axis)
        return array
    grid = np.meshgrid(*axes, indexing="ij")
    return ndimage.map_coordinates(array, grid, order=order, mode=boundary, cval=fill)


def antialias(array, factors):
    """Gaussian of sigma (factor - 1) / 2 on every axis that is reduced by factor > 1, edges replicated."""
    array = np.asarray(array, float)
    for axis, factor in enumerate(factors):
        if factor > 1:
            array = ndimage.gaussian_filter1d(array, (factor - 1) / 2, axis, mode="nearest")
    return array


def grid_affine(matrix, axes):
    """Affine of the grid that lies at evenly spaced source coordinates; a single voxel keeps the step given beside."""
    step = np.eye(4)
    for axis, (first, spacing) in enumerate(axes):
        step[axis, axis], step[axis, 3] = spacing, first
    return matrix @ step


def fold(index, size, boundary):
    """Source of each index under a padding rule, -1 for the fill value.

    numpy < 2 pads "reflect" wrongly where the padding is wider than the axis."""
    if boundary in ("constant", "grid-constant"):
        return np.where((index < 0) | (index >= size), -1, index)
    if boundary == "nearest":
        return np.clip(index, 0, size - 1)
    if boundary == "reflect":
        return reflect_index(index, size)
    if boundary == "mirror":
        folded = np.mod(index, max(2 * size - 2, 1))
        return np.minimum(folded, 2 * size - 2 - folded)
    return np.mod(index, size)


def pad(array, before, after, boundary, fill=0):
    for axis, (low, high) in enumerate(zip(before, after)):
        size = array.shape[axis]
        source = fold(np.arange(-low, size + high), size, boundary)
        array = np.take(array, source, axis)
        np.moveaxis(array, axis, 0)[source == -1] = fill
    return array
