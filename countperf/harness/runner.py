"""Building, checking and running the cases of a campaign on a device."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import DeviceLostError, KernelBuildError, MeasurementError, WrongResultError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.backend import Session
from countperf.harness.binding import bind_arguments
from countperf.harness.clock import Clock, EventClock, Timing
from countperf.harness.description import Kernel
from countperf.harness.device import Device, DeviceLimits
from countperf.harness.environment import Neighbors, time_of_others_s
from countperf.harness.inputs import default_inputs
from countperf.harness.registry import open_session
from countperf.harness.repeats import Round, time_round
from countperf.harness.scalars import without_vectors
from countperf.measurements import KernelCase, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

Run = Callable[[], Timing]

_STEP_BYTES = 192
"""No power of two, so that arrays shift against cache lines' sets and pages alike."""

_PLACES = 2**12


class CaseRunner(ABC):
    """A runner of cases on a device; subclasses have the attributes, and define `loaded`."""

    identity: DeviceIdentity
    limits: DeviceLimits
    clock: Clock

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels, as `Session.versions`."""
        return {}

    def time_of_others_s(self) -> float | None:
        """Return the processor time that other programs have used so far, s.

        None where nobody knows, or where it does not hold up the device.
        """
        return None

    def prepare(self, case: KernelCase) -> None:
        """Build the case's kernel ahead of time, maybe in another thread."""
        del case

    @abstractmethod
    def check(self, case: KernelCase) -> None:
        """Build the case's kernel and compare its numbers, once per kernel."""

    @abstractmethod
    def loaded(self, case: KernelCase) -> AbstractContextManager[Run]:
        """Put the case's arguments into fresh memory, and give what runs it once."""

    @cached_property
    def _neighbors(self) -> Neighbors:
        return Neighbors(self.time_of_others_s, self.clock.now)

    def time_round(self, case: KernelCase, protocol: Protocol) -> Round:
        """Put a case into memory, and run it as often as the protocol says."""
        neighbors = self._neighbors
        with self.loaded(case) as run:
            neighbors.look()
            turn = time_round(run, protocol, self.clock.now)
        return replace(turn, disturbed=neighbors.disturb(neighbors.look()))


