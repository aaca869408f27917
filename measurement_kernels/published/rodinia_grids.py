"""Kernels of Rodinia on grids, and of a neural network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, ScalarArgument, Sizes, arrays
from measurement_kernels.loopy_kernels import (
    Arrays,
    Results,
    any_sizes,
    computed_from,
    in_f64,
    mapped,
    sizes_along,
)
from measurement_kernels.published.rodinia import rodinia_kernel

# --- heat and speckle reduction

_HOTSPOT = {"cc": 0.4, "cn": 0.1, "ce": 0.11, "cv": 0.09, "cp": 0.05, "ambient": 8.0}


def positive(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return numbers between one and two."""
    return 1 + random.random(shape)


def _hotspot(t: NDArray[Any], power: NDArray[Any]) -> Results:
    c = _HOTSPOT
    sides = c["cn"] * (t[1:-1, :-2, 1:-1] + t[1:-1, 2:, 1:-1])
    sides += c["ce"] * (t[1:-1, 1:-1, :-2] + t[1:-1, 1:-1, 2:])
    sides += c["cv"] * (t[:-2, 1:-1, 1:-1] + t[2:, 1:-1, 1:-1])
    inner = c["cc"] * t[1:-1, 1:-1, 1:-1] + sides
    return {"out": inner + c["cp"] * power + c["cv"] * c["ambient"]}


