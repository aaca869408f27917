"""Parametric sets that are hard to count, drawn at random: each from a seed of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCase:
    """A parametric set, and what is assumed of its parameters."""

    family: str  # what makes it hard
    text: str  # in isl's notation
    assumptions: str | None = None  # A parameter set in isl's notation
    largest: int = 9  # parameters from -1 to this are small enough for enumeration


_DIMENSIONS: tuple[str, ...] = ("i", "j", "k", "l")
_PARAMETERS: tuple[str, ...] = ("n", "m", "p")


class _Draw:
    """Random pieces of conditions on some names."""

    def __init__(self, rng: random.Random, dimensions: int, parameters: int) -> None:
        self.rng = rng
        self.dimensions: list[str] = list(_DIMENSIONS[:dimensions])
        self.parameters: list[str] = list(_PARAMETERS[:parameters])

    def size(self) -> str:
        """Return an affine size."""
        name = self.rng.choice(self.parameters)
        return self.rng.choice([name, name, name, f"{name} + 2", f"{name} - 1"])

    def combination(self, names: list[str], largest: int = 3) -> str:
        """Return a sum of one to three of the names with small coefficients."""
        chosen = self.rng.sample(names, min(len(names), self.rng.choice([1, 2, 2, 3])))
        coefficients = [c for c in range(-largest, largest + 1) if c]
        return " + ".join(f"{self.rng.choice(coefficients)}{name}" for name in chosen)

    def box(self) -> list[str]:
        """Return bounds of all dimensions: sizes, numbers, other dimensions."""
        rows: list[str] = []
        for k, x in enumerate(self.dimensions):
            kind = self.rng.choice(["size", "size", "number", "inner", "scaled", "centered"])
            outer = self.rng.choice(self.dimensions[:k]) if k else ""
            if not outer and kind in ("inner", "scaled"):
                kind = "size"
            rows.append(
                {
                    "size": f"0 <= {x} < {self.size()}",
                    "number": f"-1 <= {x} <= {self.rng.randint(0, 5)}",
                    "inner": f"{self.rng.choice([-1, 0, 1])} <= {x} <= {outer}",
                    "scaled": f"0 <= {x} and {self.rng.randint(1, 3)}{x} <= "
                    f"{self.rng.randint(1, 2)}{outer} + {self.rng.randint(0, 2)}",
                    "centered": f"-{self.rng.randint(1, 2)} <= {x} < {self.size()}",
                }[kind]
            )
        return rows

    def cut(self) -> str:
        """Return a further inequality in dimensions and maybe a parameter."""
        right = self.rng.choice(["", f" + {self.rng.choice(self.parameters)}"])
        return f"{self.combination(self.dimensions)} <= {self.rng.randint(-2, 4)}{right}"

    def residue(self) -> str:
        """Return a condition on a remainder."""
        modulus = self.rng.choice([2, 2, 3, 4, 5])
        names = self.dimensions + self.rng.choice([[], self.parameters])
        relation = self.rng.choice(["=", "=", "<="])
        right = self.rng.randint(0, modulus - 1)
        return f"({self.combination(names, 5)}) mod {modulus} {relation} {right}"

    def floors(self) -> str:
        """Return an inequality with a floor, maybe of a floor."""
        names = self.dimensions + self.parameters
        inner = self.combination(names, 2)
        if self.rng.random() < 0.4:
            other = self.rng.choice(self.dimensions)
            inner += f" + floor(({other} + {self.rng.randint(0, 2)})/{self.rng.randint(2, 3)})"
        left = self.rng.choice(self.dimensions)
        divisor = self.rng.randint(2, 4)
        return f"{left} {self.rng.choice(['<=', '>=', '<='])} floor(({inner})/{divisor})"

    def text(self, rows: list[str]) -> str:
        """Return a basic set in isl's notation, without the head."""
        return f"[{', '.join(self.dimensions)}] : {' and '.join(rows)}"

    def whole(self, parts: list[str]) -> str:
        """Return a set in isl's notation."""
        return f"[{', '.join(self.parameters)}] -> {{ {'; '.join(parts)} }}"


def _cuts(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(1, 4), rng.randint(1, 3))
    rows = draw.box() + [draw.cut() for _ in range(rng.randint(1, 2))]
    return SetCase(family="cuts", text=draw.whole([draw.text(rows)]), largest=7)


def _simplices(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(2, 4), rng.randint(1, 2))
    total = " + ".join(f"{rng.randint(1, 4)}{x}" for x in draw.dimensions)
    rows = [f"{x} >= {rng.choice([0, 0, 1])}" for x in draw.dimensions]
    rows.append(f"{total} <= {draw.size()}")
    if rng.random() < 0.3:
        rows.append(f"{total} >= {rng.choice(draw.parameters)} - {rng.randint(0, 5)}")
    return SetCase(family="simplices", text=draw.whole([draw.text(rows)]), largest=13)


