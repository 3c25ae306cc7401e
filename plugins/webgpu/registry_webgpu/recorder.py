"""Work that is recorded and not yet submitted: dispatches of several operations share one compute pass."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Command buffers in order, the last of them open. Belongs under the device's lock."""

    def __init__(self, gpu: Any):
        self._gpu = gpu
        self._encoder: Any = None
        self._pass: Any = None
        self.labels: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing is recorded."""
        return self._encoder is None

    def compute(self, label: str) -> Any:
        """The open compute pass, for the dispatches of an operation of that label."""
        if self._pass is None:
            self._pass = self.encoder(label).begin_compute_pass()
        elif self.labels[-1] != label:
            self.labels.append(label)
        return self._pass

    def encoder(self, label: str) -> Any:
        """The open encoder, outside of any pass, for copies of an operation of that label."""
        self._end_pass()
        if self._encoder is None:
            self._encoder = self._gpu.create_command_encoder()
        self.labels.append(label)
        return self._encoder

    def finish(self) -> Any:
        """The command buffer of all that was recorded, None where nothing was; begins anew.

        Raises what the implementation raises for what was recorded, and on a lost device.
        """
        if self._encoder is None:
            return None
        try:
            self._end_pass()
            return self._encoder.finish()
        finally:
            self._encoder = self._pass = None
            self.labels = []

    def _end_pass(self) -> None:
        if self._pass is not None:
            ended, self._pass = self._pass, None
            ended.end()
