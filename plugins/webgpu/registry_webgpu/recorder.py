"""Work that is recorded and not yet submitted: dispatches of several operations share one compute pass."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Command buffers in order, the last of them open. Belongs under the device's lock."""

    def __init__(self, gpu: Any):
        self._gpu = gpu
        self._encoder: Any = None
        self._pass: Any = None
        self._pipeline: Any = None
        self.labels: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing is recorded."""
        return self._encoder is None

    def dispatch(self, label: str, pipeline: Any, group: Any, grid: tuple[int, int, int]) -> None:
        """One dispatch of an operation of that label, in the open compute pass."""
        if self._pass is None:
            self._pass = self.encoder(label).begin_compute_pass()
        elif self.labels[-1] != label:
            self.labels.append(label)
        if pipeline is not self._pipeline:
            self._pass.set_pipeline(pipeline)
            self._pipeline = pipeline
        self._pass.set_bind_group(0, group)
        self._pass.dispatch_workgroups(*grid)

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
            self._encoder = self._pass = self._pipeline = None
            self.labels = []

    def _end_pass(self) -> None:
        if self._pass is not None:
            ended, self._pass, self._pipeline = self._pass, None, None
            ended.end()
