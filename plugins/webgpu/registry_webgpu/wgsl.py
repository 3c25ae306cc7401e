"""From an evaluated pass to WGSL: declarations, template, headers. No device is needed."""

from __future__ import annotations

import re
import warnings
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from registry.calling.passes import EvaluatedPass, EvaluatedVariant, Uniform, evaluate_variant
from registry.calling.request import Request
from registry.errors import BackendError, RegistryWarning, shorten
from registry.hookspecs import RenderedPass
from registry.language.includes import expand
from registry.language.meter import metered
from registry.language.templates import TemplateError, parse_template
from registry.language.values import EvaluationError
from registry.manifest import Variant
from registry.opinfo import Op

from .implementations import IMPLEMENTATIONS
from .profile import Profile

# Sources may be a stranger's: no pattern looks through the rest of a text more than once.
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_NUMBER = re.compile(r"\b\d[\w.]*")
_SUBGROUP_CALL = re.compile(r"\b(subgroup[A-Z]\w*|quad(Broadcast|Swap[XY]|SwapDiagonal))\s*\(")
_SUBGROUP_VALUE = re.compile(r"\b(subgroup_invocation_id|subgroup_size|subgroup_id|num_subgroups)\b")
_DIRECTIVE = re.compile(r"^[ \t]*(?:enable|requires)\b[^;]{0,256};[ \t]*\n?", re.M)


def render_variant(
    request: Request, variant: Variant, profile: Profile
) -> tuple[EvaluatedVariant, tuple[RenderedPass, ...]]:
    """Evaluates and renders every pass of a variant.

    Raises:
        BackendError: an expression or a template fails; names op, variant and the template's line.
    """
    with metered():
        evaluated = evaluate(request, variant, profile)
        return evaluated, tuple(_render(request.op, variant, item, profile) for item in evaluated.passes)


def evaluate(request: Request, variant: Variant, profile: Profile) -> EvaluatedVariant:
    """Evaluates every pass of a variant, without its templates.

    Raises:
        BackendError: an expression fails; names op and variant.
    """
    try:
        with metered():
            return evaluate_variant(request, variant, profile.namespace())
    except EvaluationError as error:
        raise BackendError(str(error), op=request.op.id, backend="webgpu", variant=variant.id) from error


def declarations(item: EvaluatedPass) -> str:
    """The block of a pass's uniform structs and bindings; a binding's index is its place in the list."""
    structs: dict[str, str] = {}
    lines = []
    for index, binding in enumerate(item.bindings):
        place = f"@group(0) @binding({index})"
        if isinstance(binding, Uniform):
            fields = ", ".join(f"{name}: {kind}" for name, kind, _ in binding.fields)
            structs[binding.struct] = f"struct {binding.struct} {{ {fields} }};"
            lines.append(f"{place} var<uniform> {binding.variable}: {binding.struct};")
            continue
        access = "read_write" if binding.writable else "read"
        length = f", {binding.length}u" if binding.length is not None else ""
        lines.append(f"{place} var<storage, {access}> {binding.variable}: array<{binding.element}{length}>;")
    return "\n".join([*structs.values(), *lines])


def add_headers(source: str, implementation: str) -> str:
    """Puts the directives in front that the source needs and the compiler wants; others are taken out.

    Needs are read off the source: the type ``f16`` (or a literal ending in ``h``), subgroup built-ins, the
    built-in value ``subgroup_id``.
    """
    body = _DIRECTIVE.sub("", source)
    code = _COMMENTS.sub("", body)
    needs = []
    if re.search(r"\bf16\b", code) or any(found[0].endswith("h") for found in _NUMBER.finditer(code)):
        needs.append("f16")
    if _SUBGROUP_CALL.search(code) or _SUBGROUP_VALUE.search(code):
        needs.append("subgroups")
    if re.search(r"\bsubgroup_id\b", code):
        needs.append("subgroup_id")
    headers = IMPLEMENTATIONS[implementation].headers
    return "\n".join([*(headers[need] for need in needs if need in headers), body])


def _render(op: Op, variant: Variant, item: EvaluatedPass, profile: Profile) -> RenderedPass:
    block = declarations(item)
    env = {"device": profile.namespace(), "wgsl": {"resourceDeclarations": block}}
    body = _template_text(op, item.template)
    if item.template.endswith(".jinja"):
        expanded = None
        lost: list[str] | None = None if op.package is None else []  # ours are held to more than the format
        try:
            expanded = expand(item.template, partial(template_text, op))
            body = parse_template(expanded.text).render({**item.scope, "env": env}, lost)
        except TemplateError as error:
            file, line = expanded.place(error.line) if expanded else (item.template, error.line)
            raise BackendError(
                f"{file}:{line}: {error.message}",
                op=op.id,
                backend="webgpu",
                variant=variant.id,
                line=line,
            ) from error
        if lost:
            names = ", ".join(dict.fromkeys(lost))
            text = f"{op.id} {variant.id}: {item.template} prints what is undefined: {shorten(names, 160)}"
            warnings.warn(text, RegistryWarning, stacklevel=2)
    return RenderedPass(
        id=item.id,
        shader=item.template,
        language="wgsl",
        source=add_headers(body, profile.implementation),
        constants=item.constants,
        inputs=item.inputs,
        declarations=block,
        uniforms=item.uniforms,
        dispatch=item.grid,
    )


def has_template(op: Op, name: str) -> bool:
    """Whether there is a template of that name, as `template_text` finds it."""
    if op.package is not None:
        return name in op.package.templates
    return any((folder / name).is_file() for folder in _folders(op))


def template_text(op: Op, name: str) -> str | None:
    """The text of a template: a package's own, one beside the manifest, or one of this backend's."""
    if op.package is not None:
        return op.package.templates.get(name)
    files = (folder / name for folder in _folders(op))
    return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), None)


def _folders(op: Op) -> tuple[Traversable, ...]:
    return (Path(op.file).parent, resources.files(__package__) / "templates")


def _template_text(op: Op, name: str) -> str:
    text = template_text(op, name)
    if text is None:
        text = f"no template {name} beside the manifest, nor among registry_webgpu/templates"
        raise BackendError(text, op=op.id, backend="webgpu")
    return text
