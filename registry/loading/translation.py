"""From dialect 2.1 to the records everything else works on, and back from their paths to those written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from ..dtypes import DTYPES, STORAGE
from ..errors import suggestion
from ..manifest import (
    Arg,
    Binding,
    BufferType,
    Loop,
    Manifest,
    Pass,
    Port,
    Scratch,
    StructType,
    Variant,
)
from .basics import IDENTIFIER
from .dialect_2_1 import NewBinding, NewManifest, NewPass, NewPort, NewVariant
from .documents import refuse, step
from .requirements import requirements
from .variants import MAX_NESTING


@dataclass(frozen=True)
class Translation:
    """A manifest, and where its parts are written: prefixes of paths by what they stand for."""

    manifest: Manifest
    places: Mapping[str, str]


def translate(source: NewManifest) -> Translation:
    """The manifest that a document of dialect 2.1 describes.

    Raises:
        ManifestError: it contradicts itself in words that only this dialect has, or needs what this library
            does not do: tensors that are read and written at once, int64 stored as 32 bits, packed uint8.
    """
    return _Translator(source).translate()


@dataclass
class _Translator:
    source: NewManifest
    places: dict[str, str] = field(default_factory=dict)

    def translate(self) -> Translation:
        source = self.source
        for name in sorted(source.inputs.keys() & source.outputs.keys()):
            needed = "another name than any input's; one tensor in place is not supported"
            refuse(f"the name {name!r}", needed, step("$.outputs", name))
        roles = self._roles()
        inputs = self._ports("inputs", source.inputs, roles)
        outputs = self._ports("outputs", source.outputs, roles)
        args = {
            name: Arg("tensor", semantic=roles[name], required=not port.optional)
            for name, port in self._tensors.items()
        }
        for name, arg in source.args.items():
            if name in args:
                refuse(f"a scalar named {name!r}", "a name that is no tensor's", step("$.args", name))
            args[name] = arg.as_arg()
        handles = {
            name: self._binding(binding, name, {}, step("$.bindings", name))
            for name, binding in source.bindings.items()
        }
        self._check_superseded()
        attributes = source.attributes
        manifest = Manifest(
            name=source.name,
            inputs=inputs,
            outputs=outputs,
            args=args,
            variants=[self._variant(at, variant, handles) for at, variant in enumerate(source.variants)],
            domain=source.domain,
            since_version=source.since_version,
            description=source.description,
            attributes={n: a.default for n, a in attributes.items() if a.default is not UNSET},
            attribute_descriptions={n: a.description for n, a in attributes.items() if a.description},
            attribute_names=[n for n, a in attributes.items() if a.default is UNSET],
            attribute_constraints=source.attribute_constraints,
            type_constraints=source.type_constraints,
            tunables={name: tunable.default for name, tunable in source.tunables.items()},
            tunable_descriptions={n: t.description for n, t in source.tunables.items() if t.description},
            derive=source.derive,
        )
        return Translation(manifest, self.places)

    # Ports

    @property
    def _tensors(self) -> dict[str, NewPort]:
        return {**self.source.inputs, **self.source.outputs}

    def _roles(self) -> dict[str, str]:
        """The name each port goes by: that of the standard, where it is a name and nobody else's."""
        ports = self._tensors
        wanted = [port.onnx for port in ports.values()]
        return {
            name: port.onnx
            if port.onnx
            and IDENTIFIER.fullmatch(port.onnx)
            and wanted.count(port.onnx) == 1
            and port.onnx not in (ports.keys() | self.source.args.keys()) - {name}
            else name
            for name, port in ports.items()
        }

    def _ports(self, side: str, ports: Mapping[str, NewPort], roles: Mapping[str, str]) -> list[Port]:
        made = []
        for index, (name, port) in enumerate(ports.items()):
            path = step(f"$.{side}", name)
            self.places |= {f"$.{side}[{index}]": path, f"$.{side}[{index}].role": path}
            self.places[step("$.args", name)] = path
            if not IDENTIFIER.fullmatch(name):
                refuse(f"the name {name!r}", "letters, digits and _, no digit first", path)
            if port.onnx == "":
                refuse("an empty text", "a name, or leave the key out", f"{path}.onnx")
            self._check_storage(port, side, path)
            made.append(Port(roles[name], port.dtype, port.rank, port.optional, port.shape, port.description))
        return made

    def _logical(self, port: NewPort) -> list[str]:
        """What dtypes a port may have."""
        if port.dtype is None:
            return []
        return self.source.type_constraints.get(port.dtype, [port.dtype])

    def _check_storage(self, port: NewPort, side: str, path: str) -> None:
        logical = self._logical(port)
        if port.layout is not None:
            if side == "outputs" or logical != ["uint8"]:
                refuse(f"layout {port.layout!r}", "on an input of uint8 and nothing else", f"{path}.layout")
            refuse("a packed layout", "one element in 32 bits; packed ones are not supported", path)
        if port.storage is None or logical == [port.storage]:
            if port.narrowing is not None:
                needed = "narrowing only where int64 is stored as int32 or uint32"
                refuse(f"narrowing {port.narrowing!r}", needed, f"{path}.narrowing")
            return
        if logical != ["int64"] or port.storage not in ("int32", "uint32"):
            needed = f"the port's one dtype ({', '.join(logical) or 'none'}), or int32 or uint32 for int64"
            refuse(f"storage {port.storage!r}", needed, f"{path}.storage")
        refuse("int64 stored as 32 bits", "int64; what narrows is not supported", f"{path}.storage")

    # Bindings

    def _binding(
        self, source: NewBinding, handle: str | None, scratch: Mapping[str, Scratch], path: str
    ) -> Binding:
        name = source.name or handle or source.arg or source.scratch
        if name is None:
            refuse("a binding without a name", "name, arg or scratch", path)
        tensors = self._tensors
        buffer = scratch.get(source.scratch or name)
        port_name = next((n for n in (source.arg, name) if n in tensors), None) if buffer is None else None
        kind = source.buffer
        if kind is None and source.struct is not None:
            kind = "uniform"
        elif kind is None and buffer is not None:
            kind = "storage"
        elif kind is None and port_name is not None:
            kind = "read-only-storage" if port_name in self.source.inputs else "storage"
        if kind is None:
            refuse(f"{name!r}, which is no tensor and has no struct", "buffer", path)
        self.places |= {
            f"{path}.struct.fields": f"{path}.struct",
            f"{path}.struct.name": f"{path}.structName",
        }
        if kind == "uniform":
            if source.element_type is not None or source.length is not None:
                refuse("a uniform with elementType or length", "struct alone", path)
            struct = StructType(source.struct_name or "Params", source.struct) if source.struct else None
            return Binding(BufferType(kind), name, arg=source.arg, struct=struct)
        if source.struct is not None or source.struct_name is not None:
            refuse(f"a {kind} buffer with a struct", "elementType", path)
        dtype = buffer.dtype if buffer is not None else port_name and tensors[port_name].dtype
        element = source.element_type
        if element is None and dtype is not None:
            element = STORAGE[dtype][1] if dtype in DTYPES else f"${dtype}"
        if element is None:
            refuse(f"{name!r} without elementType, and no dtype to tell it", "elementType", path)
        if dtype == "int64" and "".join(element.split()) != "vec2<u32>":
            refuse(f"{element!r} for int64", "vec2<u32>", f"{path}.elementType")
        return Binding(
            BufferType(kind),
            name,
            arg=source.arg,
            scratch=source.scratch,
            element_type=element,
            length=source.length,
        )

    def _bindings(
        self, item: NewPass, scratch: Mapping[str, Scratch], handles: Mapping[str, Binding], path: str
    ) -> Iterator[tuple[str, Binding]]:
        """The bindings of a pass, each with the path where it is written."""
        for index, entry in enumerate(item.bindings):
            where = f"{path}.bindings[{index}]"
            if isinstance(entry, NewBinding):
                yield where, self._binding(entry, None, scratch, where)
            elif entry in handles:
                yield step("$.bindings", entry), handles[entry]
            elif entry in self._tensors or entry in scratch:
                yield where, self._binding(NewBinding(name=entry), None, scratch, where)
            else:
                known = [*handles, *self._tensors, *scratch]
                found = f"unknown binding {entry!r}{suggestion(entry, known)}"
                refuse(found, f"one of {', '.join(known)}", where)

    # Variants

    def _variant(self, index: int, source: NewVariant, handles: Mapping[str, Binding]) -> Variant:
        path = f"$.variants[{index}]"
        scratch = {buffer.id: buffer for buffer in source.intermediates}
        for buffer in source.intermediates:
            if buffer.id in self._tensors:
                refuse(f"the id {buffer.id!r}", "a name that is no tensor's", f"{path}.intermediates")
        passes: list[Pass] = []
        for where, item, loops in _flat(source.passes, f"{path}.passes", ()):
            bindings = list(self._bindings(item, scratch, handles, where))
            own = f"{path}.passes[{len(passes)}]"
            self.places[own] = where
            self.places |= {f"{own}.bindings[{at}]": place for at, (place, _) in enumerate(bindings)}
            self.places |= {
                f"{own}.bindings[{at}].struct.fields": f"{place}.struct"
                for at, (place, _) in enumerate(bindings)
            }
            if item.shader is None:
                refuse("a pass without shader", "the file of its template", where)
            if item.dispatch is None:
                refuse("a pass without dispatch", "dispatch", where)
            passes.append(
                Pass(
                    dispatch=item.dispatch,
                    bindings=[binding for _, binding in bindings],
                    id=item.id or "",
                    name=item.name,
                    shader=item.shader,
                    derive=item.derive,
                    loops=list(loops),
                    subgroup_collectives_width=item.subgroup_collectives_width,
                    profile=item.profile,
                    view_alias=item.view_alias,
                    description=item.description,
                )
            )
        return Variant(
            passes=passes,
            id=source.id,
            priority=source.priority,
            when=self._when(path, source),
            demote_when=source.demote_when,
            tunables=source.tunables,
            derive=source.derive,
            intermediates=source.intermediates,
            description=source.description,
        )

    def _when(self, path: str, source: NewVariant) -> list[str] | None:
        clauses: list[str] = []
        for where, texts in (
            ("$.requires", requirements(self.source.requires, "$.requires")),
            (f"{path}.requires", requirements(source.requires, f"{path}.requires")),
            ("$.when", self.source.when),
            (f"{path}.when", source.when),
        ):
            if texts == [] and where.endswith("when"):
                refuse("no clause", "at least one, or leave the key out", where)
            for index, text in enumerate(texts or ()):
                at = f"{where}[{index}]" if where.endswith("when") else where
                self.places[f"{path}.when[{len(clauses)}]"] = at
                clauses.append(text)
        return clauses or None

    def _check_superseded(self) -> None:
        """A variant may only step back for one that is tried before it: the order of choice says it all."""
        variants = self.source.variants
        ranks = {v.id: (-v.priority, index) for index, v in enumerate(variants)}
        for index, variant in enumerate(variants):
            path = f"$.variants[{index}].supersededBy"
            if variant.superseded_by == []:
                refuse("no variant", "at least one, or leave the key out", path)
            for name in variant.superseded_by or ():
                if name not in ranks or name == variant.id:
                    refuse(f"{name!r}{suggestion(name, [*ranks])}", "another variant's id", path)
                if ranks[name] > ranks[variant.id]:
                    refuse(f"{name!r}, which is tried later", "a variant of higher priority", path)


def _flat(
    passes: Sequence[NewPass], path: str, loops: tuple[Loop, ...]
) -> Iterator[tuple[str, NewPass, tuple[Loop, ...]]]:
    """Every pass with its path and the loops around it."""
    if not passes:
        refuse("no pass", "at least one", path)
    names = [item.id for item in passes if item.id is not None]
    for index, item in enumerate(passes):
        where = f"{path}[{index}]"
        if item.id == "" or (item.id is not None and names.count(item.id) > 1):
            refuse(f"the id {item.id!r}", "an id of its own", f"{where}.id")
        if item.repeat is None:
            if item.passes:
                refuse("passes without repeat", "repeat: {index, count}", where)
            yield where, item, loops
            continue
        given = NewPass(id=item.id, repeat=item.repeat, passes=item.passes)
        if item != given:
            refuse("a group with keys of a pass", "id, repeat and passes", where)
        if len(loops) == MAX_NESTING:
            refuse("groups nested deeper", f"at most {MAX_NESTING} levels", where)
        loop = Loop(item.id or f"repeat_{index}", item.repeat.index, item.repeat.count)
        yield from _flat(item.passes, f"{where}.passes", (*loops, loop))