def _residues(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(1, 3), rng.randint(1, 2))
    rows = draw.box() + [draw.residue() for _ in range(rng.randint(1, 2))]
    return SetCase(family="residues", text=draw.whole([draw.text(rows)]), largest=11)


def _floors(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(1, 3), rng.randint(1, 2))
    rows = draw.box() + [draw.floors() for _ in range(rng.randint(1, 2))]
    return SetCase(family="floors", text=draw.whole([draw.text(rows)]), largest=10)


def _projections(rng: random.Random) -> SetCase:
    """Images under linear maps: of boxes, triangles and tiles."""
    draw = _Draw(rng, rng.randint(1, 2), rng.randint(1, 2))
    hidden = ["a", "b", "c"][: rng.randint(1, 3)]
    rows = [
        rng.choice([f"0 <= {e} < {draw.size()}", f"0 <= {e} <= {rng.randint(1, 6)}"])
        for e in hidden
    ]
    if len(hidden) > 1 and rng.random() < 0.5:
        rows.append(rng.choice([f"{hidden[0]} <= {hidden[1]}", f"{hidden[0]} + {hidden[1]} < n"]))
    rows += [f"{x} = {draw.combination(hidden, 4)} + {rng.randint(0, 2)}" for x in draw.dimensions]
    text = f"[{', '.join(draw.dimensions)}] : exists {', '.join(hidden)} : {' and '.join(rows)}"
    return SetCase(family="projections", text=draw.whole([text]), largest=8)


def _unions(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(1, 3), rng.randint(1, 2))
    parts: list[str] = []
    for _ in range(rng.randint(2, 3)):
        rows = draw.box()
        if rng.random() < 0.6:
            rows.append(rng.choice([draw.cut, draw.residue, draw.floors])())
        parts.append(draw.text(rows))
    return SetCase(family="unions", text=draw.whole(parts), largest=8)


def _equalities(rng: random.Random) -> SetCase:
    draw = _Draw(rng, rng.randint(2, 4), rng.randint(1, 2))
    rows = draw.box()
    right = rng.choice([str(rng.randint(-2, 6)), draw.size(), draw.size()])
    rows.append(f"{draw.combination(draw.dimensions, 5)} = {right}")
    if rng.random() < 0.2:
        rows.append(draw.cut())
    return SetCase(family="equalities", text=draw.whole([draw.text(rows)]), largest=9)


def _tilings(rng: random.Random) -> SetCase:
    """Skewed, wavefront, hexagonal, imperfect tiles; of points or of touched tiles."""
    a, b = rng.randint(2, 4), rng.randint(2, 4)
    skew = rng.choice([0, 1, 1, 2, -1])
    bounds = rng.choice(["0 <= t < m and 0 <= i < n", "0 <= t < m and t <= i < n"])
    time = rng.choice(["t", "t + i"])
    rows = (
        f"{bounds} and {a}T <= {time} < {a}T + {a} and {b}S <= i + {skew}t < {b}S + {b}"
        + rng.choice(["", f" and 0 <= {b}S + i < n + 7"])
    )
    text = rng.choice(
        [
            f"[T, S, t, i] : {rows}",
            f"[T, S] : exists t, i : {rows}",
            f"[W, S] : exists T, t, i : W = T + S and {rows}",
            f"[T, t] : exists S, i : {rows}",
            f"[T, x, y] : exists t, i : {a}T <= i + t < {a}T + {a} and x = i + t - {a}T and "
            f"y = i and {bounds}",
            # hexagons of height 2a around centers of a skewed grid
            f"[t, i] : exists u, v : {2 * a}u - {a} <= t - i < {2 * a}u + {a} and -{a} <= t < {a} "
            f"and {2 * b}v <= t + i < {2 * b}v + {b} and 0 <= i < n and 0 <= t < m",
        ]
    )
    return SetCase(family="tilings", text=f"[n, m] -> {{ {text} }}", largest=9)


def _assumed(rng: random.Random) -> SetCase:
    """Tiles of sizes with known remainders, and conditions on top."""
    width = rng.choice([2, 3, 4, 8])
    remainder = rng.choice([0, 0, 0, 1])
    low = rng.choice([1, width])
    assumptions = f"[n, m] -> {{ : n mod {width} = {remainder} and n >= {low} and m >= 1 }}"
    extra = rng.choice(
        [
            "true",
            "i <= j",
            f"(i + j) mod {rng.choice([2, 3])} = 0",
            "2*i + 3j <= n + m",
            f"o > {rng.randint(0, 2)}",
            f"floor(j/{width}) <= o",
        ]
    )
    i = f"({width}o + t)"
    rows = f"0 <= t < {width} and o >= 0 and {i} < n and 0 <= j < m and " + extra.replace("i", i)
    if "floor" in extra:
        rows = rows.replace(f"floor(j/{width})".replace("i", i), "0")
        rows += f" and floor(j/{width}) <= o"
    heads = ["[o, t, j] : ", "[t, j] : exists o : ", "[o, j] : exists t : "]
    return SetCase(
        family="assumed",
        text=f"[n, m] -> {{ {rng.choice(heads)}{rows} }}",
        assumptions=assumptions,
        largest=2 * width + 1,
    )


