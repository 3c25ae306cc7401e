"""A device as conditions and templates see it, in the spelling of the WebGPU specification."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from registry.calling.scope import FOLD_WIDTH
from registry.errors import ContractError, suggestion
from registry.language.values import Features

from .implementations import DEFAULT, IMPLEMENTATIONS

# The limits every WebGPU device has at least.
# https://www.w3.org/TR/webgpu/#limits
DEFAULT_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "maxTextureDimension1D": 8192,
        "maxTextureDimension2D": 8192,
        "maxTextureDimension3D": 2048,
        "maxTextureArrayLayers": 256,
        "maxBindGroups": 4,
        "maxBindGroupsPlusVertexBuffers": 24,
        "maxBindingsPerBindGroup": 1000,
        "maxDynamicUniformBuffersPerPipelineLayout": 8,
        "maxDynamicStorageBuffersPerPipelineLayout": 4,
        "maxSampledTexturesPerShaderStage": 16,
        "maxSamplersPerShaderStage": 16,
        "maxStorageBuffersPerShaderStage": 10,
        "maxStorageTexturesPerShaderStage": 4,
        "maxUniformBuffersPerShaderStage": 12,
        "maxUniformBufferBindingSize": 65536,
        "maxStorageBufferBindingSize": 134217728,
        "minUniformBufferOffsetAlignment": 256,
        "minStorageBufferOffsetAlignment": 256,
        "maxVertexBuffers": 8,
        "maxBufferSize": 268435456,
        "maxVertexAttributes": 16,
        "maxVertexBufferArrayStride": 2048,
        "maxInterStageShaderVariables": 16,
        "maxColorAttachments": 8,
        "maxColorAttachmentBytesPerSample": 32,
        "maxComputeWorkgroupStorageSize": 16384,
        "maxComputeInvocationsPerWorkgroup": 256,
        "maxComputeWorkgroupSizeX": 256,
        "maxComputeWorkgroupSizeY": 256,
        "maxComputeWorkgroupSizeZ": 64,
        "maxComputeWorkgroupsPerDimension": 65535,
        "maxImmediateSize": 0,
    }
)

# https://www.w3.org/TR/webgpu/#gpufeaturename, and the experimental one that published packages ask for.
FEATURES = frozenset(
    {
        "bgra8unorm-storage",
        "chromium-experimental-subgroup-matrix",
        "clip-distances",
        "core-features-and-limits",
        "depth-clip-control",
        "depth32float-stencil8",
        "dual-source-blending",
        "float32-blendable",
        "float32-filterable",
        "indirect-first-instance",
        "primitive-index",
        "rg11b10ufloat-renderable",
        "shader-f16",
        "subgroup-size-control",
        "subgroups",
        "texture-component-swizzle",
        "texture-compression-astc",
        "texture-compression-astc-sliced-3d",
        "texture-compression-bc",
        "texture-compression-bc-sliced-3d",
        "texture-compression-etc2",
        "texture-formats-tier1",
        "texture-formats-tier2",
        "timestamp-query",
    }
)

_ADAPTER_KEYS = (
    "vendor",
    "architecture",
    "device",
    "description",
    "isFallbackAdapter",
    "subgroupMinSize",
    "subgroupMaxSize",
)
_KEYS = ("features", "limits", "adapterInfo", "wgslLanguageFeatures", "implementation")


@dataclass(frozen=True)
class Profile:
    """What is known of a device: its features, limits and adapter, and which WGSL compiler serves it."""

    features: frozenset[str]
    language_features: frozenset[str]
    limits: Mapping[str, int]
    adapter: Mapping[str, Any]
    implementation: str

    @property
    def software(self) -> bool:
        """Whether the adapter is emulated on the CPU."""
        return bool(self.adapter.get("isFallbackAdapter"))

    def namespace(self) -> Mapping[str, Any]:
        """The ``device`` of expressions and templates."""
        return MappingProxyType(
            {
                "features": Features(self.features),
                "wgslLanguageFeatures": Features(self.language_features),
                "limits": self.limits,
                "adapterInfo": self.adapter,
            }
        )


def binding_limit(limits: Mapping[str, int]) -> int:
    """Bytes of the largest storage binding under these limits."""
    return min(limits["maxStorageBufferBindingSize"], limits["maxBufferSize"])


def make_profile(
    features: Any,
    limits: Mapping[str, Any],
    adapter: Mapping[str, Any],
    language_features: Any,
    implementation: str,
) -> Profile:
    """Fills in what is missing: default limits, adapter names, and the cap on workgroups per dimension."""
    full = {**DEFAULT_LIMITS, **{name: int(value) for name, value in limits.items()}}
    full["maxComputeWorkgroupsPerDimension"] = min(full["maxComputeWorkgroupsPerDimension"], FOLD_WIDTH)
    info: dict[str, Any] = {
        "vendor": str(adapter.get("vendor") or "").lower(),
        "architecture": str(adapter.get("architecture") or "").lower(),
        "isFallbackAdapter": bool(adapter.get("isFallbackAdapter", False)),
    }
    for name in ("subgroupMinSize", "subgroupMaxSize"):
        if isinstance(adapter.get(name), int):  # conditions ask whether the key is there at all
            info[name] = adapter[name]
    return Profile(
        frozenset(features),
        frozenset(language_features),
        MappingProxyType(full),
        MappingProxyType(info),
        implementation,
    )


def parse_profile(data: Mapping[str, Any]) -> Profile:
    """A device described by a caller.

    Raises:
        ContractError: an unknown key or a value of the wrong kind.
    """
    if not isinstance(data, Mapping):
        raise ContractError(f"profile['webgpu'] is {data!r}; needed: a mapping with {', '.join(_KEYS)}")
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        raise ContractError(
            f"profile['webgpu']: unknown key {unknown[0]!r}{suggestion(unknown[0], _KEYS)}; "
            f"keys: {', '.join(_KEYS)}"
        )
    limits, adapter = ({} if data.get(key) is None else data[key] for key in ("limits", "adapterInfo"))
    for key, known in (("limits", DEFAULT_LIMITS), ("adapterInfo", _ADAPTER_KEYS)):
        for name in data[key] if isinstance(data.get(key), Mapping) else ():
            if name not in known:
                hint = suggestion(str(name), list(known))
                raise ContractError(f"profile['webgpu'][{key!r}]: unknown name {name!r}{hint}")
    implementation = data.get("implementation") or DEFAULT
    if not isinstance(limits, Mapping) or not all(
        isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in limits.values()
    ):
        raise ContractError("profile['webgpu']['limits']: needed: names of limits to integers")
    if not isinstance(adapter, Mapping):
        raise ContractError("profile['webgpu']['adapterInfo']: needed: a mapping")
    if implementation not in IMPLEMENTATIONS:
        raise ContractError(
            f"profile['webgpu']['implementation'] is {implementation!r}; needed: one of "
            + ", ".join(IMPLEMENTATIONS)
        )
    names = {}
    for key in ("features", "wgslLanguageFeatures"):
        value = () if data.get(key) is None else data[key]
        named = isinstance(value, Collection) and not isinstance(value, str)
        if not named or not all(isinstance(name, str) for name in value):
            raise ContractError(f"profile['webgpu'][{key!r}]: needed: a list of names")
        unknown = [name for name in value if key == "features" and name not in FEATURES]
        if unknown:
            hint = suggestion(unknown[0], sorted(FEATURES))
            raise ContractError(f"profile['webgpu']['features']: unknown feature {unknown[0]!r}{hint}")
        names[key] = value
    return make_profile(names["features"], limits, adapter, names["wgslLanguageFeatures"], implementation)