def _neighbors(step: int, size: str) -> Any:
    def places(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
        del random
        return np.clip(np.arange(sizes[size]) + step, 0, sizes[size] - 1).astype("int32")

    return places


def _around(name: str, size: str, step: int) -> ArrayArgument:
    return ArrayArgument(name=name, shape=(Extent(size),), indices=_neighbors(step, size))


_Q0 = 0.05


def _srad1(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    (image,) = in_f64(arguments, "image")
    across = [image[arguments[name]] - image for name in ("west", "east")]
    along = [image[:, arguments[name]] - image for name in ("north", "south")]
    g2 = sum(d * d for d in (*across, *along)) / (image * image)
    laplacian = sum((*across, *along)) / image
    num = 0.5 * g2 - laplacian * laplacian / 16
    qsqr = num / (1 + 0.25 * laplacian) ** 2
    den = (qsqr - _Q0) / (_Q0 * (1 + _Q0))
    c = np.clip(1 / (1 + den), 0, 1)
    return {"dn": along[0], "ds": along[1], "dw": across[0], "de": across[1], "c": c}


def _srad2(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    image, c, dn, ds, dw, de = in_f64(arguments, "image c dn ds dw de")
    south, east = c[:, arguments["south"]], c[arguments["east"]]
    return {"image": image + 0.125 * (c * dn + south * ds + c * dw + east * de)}


_PIXELS = "{ [col, row] : 0 <= col < m and 0 <= row < n }"

_FIELDS = (
    rodinia_kernel(
        variant="hotspot",
        groups=((64, 4),),
        sizes=any_sizes("n", "m", "l"),
        arguments=(
            *arrays("t[n + 2, m + 2, l + 2], power[n, m, l], output out[n, m, l]"),
            *(ScalarArgument(name=name, value=value) for name, value in _HOTSPOT.items()),
        ),
        check={"n": 9, "m": 23, "l": 75},
        domain=("{ [j, i] : 0 <= j < m and 0 <= i < l }", "{ [k] : 0 <= k < n }"),
        instructions="""
            for j, i
                <> below = t[0, j + 1, i + 1] {id=below}
                <> here = t[1, j + 1, i + 1] {id=here}
                for k
                    <> above = t[k + 2, j + 1, i + 1] {id=above}
                    <> rows = cn*(t[k + 1, j, i + 1] + t[k + 1, j + 2, i + 1])
                    <> columns = ce*(t[k + 1, j + 1, i] + t[k + 1, j + 1, i + 2])
                    <> own = cc*here + cp*power[k, j, i] {id=own, dep=here}
                    <> others = cv*(below + above + ambient) {id=others, dep=above:below}
                    out[k, j, i] = own + others + rows + columns {id=out}
                    below = here {id=down, dep=own:others:below:here}
                    here = above {id=up, dep=down}
                end
            end
        """,
        transform=mapped(j=1, i=0),
        expected=computed_from("t power", _hotspot),
    ),
    rodinia_kernel(
        variant="opt-srad1",
        groups=((256, 1),),
        sizes=any_sizes("n", "m"),
        arguments=(
            *arrays("image[m, n]", values=positive),
            _around("north", "n", -1),
            _around("south", "n", 1),
            _around("west", "m", -1),
            _around("east", "m", 1),
            *arrays("output dn[m, n], output ds[m, n], output dw[m, n], output de[m, n]"),
            *arrays("output c[m, n]"),
        ),
        check={"n": 300, "m": 11},
        domain=_PIXELS,
        instructions=f"""
            for col, row
                <> own = image[col, row]
                <> n_ = image[col, north[row]] - own
                <> s_ = image[col, south[row]] - own
                <> w_ = image[west[col], row] - own
                <> e_ = image[east[col], row] - own
                <> g2 = (n_*n_ + s_*s_ + w_*w_ + e_*e_) / (own*own)
                <> laplacian = (n_ + s_ + w_ + e_) / own
                <> num = 0.5*g2 - 0.0625*(laplacian*laplacian)
                <> den = 1 + 0.25*laplacian
                <> q = num / (den*den)
                <> diffusion = 1 / (1 + (q - {_Q0}) / {_Q0 * (1 + _Q0)})
                dn[col, row] = n_
                ds[col, row] = s_
                dw[col, row] = w_
                de[col, row] = e_
                c[col, row] = fmin(fmax(diffusion, 0.0f), 1.0f)
            end
        """,
        transform=mapped(row=0, tags={"col": "g.1"}),
        expected=_srad1,
        statistics={"image": "stride1"},
    ),
    rodinia_kernel(
        variant="opt-srad2",
        groups=((256, 1),),
        sizes=any_sizes("n", "m"),
        arguments=(
            *arrays("updated image[m, n], c[m, n], dn[m, n], ds[m, n], dw[m, n], de[m, n]"),
            _around("south", "n", 1),
            _around("east", "m", 1),
        ),
        check={"n": 300, "m": 11},
        domain=_PIXELS,
        instructions="""
            for col, row
                <> own = c[col, row]
                <> rows = own*dn[col, row] + c[col, south[row]]*ds[col, row]
                <> columns = own*dw[col, row] + c[east[col], row]*de[col, row]
                image[col, row] = image[col, row] + 0.125*(rows + columns)
            end
        """,
        transform=mapped(row=0, tags={"col": "g.1"}),
        expected=_srad2,
        statistics={"c": "stride1"},
    ),
)

# --- neural network: a layer of 16 hidden units


def _forward(arguments: Arrays, sizes: Sizes) -> Results:
    units, w = in_f64(arguments, "units w")
    products = w[1:, 1:] * units[1:, None]
    tiles = products.reshape(sizes["n"], 16, 16)
    new = w.copy()
    new[1:, 1:] = _after_tree(tiles).reshape(-1, 16)
    return {"w": new, "part": tiles.sum(axis=1)}


def _after_tree(tiles: NDArray[Any]) -> NDArray[Any]:
    """Return the tiles as the sum over rows by pairs, fours, eights and all leaves them."""
    tiles = tiles.copy()
    for power in (2, 4, 8, 16):
        tiles[:, ::power] += tiles[:, power // 2 :: power]
    return tiles


def _adjusted(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    w, old, delta, units = in_f64(arguments, "w old delta units")
    change = 0.3 * delta[1:] * units[1:, None] + 0.3 * old[1:, 1:]
    first = 0.3 * delta[1:] + 0.3 * old[0, 1:]
    w[1:, 1:] += change
    w[0, 1:] += first
    old[1:, 1:], old[0, 1:] = change, first
    return {"w": w, "old": old}


_LEVELS = "".join(
    f"tile[y, x] = tile[y, x] + tile[y + {p // 2}, x]"
    f" {{id=tree{p}, dep={before}, if=y % {p} == 0}}\n"
    f"... lbarrier {{id=wait{p}, dep=tree{p}, inames=g}}\n"
    for p, before in ((2, "product_wait"), (4, "wait2"), (8, "wait4"), (16, "wait8"))
)
_TAGS = {"g": "g.0", "y": "l.1", "x": "l.0"}
_LAYER = "{ [g, y, x] : 0 <= g < n and 0 <= y, x < 16 }"

_NETWORK = (
    rodinia_kernel(
        variant="bpnn-layerforward",
        groups=((16, 16),),
        sizes=sizes_along(n=None),
        arguments=arrays("units[16*n + 1], updated w[16*n + 1, 17], output part[n, 16]"),
        check={"n": 9},
        domain=_LAYER,
        instructions=f"""
            for g
                <> node[y] = units[16*g + y + 1] {{id=node, if=x == 0, inames=g:y:x}}
                ... lbarrier {{id=node_wait, dep=node}}
                <> tile[y, x] = w[16*g + y + 1, x + 1] {{id=tile, dep=*node_wait}}
                ... lbarrier {{id=tile_wait, dep=tile}}
                tile[y, x] = tile[y, x]*node[y] {{id=product, dep=tile_wait}}
                ... lbarrier {{id=product_wait, dep=product}}
                {_LEVELS}
                w[16*g + y + 1, x + 1] = tile[y, x] {{id=w, dep=wait16}}
                ... lbarrier {{id=w_wait, dep=w}}
                part[g, y] = tile[0, y] {{id=part, dep=w_wait, if=x == 0, inames=g:y:x}}
            end
        """,
        transform=mapped(tags=_TAGS, local={"node": (16,), "tile": (16, 16)}, guarded="node part"),
        expected=_forward,
    ),
    rodinia_kernel(
        variant="bpnn-adjust-weights",
        groups=((16, 16),),
        sizes=sizes_along(n=None),
        arguments=arrays(
            "delta[17], units[16*n + 1], updated w[16*n + 1, 17], updated old[16*n + 1, 17]"
        ),
        check={"n": 9},
        domain=_LAYER,
        instructions="""
            for g, y, x
                <> change = 0.3*delta[x + 1]*units[16*g + y + 1] + 0.3*old[16*g + y + 1, x + 1]
                w[16*g + y + 1, x + 1] = w[16*g + y + 1, x + 1] + change {id=w}
                old[16*g + y + 1, x + 1] = change {id=old}
                ... lbarrier {id=wait, dep=w:old}
                if y == 0 and g == 0
                    <> first = 0.3*delta[x + 1] + 0.3*old[0, x + 1] {id=first, dep=wait, nosync=old}
                    w[0, x + 1] = w[0, x + 1] + first {id=w0, dep=wait:first:w, nosync=w}
                    old[0, x + 1] = first {id=old0, dep=w0:first:old, nosync=old:first}
                end
            end
        """,
        transform=mapped(tags=_TAGS, guarded="w0 old0"),
        expected=_adjusted,
    ),
)

RODINIA_GRIDS = (*_FIELDS, *_NETWORK)