def _nests(rng: random.Random, widths: tuple[int, ...] = (2, 3, 4)) -> SetCase:
    """Loop nests as Loopy makes them: triangles and bands, tiled once or twice, or their images."""
    names: list[str] = []
    rows: list[str] = []
    loops: list[str] = []
    for k in range(rng.choice([1, 2, 2, 3])):
        width = rng.choice([0, *widths])
        if not width:
            loop = f"i{k}"
            names.append(loop)
        elif rng.random() < 0.25:
            outer = rng.choice(widths)
            names += [f"o{k}", f"m{k}", f"t{k}"]
            rows.append(f"0 <= t{k} < {width} and 0 <= m{k} < {outer} and o{k} >= 0")
            loop = f"({width * outer}*o{k} + {width}*m{k} + t{k})"
        else:
            names += [f"o{k}", f"t{k}"]
            rows.append(f"0 <= t{k} < {width} and o{k} >= 0")
            loop = f"({width}*o{k} + t{k})"
        size = rng.choice(["n", "n", "m"])
        bounds = [f"0 <= {loop} < {size}", f"0 <= {loop} < {size} - {rng.randint(1, 3)}"]
        if loops:
            other = rng.choice(loops)
            bounds += [
                f"0 <= {loop} <= {other}",
                f"{other} < {loop} < n",
                f"{loop} >= 0 and {other} - 1 <= {loop} <= {other} + 1 and {loop} < m",
                f"{loop} >= 0 and {other} + {loop} < n",
            ]
        rows.append(rng.choice(bounds))
        loops.append(loop)
    condition = rng.choice(["", "", "even", "below"])
    if condition == "even":
        rows.append(f"({' + '.join(loops)}) mod {rng.choice([2, 3])} = 0")
    if condition == "below":
        rows.append(f"2*{loops[0]} <= 3*{loops[-1]} + n")
    if rng.random() < 0.35:  # the cells of an array that is read through one or two subscripts
        hidden = ", ".join(names)
        halo = rng.choice(["", f" + {rng.randint(1, 3)}"])
        cells = [f"x = {rng.choice([1, 1, 2, 3])}*{loops[0]}{halo}"]
        if len(loops) > 1:
            cells.append(f"y = {loops[1]} + {rng.choice(['0', loops[-1], 'n'])}")
        names = ["x", "y"][: len(cells)]
        rows = [f"exists {hidden} : {' and '.join([*cells, *rows])}"]
    elif rng.random() < 0.3:  # the loops around an instruction outside the inner ones
        kept = sorted(rng.sample(names, rng.randint(1, len(names))))
        hidden = ", ".join(n for n in names if n not in kept)
        rows = [f"{f'exists {hidden} : ' if hidden else ''}{' and '.join(rows)}"]
        names = kept
    text = f"[n, m] -> {{ [{', '.join(names)}] : {' and '.join(rows)} }}"
    return SetCase(family="nests", text=text, largest=9)


def _degenerate(rng: random.Random) -> SetCase:
    """Empty sets, single points, sets that only some parameters admit."""
    draw = _Draw(rng, rng.randint(1, 3), rng.randint(1, 3))
    rows = [f"{x} = {draw.combination(draw.parameters, 2)}" for x in draw.dimensions]
    kind = rng.choice(["point", "lattice", "empty", "parameters"])
    if kind == "lattice":
        rows[0] = f"{rng.randint(2, 5)}{draw.dimensions[0]} = {draw.size()}"
    if kind == "empty":
        rows.append(f"2{draw.dimensions[0]} = 2{draw.dimensions[-1]} + {rng.choice([1, 3])}")
    if kind == "parameters":
        rows = [*draw.box(), f"{draw.combination(draw.parameters)} >= {rng.randint(0, 3)}"]
        rows.append(f"({draw.combination(draw.parameters)}) mod 3 = {rng.randint(0, 2)}")
    return SetCase(family="degenerate", text=draw.whole([draw.text(rows)]), largest=6)


FAMILIES = (
    _cuts,
    _simplices,
    _residues,
    _floors,
    _projections,
    _unions,
    _equalities,
    _tilings,
    _assumed,
    _nests,
    _degenerate,
)


def adversarial_set(seed: int) -> SetCase:
    """Return the set of a seed; families take turns."""
    rng = random.Random(seed)
    return FAMILIES[seed % len(FAMILIES)](rng)


def large_nest(seed: int) -> SetCase:
    """Return a nest with tiles of usual widths, too large for enumeration."""
    return _nests(random.Random(seed), (8, 12, 16, 32, 64))
