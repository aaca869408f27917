"""``countperf fit``."""

from __future__ import annotations

import argparse

from countperf.cli.common import natural, positive, print_json


def configure(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    command.add_argument("measurements", help="a campaign's file (.jsonl)")
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        default="linear",
        metavar="NAME|FILE",
        help="name of a model (linear, bounded, bounded-log, overlap, overlap3), a model document"
        " (.toml); or auto: choose by leaving out families of kernels, structural: among execution"
        " policies alone, compiled: among those that read compiled code, which countperf compiled"
        " --store has noted (default: linear)",
    )
    which.add_argument(
        "--expression",
        metavar="FORMULA",
        help='the time as a formula, such as "launch + w_group*groups + overlap(global_memory,'
        ' on_chip)"',
    )
    command.add_argument(
        "--policy",
        metavar="SLUG|FILE",
        help="for an --expression of what the device issues (run_vector_gmem_load_next,"
        " bytes_group_load_dense, load_beyond2 ...; terms compute, accesses, chains, traffic ...):"
        " the execution policy, as that of a fit or of a model document",
    )
    command.add_argument(
        "--residual", choices=("relative", "log"), help="what to make small (default: the model's)"
    )
    command.add_argument(
        "--loss",
        choices=("linear", "soft_l1", "huber"),
        help="how residuals are summed (default: the model's)",
    )
    command.add_argument(
        "--loss-scale",
        type=positive,
        metavar="NUMBER",
        help="size of the residuals from which on a robust loss counts them for less",
    )
    command.add_argument(
        "--nonnegative",
        action="store_true",
        help="keep weights at least zero (the paper's are free)",
    )
    command.add_argument(
        "--ignore-noise",
        action="store_true",
        help="count all cases the same, as the paper does, also those whose times do not repeat",
    )
    command.add_argument(
        "--workers",
        type=natural,
        metavar="N",
        help="processes that fit without some of the families each (default: one a processor, if"
        " there are many cases)",
    )
    command.add_argument(
        "--output",
        metavar="FILE",
        help="where to write the weights; by default the user's fits, under the device's slug",
    )


def run(options: argparse.Namespace) -> None:
    """Fit, save and print the weights with what was checked."""
    from countperf.documents import check_writable
    from countperf.errors import OutputError
    from countperf.models.library import user_fits_folder
    from countperf.report import fit_object, fit_text
    from countperf.tuning.pools import processors
    from countperf.workflow import fit, known_device

    check_writable(options.output or user_fits_folder() / "weights.json")  # before the work
    result = fit(
        options.measurements,
        model=options.model,
        expression=options.expression,
        policy=options.policy,
        nonnegative=options.nonnegative,
        residual=options.residual,
        loss=options.loss,
        loss_scale=options.loss_scale,
        weigh_noise=not options.ignore_noise,
        workers=options.workers or processors(),
    )
    output = options.output
    if output is None:
        output = user_fits_folder() / result.weights.device.slug / f"{result.weights.model}.json"
    failed = None
    try:
        result.weights.write_file(output, rescue=True)
    except OutputError as error:  # the fit is printed all the same
        output, failed = error.rescued, error
    if options.json:
        print_json({**fit_object(result), "written": None if output is None else str(output)})
    else:
        print(fit_text(result, known_device(result.weights.device.slug, options.measurements)))
        if output is not None:
            print(f"written to {output}")
    if failed is not None:
        raise failed
