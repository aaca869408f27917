"""A device in use: context, queue, programs, memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.errors import KernelBuildError
from countperf.harness.devices import Device

if TYPE_CHECKING:
    import numpy as np
    import pyopencl as cl
    from numpy.typing import NDArray


class Session:
    """Context and profiling queue of a device.

    Attributes
    ----------
    device : Device
        The device.
    context, queue
        Of pyopencl; the queue is in order and records when commands run.
    """

    def __init__(self, device: Device, context: cl.Context, queue: cl.CommandQueue) -> None:
        self.device = device
        self.context = context
        self.queue = queue

    @classmethod
    def open(cls, device: Device) -> Session:
        """Open a device.

        Raises
        ------
        pyopencl.Error
            The driver refuses.
        """
        import pyopencl as cl

        context = cl.Context([device.handle])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return cls(device, context, cl.CommandQueue(context, properties=profiling))

    def build(
        self, source: str, options: Sequence[str] = (), *, cache_folder: Path | None = None
    ) -> cl.Program:
        """Build a program.

        Parameters
        ----------
        source : str
            OpenCL C.
        options : sequence of str, optional
            For the compiler.
        cache_folder : Path, optional
            Where pyopencl keeps binaries; by default in the user's cache.

        Returns
        -------
        pyopencl.Program
            The built program.

        Raises
        ------
        KernelBuildError
            It does not build; the message holds the compiler's words.
        """
        import pyopencl as cl

        with warnings.catch_warnings():
            # some drivers chat about builds that succeeded, and pyopencl warns of every word
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                return cl.Program(self.context, source).build(
                    options=list(options),
                    cache_dir=None if cache_folder is None else str(cache_folder),
                )
            except cl.Error as error:
                message = f"does not build on {self.device.label}: {build_message(str(error))}"
                raise KernelBuildError(message) from error

    def allocate(self, size: int) -> cl.Buffer:
        """Return new device memory of that many bytes (at least 4), filled with zeros."""
        import numpy as np
        import pyopencl as cl

        words = max(1, -(-size // 4))
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4 * words)
        cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint32), 0, 4 * words)
        return buffer

    def upload(self, array: NDArray[Any]) -> cl.Buffer:
        """Return new device memory with the elements of a contiguous array in memory order."""
        import pyopencl as cl

        if array.size == 0:
            return self.allocate(0)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=array.ravel(order="K"))

    def download(self, buffer: cl.Buffer, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return the first elements of device memory."""
        import numpy as np
        import pyopencl as cl

        result = np.empty(count, dtype)
        if count:
            cl.enqueue_copy(self.queue, result, buffer)
        return result


def build_message(text: str, limit: int = 600) -> str:
    """Shorten what pyopencl says of a failed build to the compiler's own words."""
    lines = [line.strip() for line in text.splitlines()]
    noise = ("Build on <pyopencl", "(options:", "(source saved as")
    kept = [line for line in lines if line and not line.startswith(noise)]
    own = [line for line in kept if "BUILD_PROGRAM_FAILURE" not in line]
    message = "; ".join(own or kept)
    return message if len(message) <= limit else message[: limit - 3] + "..."
