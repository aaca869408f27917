"""Building, checking and running the cases of a campaign on a device."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from countperf.counting.size_ranges import check_range
from countperf.devices.identity import DeviceIdentity
from countperf.errors import DeviceLostError, KernelBuildError, MeasurementError, WrongResultError
from countperf.harness.backend import Session, open_session
from countperf.harness.clock import Clock, EventClock, Timing
from countperf.harness.devices import Device, DeviceLimits
from countperf.harness.launch import ArrayArgument, Kernel, read_output
from countperf.harness.neighbors import time_of_others_s
from countperf.measurements import KernelCase

if TYPE_CHECKING:
    from numpy.typing import NDArray

Run = Callable[[], Timing]

_STEP_BYTES = 192
"""No power of two, so that arrays shift against cache lines' sets and pages alike."""

_PLACES = 2**12


class CaseRunner(Protocol):
    """What a campaign needs of whatever runs its cases."""

    @property
    def identity(self) -> DeviceIdentity:
        """Which device runs them."""
        ...

    @property
    def limits(self) -> DeviceLimits:
        """What the device can hold."""
        ...

    @property
    def clock(self) -> Clock:
        """What times them."""
        ...

    def device_state(self) -> dict[str, float]:
        """Return what the driver says of the device now, as `Session.state`."""
        ...

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels, as `Session.versions`."""
        ...

    def time_of_others_s(self) -> float | None:
        """Return the processor time that other programs have used so far, s.

        None where nobody knows, or where it does not hold up the device.
        """
        ...

    def prepare(self, case: KernelCase) -> None:
        """Build the case's kernel ahead of time, maybe in another thread."""
        ...

    def check(self, case: KernelCase) -> None:
        """Build the case's kernel and compare its numbers, once per kernel."""
        ...

    def loaded(self, case: KernelCase) -> AbstractContextManager[Run]:
        """Put the case's arguments into fresh memory, and give what runs it once."""
        ...


class KernelRunner:
    """Runs cases on a device.

    Parameters
    ----------
    session : Session
        The open device.
    clock : Clock, optional
        By default the device's event timer.
    seed : int, optional
        For the kernels' inputs.

    Attributes
    ----------
    identity, limits, clock
        As in `CaseRunner`.
    """

    def __init__(self, session: Session, clock: Clock | None = None, *, seed: int = 0) -> None:
        self.session = session
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

    def device_state(self) -> dict[str, float]:
        """Return what the driver says of the device now."""
        return self.session.state()

    def versions(self) -> dict[str, str]:
        """Return versions of what builds and runs kernels."""
        return self.session.versions()

    def time_of_others_s(self) -> float | None:
        """Return what other programs have used of the processor, if the device is one, s."""
        return time_of_others_s() if self.identity.device_type == "cpu" else None

    def prepare(self, case: KernelCase) -> None:
        """Build a case's kernel, so that it need not be built when it is checked.

        Another thread may do so meanwhile for another kernel.

        Raises
        ------
        KernelBuildError
            The kernel is not made, or does not build.
        """
        self._kernel(case)

    def check(self, case: KernelCase) -> None:
        """Build a case's kernel and compare its numbers with the reference at small sizes.

        Done once per kernel and check sizes.

        Parameters
        ----------
        case : KernelCase
            The case.

        Raises
        ------
        KernelBuildError
            The kernel is not made, does not build, or exceeds the device's limits.
        WrongResultError
            Its numbers differ from the reference, or are not what the reference describes.
        """
        key = (case.kernel, tuple(sorted(case.check_parameters.items())))
        if key in self._checked:
            return
        kernel = self._kernel(case)
        inputs = self._inputs(case, case.check_parameters)
        with self._failing_as(KernelBuildError, case, "does not run at its check sizes"):
            arguments = self._arguments(kernel, inputs, case.check_parameters)
            kernel.launch(arguments)
            self.session.finish()
        with self._failing_as(WrongResultError, case, "cannot be compared with its reference"):
            wanted = case.reference(inputs, case.check_parameters)
        arrays = {array.name: array for array in kernel.arrays}
        for name, want in wanted.items():
            if name not in arrays:
                message = f"{case.name}: the reference gives {name!r}, no array of the kernel"
                raise WrongResultError(message, case=case.name)
            values = {**case.check_parameters, **inputs}
            got = read_output(self.session, arrays[name], arguments[name], values)
            compare(case, name, got, want)
        self._checked.add(key)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Put a case's arguments into fresh memory, and give what runs it once.

        Fresh memory each time, since times depend on where arrays happen to lie; allocators like to
        give back what they got last, so memory of another size is held before the arrays.

        Parameters
        ----------
        case : KernelCase
            The case, at its full size.

        Yields
        ------
        callable
            Runs and times the case once.

        Raises
        ------
        MeasurementError
            It does not fit into memory, or does not run.
        """
        kernel = self._kernel(case)
        with self._failing_as(MeasurementError, case, "does not run"):
            inputs = self._inputs_at_full_size(case)
            held = self.session.allocate(
                int(self._displacements.integers(1, _PLACES)) * _STEP_BYTES
            )
            arguments = self._arguments(kernel, inputs, case.parameters)
            self.session.finish()
            yield lambda: self.clock.time_run(lambda: kernel.launch(arguments))
            del held

    def _kernel(self, case: KernelCase) -> Kernel:
        if case.kernel not in self._kernels:
            with self._failing_as(KernelBuildError, case, "does not build"):
                self._kernels[case.kernel] = self.session.build_kernel(case.build())
        return self._kernels[case.kernel]

    def _inputs(self, case: KernelCase, parameters: Mapping[str, int]) -> dict[str, Any]:
        seed = (self._seed, zlib.crc32((case.inputs or case.kernel).encode()))
        with self._failing_as(KernelBuildError, case, "gets no inputs"):
            return case.make_arguments(np.random.default_rng(seed), parameters)

    def _inputs_at_full_size(self, case: KernelCase) -> dict[str, Any]:
        """Return a case's inputs; those that cases share are drawn once for all in a row."""
        if not case.inputs:
            return self._inputs(case, case.parameters)
        key = (case.inputs, case.make_arguments, dict(case.parameters))
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = None  # the memory goes first
            self._drawn = key, self._inputs(case, case.parameters)
        return self._drawn[1]

    def _arguments(
        self, kernel: Kernel, inputs: Mapping[str, Any], parameters: Mapping[str, int]
    ) -> dict[str, Any]:
        arrays = {array.name: array for array in kernel.arrays}
        for name in inputs:
            if name not in arrays and name not in kernel.scalars:
                raise KernelBuildError(f"kernel {kernel.name!r} has no argument {name!r}")
        values = {**parameters, **{k: v for k, v in inputs.items() if k not in arrays}}
        arguments = {name: values[name] for name in kernel.scalars if name in values}
        missing = kernel.scalars - set(arguments)
        if missing:
            names = ", ".join(sorted(missing))
            raise KernelBuildError(f"kernel {kernel.name!r}: no value for argument {names}")
        for name, held in kernel.ranges.items():
            if isinstance(arguments[name], int):
                check_range(kernel.name, name, arguments[name], held)
        for name, array in arrays.items():
            if name in inputs:
                arguments[name] = self.session.upload(check_layout(array, inputs[name], values))
            else:
                size = array.count(values) * array.dtype.itemsize
                arguments[name] = self.session.allocate(size)
        return arguments

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


