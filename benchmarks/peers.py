"""Other implementations of the same calls on the same GPU: torch, eager and compiled, and Liger's Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cases import Case

from registry.errors import typed_line

Call = Callable[[], Any]


def torch_call(case: Case) -> Callable[[Mapping[str, Any]], Any]:
    """The call in torch's words, on tensors by role."""
    import torch
    from torch.nn import functional

    shape = (case.hidden,)

    def layer_norm(t: Mapping[str, Any]) -> Any:
        return functional.layer_norm(t["X"], shape, t["Scale"], t["B"], 1e-5)

    def statistics(t: Mapping[str, Any]) -> Any:
        return torch.native_layer_norm(t["X"], shape, t["Scale"], t["B"], 1e-5)

    def skip_sum(t: Mapping[str, Any]) -> Any:
        total = t["input"] + t["skip"] + t["bias"]
        return functional.layer_norm(total, shape, t["gamma"], t["beta"], 1e-12), total

    def skip(t: Mapping[str, Any]) -> Any:
        return functional.layer_norm(t["input"] + t["skip"], shape, t["gamma"], t["beta"], 1e-12)

    def skip_rms(t: Mapping[str, Any]) -> Any:
        total = t["input"] + t["skip"]
        return functional.rms_norm(total, shape, t["gamma"], 1e-12), total

    def rms(t: Mapping[str, Any]) -> Any:
        return functional.rms_norm(t["X"], shape, t["scale"], 1e-5)

    def rms_inverse(t: Mapping[str, Any]) -> Any:
        inverse = torch.rsqrt(t["X"].float().square().mean(-1, keepdim=True) + 1e-5)
        return (t["X"] * inverse).to(t["X"].dtype) * t["scale"], inverse

    def bias_add(t: Mapping[str, Any]) -> Any:
        return t["X"] + t["bias"] + t["skip"]

    calls: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "skip layer norm, sum": skip_sum,
        "skip layer norm": skip,
        "layer norm": layer_norm,
        "layer norm, statistics": statistics,
        "bias add": bias_add,
        "rms norm": rms,
        "simplified layer norm": rms_inverse,
        "skip simplified layer norm, sum": skip_rms,
    }
    return calls[case.name]


def liger_call(case: Case) -> Callable[[Mapping[str, Any]], Any] | None:
    """Liger's kernel for the call, or None when it has none."""
    if case.name == "layer norm":
        from liger_kernel.ops.layer_norm import layer_norm_forward

        return lambda t: layer_norm_forward(t["X"], t["Scale"], t["B"], 1e-5)
    if case.name == "rms norm":
        from liger_kernel.ops.rms_norm import rms_norm_forward

        return lambda t: rms_norm_forward(t["X"], t["scale"], 1e-5, 0.0, "llama", None)
    return None


def peers(
    case: Case, sets: Sequence[Mapping[str, Any]], names: tuple[str, ...]
) -> dict[str, list[Call] | str]:
    """By peer: calls, one for each set of torch tensors, or the reason why there are none."""
    import torch

    found: dict[str, list[Call] | str] = {}

    def offer(name: str, make: Callable[[], Callable[[Mapping[str, Any]], Any] | None]) -> None:
        if name not in names:
            return
        try:
            function = make()
            if function is None:
                found[name] = "has no such call"
                return
            with torch.no_grad():
                function(sets[0])
            found[name] = [partial(function, tensors) for tensors in sets]
        except Exception as error:  # whatever another library raises is its result here
            found[name] = typed_line(error)

    offer("torch eager", lambda: torch_call(case))
    offer("torch.compile", lambda: torch.compile(torch_call(case)))
    offer("liger", lambda: liger_call(case))
    return found
