"""Convolution of Kernel Tuner's authors: 15 by 15 taps on an image, by tiles in local memory.

``out[y, x] = sum(i, j, image[y + i, x + j] * taps[i, j])``, all f32 and row major. A group of
``block_size_x`` by ``block_size_y`` items computes ``tile_size_x`` by ``tile_size_y`` pixels per
item, which are apart by the size of the group. It copies the pixels that it needs, halo included,
into local memory, waits at a barrier, and sums over the taps, which lie in constant memory; all
loops are unrolled. ``use_padding`` lengthens the rows in local memory where that keeps sub-groups
that span rows from meeting in a bank. ``read_only`` loads the image through the texture path and
changes nothing that is counted.

Source: van Werkhoven, Maassen, Bal, Seinstra, "Optimizing convolution operations on GPUs using
adaptive tiling" (FGCS 2014), doi:10.1016/j.future.2013.09.003; times of the space on five GPUs:
github.com/AutoTuningAssociation/benchmark_hub, commit 8eeb99e7, MIT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2
from numpy.typing import NDArray

from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.arguments import Sizes, arrays
from measurement_kernels.loopy_kernels import in_f64
from measurement_kernels.variants.builders import Inputs, Rounded

TAPS = 15
"""Rows and columns of the filter."""

BANKS = 32
"""Banks of local memory that the padding is made for."""

_BORDER = TAPS - 1
_LOCAL_PIXELS = 12 * 1024
_ARGUMENTS = arrays(f"image[h + {_BORDER}, w + {_BORDER}], taps[{TAPS}, {TAPS}], output out[h, w]")


def padding_columns(block_size_x: int, tile_size_x: int) -> int:
    """Return how many columns padding adds to a row in local memory."""
    beyond = _BORDER + block_size_x * tile_size_x - block_size_x
    if block_size_x % BANKS == 0 or beyond % BANKS == 0:
        return 0
    return -beyond % BANKS


def build_convolution(
    block_size_x: int,
    block_size_y: int,
    tile_size_x: int,
    tile_size_y: int,
    read_only: int = 0,
    use_padding: int = 0,
) -> TranslationUnit:
    """Build a variant of the convolution; groups at the border compute whole tiles."""
    del read_only
    return _convolution(
        (block_size_y, block_size_x),
        (tile_size_y, tile_size_x),
        padding_columns(block_size_x, tile_size_x) if use_padding else 0,
    )


def _convolution(block: tuple[int, int], each: tuple[int, int], padding: int) -> TranslationUnit:
    """Build the kernel for items and pixels of each item along rows and columns."""
    (high, wide), (rows, columns) = block, each
    height, width = high * rows, wide * columns
    unit = lp.make_kernel(
        [
            f"[h, w] -> {{ [gy, gx]: 0 <= gy, gx and {height}*gy < h and {width}*gx < w }}",
            f"{{ [r, c]: 0 <= r < {height + _BORDER} and 0 <= c < {width + _BORDER} }}",
            f"{{ [ly, lx, ey, ex]: 0 <= ly < {high} and 0 <= lx < {wide}"
            f" and 0 <= ey < {rows} and 0 <= ex < {columns} }}",
            f"{{ [i, j]: 0 <= i, j < {TAPS} }}",
        ],
        f"""
        for gy, gx
            for r, c
                tile[r, c] = image[{height}*gy + r, {width}*gx + c] {{id=fetch, \
                    if={height}*gy + r < h + {_BORDER} and {width}*gx + c < w + {_BORDER}}}
            end
            for ly, lx, ey, ex
                <> pixel = sum([i, j], \
                    tile[{high}*ey + ly + i, {wide}*ex + lx + j]*taps[i, j]) {{id=sums, dep=fetch}}
                out[{height}*gy + {high}*ey + ly, {width}*gx + {wide}*ex + lx] = pixel {{dep=sums, \
                    if={height}*gy + {high}*ey + ly < h and {width}*gx + {wide}*ex + lx < w}}
            end
        end
        """,
        [
            lp.GlobalArg("image", np.float32, shape=f"(h + {_BORDER}, w + {_BORDER})"),
            lp.GlobalArg("taps", np.float32, shape=f"({TAPS}, {TAPS})"),
            lp.GlobalArg("out", np.float32, shape="(h, w)", is_input=False),
            lp.ValueArg("h, w", np.int32),
            lp.TemporaryVariable(
                "tile",
                np.float32,
                (height + _BORDER, width + _BORDER + padding),
                address_space=lp.AddressSpace.LOCAL,
            ),
        ],
        name="convolution",
        assumptions="h >= 1 and w >= 1",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    for iname, axis, items in (("r", 1, high), ("c", 0, wide)):
        unit = lp.split_iname(unit, iname, items, inner_tag=f"l.{axis}")
    tags = {"gy": "g.1", "gx": "g.0", "ly": "l.1", "lx": "l.0", "i": "unr", "j": "unr"}
    return lp.tag_inames(unit, tags)


def _check_sizes(choice: Choice) -> dict[str, int]:
    width = int(choice["block_size_x"]) * int(choice["tile_size_x"])
    height = int(choice["block_size_y"]) * int(choice["tile_size_y"])
    return {"h": height + 3, "w": width + 5}  # so that the last groups are partial


def _convolved(arguments: Mapping[str, Any], sizes: Sizes) -> dict[str, NDArray[Any]]:
    height, width = sizes["h"], sizes["w"]
    image, taps = in_f64(arguments, "image taps")
    out = np.zeros((height, width))
    for i in range(TAPS):
        for j in range(TAPS):
            out += taps[i, j] * image[i : i + height, j : j + width]
    return {"out": out}


CONVOLUTION = SearchSpace(
    name="published-convolution",
    parameters={
        "block_size_x": range(16, 257, 16),
        "block_size_y": [1, 2, 4, 8, 16],
        "tile_size_x": [1, 2, 3, 4],
        "tile_size_y": [1, 2, 3, 4],
        "read_only": [0, 1],
        "use_padding": [0, 1],
    },
    constraints=(
        f"use_padding == 0 or block_size_x % {BANKS} != 0",
        "block_size_x * block_size_y <= 1024",
        f"(block_size_x * tile_size_x + {_BORDER}) * (block_size_y * tile_size_y + {_BORDER})"
        f" < {_LOCAL_PIXELS}",
    ),
    build=build_convolution,
    sizes={"h": 4096, "w": 4096},
    check_sizes=_check_sizes,
    make_arguments=Inputs(_ARGUMENTS),
    reference=Rounded(_convolved),
)
"""The published space, without the kernel that does not use local memory: 2442 variants."""