def check_layout(array: ArrayArgument, given: Any, parameters: Mapping[str, Any]) -> NDArray[Any]:
    """Return an input array if it has the type, shape and memory order of the argument.

    Raises
    ------
    KernelBuildError
        It differs.
    """
    shape, strides = array.layout(parameters)
    found = np.asarray(given)
    wanted = tuple(stride * array.dtype.itemsize for stride in strides)
    relevant = [axis for axis, extent in enumerate(shape) if extent > 1]
    same_order = found.ndim == len(shape) and all(
        found.strides[axis] == wanted[axis] for axis in relevant
    )
    if found.dtype == array.dtype and found.shape == shape and (same_order or not found.size):
        return found
    message = (
        f"argument {array.name!r} wants {array.dtype} of shape {shape} with strides {wanted} byte,"
        f" not {found.dtype} of shape {found.shape} with strides {found.strides}"
    )
    raise KernelBuildError(message)


def compare(case: KernelCase, name: str, got: NDArray[Any], want: NDArray[Any]) -> None:
    """Compare an output with the reference.

    Raises
    ------
    WrongResultError
        The shapes differ, or some element is farther off than the case's tolerance.
    """
    expected = np.asarray(want)
    if got.shape != expected.shape:
        message = f"{case.name}: {name} has shape {got.shape}, the reference {expected.shape}"
        raise WrongResultError(message, case=case.name)
    if expected.size == 0:
        return
    wide = np.result_type(got.dtype, expected.dtype, np.float64)
    difference = np.abs(got.astype(wide) - expected.astype(wide))
    allowed = case.tolerance * max(1.0, float(np.max(np.abs(expected))))
    wrong = ~(difference <= allowed)  # a NaN is wrong
    if not wrong.any():
        return
    place = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    message = (
        f"{case.name}: wrong numbers: {name}{list(place)} is {got[place]}, the reference says"
        f" {expected[place]} (tolerance {allowed:.3g}; {int(wrong.sum())} of {wrong.size} differ)"
    )
    raise WrongResultError(message, case=case.name)