class KernelRunner(CaseRunner):
    """Runs cases on a device."""

    def __init__(self, session: Session, clock: Clock | None = None, *, seed: int = 0) -> None:
        self.session = session
        self.device = session.device
        self.identity = session.device.identity
        self.limits = session.device.limits
        self.clock: Clock = clock or EventClock()
        self._seed = seed
        self._displacements = np.random.default_rng(seed)
        self._kernels: dict[str, Kernel] = {}
        self._checked: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
        self._drawn: tuple[object, dict[str, Any]] | None = None

    @classmethod
    def open(cls, device: Device, clock: Clock | None = None) -> KernelRunner:
        """Open a device and return what runs cases on it."""
        return cls(open_session(device), clock)

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self.session.versions()

    def time_of_others_s(self) -> float | None:
        """Return what other programs have used of the processor, if the device is one, s."""
        return time_of_others_s() if self.identity.device_type == "cpu" else None

    def prepare(self, case: KernelCase) -> None:
        """Build a case's kernel, so that it need not be built when it is checked.

        Another thread may do so meanwhile for another kernel.
        """
        self._kernel(case)

    def check(self, case: KernelCase) -> None:
        """Build a case's kernel and compare its numbers with the reference at small sizes.

        Done once per kernel and check sizes.
        """
        key = (case.kernel, tuple(sorted(case.check_parameters.items())))
        if key in self._checked:
            return
        kernel = self._kernel(case)
        inputs = self._inputs(case, kernel, case.check_parameters)
        with self._failing_as(KernelBuildError, case, "does not run at its check sizes"):
            bound = bind_arguments(self.session, kernel, case.check_parameters, inputs)
            kernel.launch(bound.arguments)
            self.session.finish()
        with self._failing_as(WrongResultError, case, "cannot be compared with its reference"):
            reference = case.reference
            wanted = {} if reference is None else reference(inputs, case.check_parameters)
        arrays = {array.name for array in kernel.arrays}
        for name, want in wanted.items():
            if name not in arrays:
                message = f"{case.name}: the reference gives {name!r}, no array of the kernel"
                raise WrongResultError(message, case=case.name)
            compare(case, name, bound.read(name), want)
        self._checked.add(key)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Put a case's arguments into fresh memory, and give what runs it once.

        Fresh memory each time, since times depend on where arrays happen to lie; allocators like to
        give back what they got last, so memory of another size is held before the arrays.
        """
        kernel = self._kernel(case)
        with self._failing_as(MeasurementError, case, "does not run"):
            inputs = self._inputs_at_full_size(case, kernel)
            held = self.session.allocate(
                int(self._displacements.integers(1, _PLACES)) * _STEP_BYTES
            )
            arguments = bind_arguments(self.session, kernel, case.parameters, inputs).arguments
            self.session.finish()
            yield lambda: self.clock.time_run(lambda: kernel.launch(arguments))
            del held

    def _kernel(self, case: KernelCase) -> Kernel:
        if case.kernel not in self._kernels:
            with self._failing_as(KernelBuildError, case, "does not build"):
                self._kernels[case.kernel] = self.session.build_kernel(case.build())
        return self._kernels[case.kernel]

    def _inputs(
        self, case: KernelCase, kernel: Kernel, parameters: Mapping[str, int]
    ) -> dict[str, Any]:
        seed = (self._seed, zlib.crc32((case.inputs or case.kernel).encode()))
        rng = np.random.default_rng(seed)
        with self._failing_as(KernelBuildError, case, "gets no inputs"):
            if case.make_arguments is None:
                return default_inputs(
                    kernel, rng, parameters, case.bound_arguments, case.statistics
                )
            return {**case.bound_arguments, **case.make_arguments(rng, parameters)}

    def _inputs_at_full_size(self, case: KernelCase, kernel: Kernel) -> dict[str, Any]:
        """Return a case's inputs; those that cases share are drawn once for all in a row."""
        if not case.inputs or case.make_arguments is None:
            return self._inputs(case, kernel, case.parameters)
        key = (case.inputs, case.make_arguments, dict(case.parameters))
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = None  # the memory goes first
            self._drawn = key, self._inputs(case, kernel, case.parameters)
        return self._drawn[1]

    @contextmanager
    def _failing_as(
        self, kind: type[MeasurementError], case: KernelCase, what: str
    ) -> Generator[None]:
        try:
            yield
        except DeviceLostError:
            raise  # no case of this process can run any more
        except MeasurementError as error:
            if error.case is not None:
                raise
            raise type(error)(f"{case.name}: {error}", case=case.name) from error
        except Exception as error:
            # builders, inputs and references are anybody's code: whatever they raise is a failed
            # case and not the end of the campaign
            message = f"{case.name} {what}: {type(error).__name__}: {error}"
            raise kind(message, case=case.name) from error


def tolerance_of(dtype: np.dtype[Any]) -> float:
    """Return how far results may be off by default, relative to the largest.

    Sums of a million numbers in another order stay within it; integers are exact.
    """
    if dtype.kind not in "fc":
        return 0.0
    bits = 8 * dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return {16: 1e-2, 32: 1e-4}.get(bits, 1e-10)


def compare(case: KernelCase, name: str, got: NDArray[Any], want: NDArray[Any]) -> None:
    """Compare an output with the reference."""
    got, expected = without_vectors(got), without_vectors(np.asarray(want))
    if got.shape != expected.shape:
        message = f"{case.name}: {name} has shape {got.shape}, the reference {expected.shape}"
        raise WrongResultError(message, case=case.name)
    if expected.size == 0:
        return
    wide = np.result_type(got.dtype, expected.dtype, np.float64)
    difference = np.abs(got.astype(wide) - expected.astype(wide))
    tolerance = tolerance_of(got.dtype) if case.tolerance is None else case.tolerance
    allowed = tolerance * max(1.0, float(np.max(np.abs(expected))))
    wrong = ~(difference <= allowed)  # a NaN is wrong
    if not wrong.any():
        return
    place = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    message = (
        f"{case.name}: wrong numbers: {name}{list(place)} is {got[place]}, the reference says"
        f" {expected[place]} (tolerance {allowed:.3g}; {int(wrong.sum())} of {wrong.size} differ)"
    )
    raise WrongResultError(message, case=case.name)
