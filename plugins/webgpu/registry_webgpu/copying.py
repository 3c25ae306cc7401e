"""A copy on the device, whose speed the speed of kernels is measured by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from registry.calling.passes import fold

from .device import Device
from .groups import Shape
from .recorder import Recorder

GROUP_BYTES = 256 * 4 * 16

SHADER = """
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let first = (group.x + group.y * groups.x) * 1024u + lane;
    for (var k = 0u; k < 4u; k++) {
        let at = first + k * 256u;
        if (at < arrayLength(&source)) { target_[at] = source[at]; }
    }
}
"""


def copier(device: Device, nbytes: int) -> Callable[[], None]:
    """What records a copy that reads and writes so many bytes together, rounded up to 32.

    Raises:
        BackendError: half of that is over the device's limit, or out of memory.
    """
    size = -(-nbytes // 32) * 16
    pipeline, layout = device.pipeline(SHADER, ("read-only-storage", "storage"), "copy")
    shape = Shape(layout, (size, size))
    buffers = [device.buffer(size) for _ in range(2)]
    numbers = np.random.default_rng(0).standard_normal(2**20, np.float32)  # memory is quicker with zeros
    device.upload(buffers[0], np.resize(numbers, size // 4))
    grid = fold(-(-size // GROUP_BYTES), even=True)

    def work(recorder: Recorder) -> None:
        group = device.bind_group(shape, buffers)
        recorder.dispatch("copy", pipeline, group, grid)

    return partial(device.record, "copy", work)
