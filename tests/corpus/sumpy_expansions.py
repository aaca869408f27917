"""Kernels in the style of sumpy: expansions of boxes, formed, translated and evaluated.

Coefficients are unrolled, and arrays of expansions begin at an automatic offset.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement
from typing import Any

from tests.corpus import Unit
from tests.corpus.sumpy import AXES, BOXES
from tests.kernels import made


def _terms(dim: int, order: int) -> list[str]:
    """Return monomials of dx, dy, dz up to an order, as products."""
    axes = [f"d{AXES[axis]}" for axis in range(dim)]
    higher = (
        "*".join(factors)
        for degree in range(1, order + 1)
        for factors in combinations_with_replacement(axes, degree)
    )
    return ["1", *higher]


def _form(dim: int, order: int, *, from_lists: bool) -> Any:
    """Form the expansions of boxes from the points in them, coefficient by coefficient."""
    terms = _terms(dim, order)
    coefficients = "\n".join(
        f"coeff[{i}] = coeff[{i}] + q*{term}*{1.0 / (i + 1):.6f}"
        f" {{id=add{i}, dep=zero:{'add' + str(i - 1) if i else 'zero'}}}"
        for i, term in enumerate(terms)
    )
    centers = "\n".join(
        f"<> d{AXES[a]} = (sources[{a}, isrc] - centers[{a}, tbox])/rscale" for a in range(dim)
    )
    outer, inner, domains = "", "", ["src_start<=isrc<src_stop"]
    source_box = "tbox"
    if from_lists:
        domains.insert(0, "list_start<=ilist<list_stop")
        outer = (
            "<> list_start = source_starts[ibox]\n<> list_stop = source_starts[ibox + 1]\n"
            "for ilist\n<> sbox = source_lists[ilist]\n"
        )
        inner, source_box = "end", "sbox"
    return made(
        ["ibox<nboxes", *domains, f"ic<{len(terms)}, jc<{len(terms)}"],
        f"""
        for ibox
            <> tbox = target_boxes[ibox]
            <> coeff[ic] = 0 {{id=zero}}
            {outer}
            <> src_start = first_source[{source_box}]
            <> src_stop = src_start + number_of_sources[{source_box}]
            for isrc
                {centers}
                <> q = strength[isrc]
                {coefficients}
            end
            {inner}
            expansions[tbox - base, jc] = coeff[jc] {{dep=add*}}
        end
        """,
        f"{'; '.join((*BOXES[: 2 if from_lists else 1], BOXES[3]))}; sources f64 {dim},ns sep,C;"
        f"centers f64 {dim},nall; strength f64 ns; rscale f64;"
        f"expansions f64 nlevel,{len(terms)} auto; nboxes,ns,nall,nlevel,base i32",
        split="ibox:16:g.0,",
    )


def _evaluate(dim: int, order: int, *, from_lists: bool) -> Any:
    """Evaluate expansions at the points of boxes."""
    terms = _terms(dim, order)
    total = " + ".join(f"coeff[{i}]*{term}" for i, term in enumerate(terms))
    centers = "\n".join(
        f"<> d{AXES[a]} = (targets[{a}, itgt] - centers[{a}, sbox])/rscale" for a in range(dim)
    )
    if from_lists:
        domains = ["[itgt, list_start, list_stop] -> { [ilist] : list_start <= ilist < list_stop }"]
        text = f"""
            for itgt
                <> list_start = source_starts[ibox]
                <> list_stop = source_starts[ibox + 1]
                for ilist
                    <> sbox = source_lists[ilist]
                    <> coeff[ic] = expansions[sbox - base, ic] {{id=fetch}}
                    {centers}
                    <> part = {total} {{dep=fetch}}
                end
                result[itgt] = simul_reduce(sum, ilist, part)
            end
        """
    else:
        domains = []
        text = f"""
            <> sbox = tbox
            <> coeff[ic] = expansions[sbox - base, ic] {{id=fetch}}
            for itgt
                {centers}
                result[itgt] = 0.5*({total}) {{dep=fetch}}
            end
        """
    return made(
        ["ibox<nboxes", "tgt_start<=itgt<tgt_stop", *domains, f"ic<{len(terms)}"],
        f"""
        for ibox
            <> tbox = target_boxes[ibox]
            <> tgt_start = first_target[tbox]
            <> tgt_stop = tgt_start + number_of_targets[tbox]
            {text}
        end
        """,
        f"{'; '.join((*BOXES[: 2 if from_lists else 1], BOXES[2]))}; targets f64 {dim},nt sep,C;"
        f"centers f64 {dim},nall; result f64 nt; rscale f64;"
        f"expansions f64 nlevel,{len(terms)} auto; nboxes,nt,nall,nlevel,base i32",
        tags={"ibox": "g.0"},
    )


def _translate(dim: int, order: int, kind: str) -> Any:
    """Translate expansions between boxes in lists, all coefficients unrolled."""
    terms = _terms(dim, order)
    shifts = "\n".join(
        f"<> d{AXES[a]} = centers[{a}, tbox] - centers[{a}, sbox]" for a in range(dim)
    )
    loads = "\n".join(f"<> c{i} = sources[sbox - sbase, {i}]" for i in range(len(terms)))
    translated = "\n".join(
        f"<> t{i} = 1*("
        + " + ".join(f"c{j}*{terms[(i + j) % len(terms)]}" for j in range(i + 1))
        + ")"
        for i in range(len(terms))
    )
    stores = "\n".join(
        f"targets[tbox - tbase, {i}] = simul_reduce(sum, ilist, t{i})" for i in range(len(terms))
    )
    return made(
        ["ibox<nboxes", "list_start<=ilist<list_stop"],
        f"""
        for ibox
            <> tbox = target_boxes[ibox]
            <> list_start = source_starts[ibox]
            <> list_stop = source_starts[ibox + 1]
            for ilist
                <> sbox = source_lists[ilist]
                {shifts}
                {loads}
                {translated}
            end
            {stores}
        end
        """,
        f"{'; '.join(BOXES[:2])}; sources {kind} nsources,{len(terms)} auto;"
        f"targets {kind} ntargets,{len(terms)} auto; centers f64 {dim},nall;"
        "nboxes,nall,nsources,ntargets,sbase,tbase i32",
        split="ibox:64",
    )


def _classes() -> Any:
    """Multiply expansions with data of translation classes, as transformed translations do."""
    return made(
        ["ibox<nboxes", "list_start<=ilist<list_stop", "ic<6, jc<6"],
        """
        for ibox
            <> list_start = source_starts[ibox]
            <> list_stop = source_starts[ibox + 1]
            <> total[jc] = 0 {id=zero}
            for ilist
                <> sbox = source_lists[ilist]
                <> kind = classes[ilist]
                for ic
                    total[ic] = total[ic] + data[kind, ic]*sources[sbox - sbase, ic] \
                        {id=add, dep=zero}
                end
            end
            targets[ibox, jc] = total[jc] {dep=add, dup=jc}
        end
        """,
        f"{BOXES[1]}; classes i32 - auto; data c128 nclasses,6 auto;"
        "sources c128 nsources,6 auto; targets c128 nboxes,6 auto;"
        "nboxes,nclasses,nsources,sbase i32",
        tags={"ibox": "g.0"},
    )


def _unfold(number: int) -> Any:
    """Fill a circulant array of coefficients, with rotated subscripts, for a transform."""
    return made(
        f"ibox<nboxes, ic<{2 * number}",
        f"out[ibox, ic] = if(ic < {number}, coeff[ibox, ({number} - ic) % {number}], 0)",
        f"coeff c128 nboxes,{number} auto; out c128 nboxes,{2 * number} auto; nboxes i32",
    )


def _transform(number: int) -> Any:
    """Transform coefficients by a dense complex matrix of roots of one."""
    return made(
        f"ibox<nboxes, ic<{number}, jc<{number}",
        "out[ibox, ic] = sum(jc, roots[(ic*jc) % n_roots]*coeff[ibox, jc])",
        f"coeff,out c128 nboxes,{number}; roots c128 n_roots; nboxes,n_roots i32",
    )


LEVEL = {"nboxes": 64, "nall": 80, "nlevel": 64, "base": 0}
SHIFTS = {"nboxes": 64, "nall": 80, "nsources": 64, "ntargets": 64, "sbase": 0, "tbase": 0}
SOURCES = {**LEVEL, "ns": 2000}
TARGETS = {**LEVEL, "nt": 2000}
CLASSES = {"nboxes": 64, "nclasses": 40, "nsources": 64, "sbase": 0}

UNITS: list[Unit] = [
    ("p2e_3d_2", partial(_form, 3, 2, from_lists=False), SOURCES),
    ("p2e_2d_3_lists", partial(_form, 2, 3, from_lists=True), SOURCES),
    ("e2p_2d_3", partial(_evaluate, 2, 3, from_lists=False), TARGETS),
    ("e2p_3d_2_lists", partial(_evaluate, 3, 2, from_lists=True), TARGETS),
    ("e2e_polynomial_2d", partial(_translate, 2, 2, "f64"), SHIFTS),
    ("e2e_complex", partial(_translate, 2, 1, "c128"), SHIFTS),
    ("m2l_classes_c128", _classes, CLASSES),
    ("unfold", partial(_unfold, 9), {"nboxes": 64}),
    ("transform", partial(_transform, 8), {"nboxes": 64, "n_roots": 8}),
]
