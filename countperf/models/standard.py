"""Terms that come with countperf, and models made of a formula of them."""

from __future__ import annotations

from collections.abc import Mapping

from countperf.errors import DocumentError, ExpressionError
from countperf.execution.memory_hierarchy import MemoryHierarchy
from countperf.execution.policy import ExecutionPolicy
from countperf.models.definition import ModelDefinition, is_implied
from countperf.models.expressions import parse
from countperf.models.formula_names import property_of
from countperf.models.negligible import needed_derived
from countperf.models.structural import structural
from countperf.properties.transactions import transaction_roots

NOT_WORK = (
    "gmem.min.*.*",
    "flop.compare.*",
    "flop.select.*",
    "flop.convert.*",
    "flop.neg.*",
    "iop.*",
    "barrier.global",
)
"""Properties that the models with an overlap leave out: what compiles to nothing or to part of
other work, and the paper's minimum of loads and stores, which is no work of its own."""

STANDARD_TERMS: Mapping[str, tuple[str, ...]] = {
    "launch": ("launches",),
    "work_groups": ("groups",),
    "overhead": ("launches", "groups"),
    "global_memory": ("gmem.load.*.*", "gmem.store.*.*"),
    "global_loads": ("gmem.load.*.*",),
    "global_stores": ("gmem.store.*.*",),
    "arithmetic": (
        *("flop.add.*", "flop.mul.*", "flop.div.*", "flop.pow.*", "flop.special.*"),
        *("flop.fma.*", "flop.minmax.*"),
    ),
    "local_memory": ("lmem.load.*", "lmem.store.*"),
    "barriers": ("barrier.local",),
    "on_chip": (
        *("flop.add.*", "flop.mul.*", "flop.div.*", "flop.pow.*", "flop.special.*"),
        *("flop.fma.*", "flop.minmax.*", "lmem.load.*", "lmem.store.*", "barrier.local"),
    ),
}
"""Terms that an expression on the command line can name."""


OTHER_WORDS = ("bytes.*", "segments.*")
"""Properties that models with a policy leave out unless they name them: bytes and segments describe
the accesses in another way."""


_ACCESSES = ("gmem.*",)
"""Properties that models without a policy leave out if they name transactions of these accesses."""


def from_expression(
    expression: str,
    *,
    name: str = "custom",
    policy: ExecutionPolicy | None = None,
    memory: MemoryHierarchy | None = None,
) -> ModelDefinition:
    """Make a model of an expression and the terms that come with countperf.

    Parameters
    ----------
    expression : str
        A formula of `STANDARD_TERMS`, properties, and parameters (``w_...``, ``sharpness``).
    name : str, optional
        Its name in documents.
    policy : ExecutionPolicy, optional
        How the device runs work groups, for a formula of what it issues: of terms and derived
        features of `structural` instead (``compute``, ``accesses``, ``chains``, ``traffic``;
        ``load_beyond_l2``, bytes beyond a second-level cache ...), and properties such as
        ``issue_vector_gmem_load_next`` and ``bytes_group_load_dense``.
    memory : MemoryHierarchy, optional
        Caches of the device, with a policy; as for `structural`.

    Raises
    ------
    ExpressionError
        The formula cannot be read, or has names that are not known, or cannot be fitted.

    Examples
    --------
    >>> from_expression("launch + w_group*groups + overlap(global_memory, on_chip)").variables
    ('groups',)
    >>> from_expression("launch + w_t*transactions_32x128 + on_chip").named_transactions
    ('transactions.32x128',)
    >>> model = from_expression("launch + w_far*load_beyond_llc", policy=ExecutionPolicy(width=8))
    >>> list(model.derived)
    ['beyond_llc', 'load_beyond_llc']
    """
    formula = parse(expression)
    whole = None if policy is None else structural(policy, memory=memory)
    there = (
        STANDARD_TERMS
        if whole is None
        else {term: content.charged for term, content in whole.terms.items()}
    )
    derived = {} if whole is None else whole.derived
    terms = {term: list(there[term]) for term in formula.names if term in there}
    implied = [n for n in formula.names if property_of(n) or is_implied(n, formula)]
    formula.refuse_unknown([*there, *derived, *implied])
    charged = [feature for features in terms.values() for feature in features]
    ignored = NOT_WORK if policy is None else OTHER_WORDS
    if policy is None and transaction_roots(property_of(n) or "" for n in formula.names):
        ignored = (*ignored, *_ACCESSES)
    content = {
        "format": "countperf-model",
        "version": 2,
        "name": name,
        "expression": expression,
        "terms": terms,
        "derived": needed_derived(derived, [*formula.names, *charged]),
        "ignored": list(ignored),
    }
    if whole is not None and whole.memory is not None:
        content["memory"] = whole.memory.model_dump(mode="json")
    if policy is not None:
        content["policy"] = policy.model_dump(mode="json")
    try:
        return ModelDefinition.from_object(content)
    except DocumentError as error:
        said = str(error).removeprefix(f"{error.field}: ")
        raise ExpressionError(said, text=expression) from error
