"""Bundles: a comparison that is saved runs again with the same bits, and a hostile file does no harm."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_comparison import LN, N4, X, answer_with, with_stranger
from test_package import write

import registry
import registry_manifests
import registry_numpy
from registry import Claim, ContractError, PackageError, Registry, RegistryError
from registry.cli import main
from registry.comparing import running
from registry.comparing.reading import read_bundle
from registry.conformance import Case, Tensor
from registry.dtypes import numpy_dtype

NUMPY = Registry([registry_manifests, registry_numpy], entry_points=False)
Index = dict[str, Any]


def skip_tensors(dtype: str) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    shapes = {"input": (2, 3, 8), "skip": (2, 3, 8), "gamma": (8,), "beta": (8,)}
    return {name: draw.standard_normal(shape).astype(numpy_dtype(dtype)) for name, shape in shapes.items()}


def changed(path: Path, change: Callable[[Index, dict[str, bytes]], Any], **written: Any) -> Path:
    """The bundle with its index and members changed, otherwise well formed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    index = json.loads(members.pop("bundle.json"))
    change(index, members)
    with zipfile.ZipFile(path, "w", written.get("method", zipfile.ZIP_STORED)) as archive:
        archive.writestr("bundle.json", json.dumps(index))
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    report = NUMPY.compare("LayerNormalization", **LN, outputs=("Y", "Mean"), axis=-1)
    return report.save(tmp_path / "b.zip")


# What it keeps


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_bundle_gives_the_same_bits(dtype: str, tmp_path: Path) -> None:
    tensors = skip_tensors(dtype)
    bits = tensors["input"].view(f"u{tensors['input'].itemsize}")
    bits[0, 0, :2] = np.iinfo(bits.dtype).max, 1  # a NaN with all bits set, the smallest subnormal
    tensors["skip"] = np.asfortranarray(tensors["skip"])
    report = NUMPY.compare("SkipLayerNormalization", **tensors, outputs=("output", "input_skip_bias_sum"))
    path = report.save(tmp_path / "deep" / "b.zip")
    kept = read_bundle(path)
    for role, stored in kept.index.inputs.items():
        array = kept.array(stored)
        assert array.dtype == tensors[role].dtype and not array.flags.writeable
        assert array.tobytes() == tensors[role].tobytes()
    replay = NUMPY.replay(path)
    assert replay.ok == report.ok and replay.same and not replay.differences and not replay.missing
    assert [(row.there, row.bits, row.different) for row in replay.rows] == [("ok", "the same", 0)] * 4
    json.dumps(replay.as_dict(), allow_nan=False)


def test_a_big_endian_array_is_kept_by_its_value(tmp_path: Path) -> None:
    swapped = {name: value.astype(">f4") for name, value in LN.items()}
    path = NUMPY.compare("LayerNormalization", **swapped).save(tmp_path / "b.zip")
    opened = read_bundle(path)
    np.testing.assert_array_equal(opened.array(opened.index.inputs["X"]), X)
    assert NUMPY.replay(path).same


def test_a_bundle_says_all_that_is_needed(webgpu: Registry, tmp_path: Path) -> None:
    report = webgpu.compare("LayerNormalization", **LN, epsilon=0.5, backend=("webgpu", "numpy"))
    opened = read_bundle(report.save(tmp_path / "b.zip"))
    index = opened.index
    assert index.attrs["epsilon"] == 0.5 and index.outputs == ["Y"]
    assert {"date", "machine", "versions", "devices"} <= index.system.keys()
    assert {"adapter", "name"} <= index.system["devices"]["webgpu"].keys()
    assert [decision["backend"] for decision in index.decisions] == ["webgpu", "numpy"]
    ran = list(dict.fromkeys(row.candidate for row in report.rows))
    assert [(each.backend, each.variant) for each in index.candidates] == ran
    rendered = webgpu.render("LayerNormalization", **LN, epsilon=0.5, backend="webgpu", variant=ran[0][1])
    sources = [opened.members[item.file].decode() for item in index.candidates[0].passes]
    assert sources == [item.source for item in rendered]
    replay = webgpu.replay(tmp_path / "b.zip", backend="webgpu", variant=ran[0][1])
    assert replay.ok and replay.same and [row.comparison.variant for row in replay.rows] == [ran[0][1]]
    assert not replay.missing, "what was not asked for is not missed"
    placed = webgpu.compare("LayerNormalization", **LN, device="webgpu:0", variant=ran[0][1])
    assert read_bundle(placed.save(tmp_path / "b.zip")).index.device == "webgpu:0"


def test_what_was_wrong_there_may_be_right_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = N4.copy()
    wrong[1, 2] += 0.25
    report = with_stranger(answer_with(wrong)).compare("LayerNormalization", **LN)
    path = report.save(tmp_path / "b.zip")
    replay = NUMPY.replay(path)
    assert replay.ok and replay.missing == (("stranger", "only", "the backend is not available"),)
    choosy = with_stranger(answer_with(N4))
    claims = [Claim("only", when=("ranks.x == 7",))]
    monkeypatch.setattr(choosy.catalog.backend("stranger"), "claims", lambda op: claims)
    assert choosy.replay(path).missing == (("stranger", "only", "ranks.x: 2"),)
    elsewhere = NUMPY.compare("LayerNormalization", **LN).save(tmp_path / "numpy.zip")
    nothing = choosy.replay(elsewhere, backend="stranger")
    assert not nothing.rows and nothing.missing == (("stranger", "only", "ranks.x: 2"),)
    replay = with_stranger(answer_with(wrong)).replay(path, backend="stranger")
    (row,) = replay.rows
    assert not replay.ok and replay.same and row.there == "FAILS"
    assert "times the tolerance" in str(replay) and "[1, 2]" in str(replay)
    right = np.asarray(NUMPY.run("LayerNormalization", **LN))
    replay = with_stranger(answer_with(right)).replay(path, backend=["stranger"])
    (row,) = replay.rows
    assert replay.ok and not replay.same and row.there == "FAILS"
    assert row.different == np.count_nonzero(right != wrong) and f"other in {row.different} of 12" in str(
        replay
    )


def test_expected_values_are_the_bundle_s(bundle: Path) -> None:
    """Not computed here: without a reference here nothing changes, and one that was wrong there shows."""
    reg = Registry([registry_manifests, registry_numpy], entry_points=False)
    reg.catalog.plugins.references.clear()
    assert reg.replay(bundle).ok

    def double(index: Index, members: dict[str, bytes]) -> None:
        name = index["expected"]["Y"]["value"]["file"]
        members[name] = (np.frombuffer(members[name]) * 2).tobytes()
        index["files"][name] = hashlib.sha256(members[name]).hexdigest()

    assert not NUMPY.replay(changed(bundle, double)).ok


def test_without_a_reference_the_first_result_is_expected(tmp_path: Path) -> None:
    reg = with_stranger(answer_with(N4))
    reg.catalog.plugins.references.clear()
    path = reg.compare("LayerNormalization", **LN).save(tmp_path / "b.zip")
    replay = NUMPY.replay(path, backend="numpy", variant="blocked")
    assert replay.ok and replay.report.against == "the bundle's first result"
    assert not with_stranger(answer_with(0)).replay(path, backend="stranger").ok


def test_what_failed_to_run_is_kept_as_such(tmp_path: Path) -> None:
    def burn(inputs: Any, outputs: Any) -> None:
        raise RuntimeError("the driver gave up")

    path = with_stranger(burn).compare("LayerNormalization", **LN).save(tmp_path / "b.zip")
    assert [f.error for f in read_bundle(path).index.found][-1].endswith("the driver gave up")
    (row,) = with_stranger(answer_with(N4)).replay(path, backend="stranger").rows
    assert row.comparison.ok and (row.there, row.same) == ("failed", None)


def test_differences_of_the_environment_are_told(bundle: Path) -> None:
    def elsewhere(index: Index, members: dict[str, bytes]) -> None:
        index["system"]["python"] = "3.99"
        index["system"]["devices"]["webgpu"] = {"name": "Some GPU", "driver": "1.2"}
        index["manifest"] = "0" * 64

    replay = NUMPY.replay(changed(bundle, elsewhere))
    told = {what: (there, here) for what, there, here in replay.differences}
    assert told["python"][0] == "3.99" and told["devices webgpu driver"] == ("1.2", "none")
    assert told["manifest"][0] == "0" * 12 and "date" not in told
    assert replay.ok and replay.same and "3.99" in str(replay)


def test_what_a_bundle_says_cannot_steer_a_terminal(bundle: Path) -> None:
    def escape(index: Index, members: dict[str, bytes]) -> None:
        index["system"].update({"date": "\x1b[2J", "\x1b[3J": "\r\n\x1b[1m" + "x" * 9999})
        index["found"][0].update(backend="\x1b[0m", variant="a\nb" * 999)
        index["against"] = "\x07"
        index["manifest"] = "\x1b" * 64

    text = str(NUMPY.replay(changed(bundle, escape)))
    assert text.replace("\n", "").isprintable() and len(text) < 5000 and "?[3J" in text


def test_a_changed_source_is_told(webgpu: Registry, tmp_path: Path) -> None:
    path = webgpu.compare("LayerNormalization", **LN, variant="last_axis").save(tmp_path / "b.zip")

    def other(index: Index, members: dict[str, bytes]) -> None:
        (name,) = (name for name in members if name.startswith("sources/"))
        members[name] += b"// changed"
        index["files"][name] = hashlib.sha256(members[name]).hexdigest()

    replay = webgpu.replay(changed(path, other), variant="last_axis")
    assert [what for what, _, _ in replay.differences] == ["source of webgpu last_axis"]


def test_drawn_cases_stay_fair(tmp_path: Path) -> None:
    """What nobody promises there is not asked for here either."""
    case = Case({"X": Tensor((4, 8), special="nan"), "Scale": Tensor((8,))}, ("Y",), seed=1)
    backend_wrong_at_nan = with_stranger(lambda inputs, outputs: None)
    backend = backend_wrong_at_nan.catalog.backend("stranger")

    def answer(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        rows = NUMPY.run("LayerNormalization", X=inputs["X"], Scale=inputs["Scale"])
        outputs["Y"][...] = np.where(np.isnan(rows), 0, rows)

    backend.answer = answer  # type: ignore[attr-defined]
    backend.extremes_promised = False
    report = backend_wrong_at_nan.compare("LayerNormalization", cases=[case])
    assert report.ok, report
    replay = backend_wrong_at_nan.replay(report.save(tmp_path / "b.zip"))
    assert replay.ok and replay.same
    backend.extremes_promised = True
    assert not backend_wrong_at_nan.compare("LayerNormalization", cases=[case]).ok


def test_a_package_is_given_or_loaded(webgpu: Registry, fresh: Registry, tmp_path: Path) -> None:
    handle = webgpu.load(write(tmp_path / "package"))
    path = handle.compare(X, times=2).save(tmp_path / "b.zip")
    assert webgpu.replay(path).same, "the package is loaded"
    with pytest.raises(ContractError, match=r"of a package, .*pass it as op="):
        fresh.replay(path)
    assert fresh.replay(path, op=fresh.load(tmp_path / "package").op).same
    with pytest.raises(ContractError, match=r"is of test\.example::Scale; op= is com\.microsoft::BiasAdd"):
        fresh.replay(path, op="BiasAdd")


def test_outputs_beyond_the_room_are_kept_by_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_KEPT_BYTES", X.nbytes)
    wrong = with_stranger(answer_with(7))
    path = wrong.compare("LayerNormalization", **LN).save(tmp_path / "b.zip")
    found = read_bundle(path).index.found
    assert [each.array is not None for each in found] == [True, False, True], "what is wrong has more room"
    assert NUMPY.replay(path).same
    assert [row.bits for row in wrong.replay(path).rows] == ["the same"] * 3


def test_of_many_cases_those_that_fail_are_kept(tmp_path: Path) -> None:
    def answer(inputs: Any, outputs: Any) -> None:
        outputs["Y"][...] = NUMPY.run("LayerNormalization", **inputs) + (inputs["X"].shape[0] == 3)

    calls = [{"X": X[:2]}, {"X": X[:1]}, {"X": X}]
    report = with_stranger(answer).compare("LayerNormalization", Scale=LN["Scale"], cases=calls)
    assert [bool(case.failures) for case in report.cases] == [False, False, True]
    assert read_bundle(report.save(tmp_path / "b.zip")).index.inputs["X"].shape == (3, 4)
    assert read_bundle(report.save(tmp_path / "b.zip", case=0)).index.inputs["X"].shape == (2, 4)
    with pytest.raises(ContractError, match="case 1 has no data here; kept: 0, 2"):
        report.save(tmp_path / "b.zip", case=1)
    (path,) = report.save_failures(tmp_path / "kept")
    assert report.save_failures(tmp_path / "kept") == [path], "one failure, one name"
    with pytest.raises(ContractError, match="cannot be written"):
        report.save(path / "below a file")


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Path, default: None
) -> None:
    from registry_numpy import backend

    call = ["compare", "BiasAdd", "X=1x3x8", "bias=8", "skip=1x3x8", "--backend", "numpy"]
    kept = str(tmp_path / "kept.zip")
    with pytest.MonkeyPatch.context() as patch:
        original = backend._Blocked.__call__

        def wrong(self: Any, inputs: Any, outputs: Any) -> None:
            original(self, inputs, outputs)
            outputs["Y"][0, 0, 0] += 1

        patch.setattr(backend._Blocked, "__call__", wrong)
        done = CliRunner().invoke(main, [*call, "--save", kept])
        assert done.exit_code == 1 and f"registry replay {kept}" in done.stdout
        assert "--save FILE keeps it" in CliRunner().invoke(main, call).stdout
        patch.setenv("REGISTRY_BUNDLES", str(tmp_path / "folder"))
        registry.refresh()  # as in another process
        CliRunner().invoke(main, call)
        assert len(list((tmp_path / "folder").iterdir())) == 1
        assert CliRunner().invoke(main, ["replay", kept, "--backend", "numpy"]).exit_code == 1
    registry.refresh()
    done = CliRunner().invoke(main, ["replay", kept, "--backend", "numpy", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["ok"] and not found["same"]
    assert [(row["there"], row["different"]) for row in found["rows"]] == [("FAILS", 1), ("ok", 0)]
    text = CliRunner().invoke(main, ["replay", kept, "--backend", "numpy"]).stdout
    assert "other in 1 of 24" in text and "the same" in text
    done = CliRunner().invoke(main, ["replay", kept, "--variant", "blockd"])
    assert done.exit_code == 2 and "did you mean" in done.stderr


# What it refuses


def refused(path: Path, words: str = ".") -> None:
    with pytest.raises(PackageError, match=words) as caught:
        NUMPY.replay(path)
    text = str(caught.value)
    assert str(path) in text and len(text) < 700 and text.isprintable()


def test_a_bundle_that_is_cut_or_bent_is_refused(bundle: Path) -> None:
    whole = bundle.read_bytes()
    draw = random.Random(1)
    for length in [0, 1, 21, 22, 100, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(20))]:
        bundle.write_bytes(whole[:length])
        refused(bundle)
    for _ in range(60):
        bent = bytearray(whole)
        place = draw.randrange(len(bent))
        bent[place] ^= 1 << draw.randrange(8)
        bundle.write_bytes(bent)
        with suppress(RegistryError):
            assert NUMPY.replay(bundle).same  # a bit that means nothing, such as a date


def rename(old: str, new: str) -> Callable[[Index, dict[str, bytes]], None]:
    def change(index: Index, members: dict[str, bytes]) -> None:
        members[new] = members.pop(old)
        index["files"][new] = index["files"].pop(old)

    return change


def put(*steps: Any, value: Any) -> Callable[[Index, dict[str, bytes]], None]:
    def change(index: Index, members: dict[str, bytes]) -> None:
        target: Any = index
        for step in steps[:-1]:
            target = target[step]
        target[steps[-1]] = value

    return change


def replaced(data: bytes) -> Callable[[Index, dict[str, bytes]], None]:
    """The first input's bytes, with the right digest."""

    def change(index: Index, members: dict[str, bytes]) -> None:
        members["inputs/0"] = data
        index["files"]["inputs/0"] = hashlib.sha256(data).hexdigest()

    return change


def pickled() -> bytes:
    """An .npy file whose elements are pickled objects: reading it as such would run what it says."""
    stream = io.BytesIO()
    np.save(stream, np.array([print], dtype=object), allow_pickle=True)
    return stream.getvalue()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "a path that climbs": (rename("inputs/0", "../../inputs/0"), r"a file called '../../inputs/0'"),
    "an absolute path": (rename("inputs/0", "/etc/passwd"), "a file called '/etc/passwd'"),
    "a pickle": (replaced(pickled()), "bytes for float32"),
    "elements of another number": (replaced(bytes(44)), "44 bytes for float32"),
    "other bytes": (lambda i, m: m.update({"inputs/0": bytes(48)}), "inputs/0 with sha256"),
    "a file too many": (lambda i, m: m.update({"inputs/9": b""}), "other files than its index has: inputs/9"),
    "a file too few": (lambda i, m: m.pop("inputs/0"), "other files than its index has: inputs/0"),
    "a name that a terminal obeys": (put("files", "\x1b]0;x\x07", value=""), r"has: \?\]0;x\?"),
    "another format": (put("format", value="zip"), "needed: 'kernel-registry bundle', version 1"),
    "another version": (put("version", value=2), "version 2"),
    "an unknown key": (put("more", value=1), "unknown field `more`"),
    "a list for an index": (put("inputs", value=[1]), r"\$.inputs"),
    "a huge shape": (put("inputs", "X", "shape", value=[10**12, 10**12]), "48 bytes for float32"),
    "an empty shape that overflows": (put("inputs", "X", "shape", value=[2**63, 2**63, 0]), "48 bytes"),
    "many dimensions": (put("inputs", "X", "shape", value=[1] * 100), "length <= 32"),
    "a negative dimension": (put("inputs", "X", "shape", value=[-3, -4]), ">= 0"),
    "a dtype of objects": (put("inputs", "X", "dtype", value="object"), "dtype 'object'"),
    "a member that is not there": (put("inputs", "X", "file", value="inputs/7"), "'inputs/7', which is not"),
    "expected values of another dtype": (
        put("expected", "Y", "value", value={"shape": [3, 4], "dtype": "float32", "file": "inputs/0"}),
        "of another form",
    ),
    "expected values of another shape": (
        lambda i, m: i["expected"].update(Y=i["expected"]["Mean"]),
        r"expected value of shape \[3, 1\] for Y",
    ),
    "a result of another digest": (put("found", 0, "digest", value="0" * 64), "not that of its digest"),
    "a deep index": (put("system", value={"a": nested(200)}), "more than 32 levels"),
    "a scalar that is an option": (put("args", value={"out": 1}), "no scalar argument 'out'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused(bundle: Path, name: str) -> None:
    change, words = HOSTILE[name]
    refused(changed(bundle, change), words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("op", value="Nothing"), "no op 'Nothing'"),
        (put("attrs", value={"axes": 1}), "did you mean 'axis'"),
        (put("attrs", value={"axis": {"a": []}}), "axis"),
        (put("tunables", value={"X": 1}), "no tunable 'X'"),
        (put("outputs", value=["Z"]), "no output 'Z'"),
        (put("inputs", value={}), "required input X is missing"),
    ],
)
def test_a_call_that_the_op_does_not_take(bundle: Path, change: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        NUMPY.replay(changed(bundle, change))


def test_bombs_are_refused_before_they_are_unpacked(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    zeros = lambda index, members: members.update({"inputs/0": bytes(2**26)})  # noqa: E731
    compressed = changed(bundle, zeros, method=zipfile.ZIP_DEFLATED)
    overlapping = tmp_path / "overlap.zip"
    with zipfile.ZipFile(overlapping, "w") as archive:
        archive.writestr("inputs/0", bytes(2**20))
        for number in range(1, 2000):
            other = zipfile.ZipInfo(f"inputs/{number}")
            first = archive.infolist()[0]
            for name in ("file_size", "compress_size", "CRC", "header_offset"):
                setattr(other, name, getattr(first, name))
            archive.filelist.append(other)
        archive._didModify = True  # type: ignore[attr-defined]
    count = tmp_path / "count.zip"
    count.write_bytes(whole[:-14] + struct.pack("<2H2LH", 65535, 65535, 2**31, 0, 0))
    large = tmp_path / "large.zip"
    large.write_bytes(whole[:-22] + b"PK\x06\x07" + bytes(16) + whole[-22:])
    encrypted = tmp_path / "encrypted.zip"
    encrypted.write_bytes(re.sub(rb"(?<=PK\x01\x02.{4})\x00", b"\x01", whole, flags=re.S))
    cases = {
        compressed: "which is compressed",
        overlapping: "in an archive of",
        count: "a list of 65535 files",
        large: "a list of",
        encrypted: "which is encrypted",
    }
    for path, words in cases.items():
        tracemalloc.start()
        refused(path, words)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**25, f"{path} took {peak} bytes"


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.zip", Path("/dev/zero")):
        with pytest.raises(ContractError, match="no such file"):
            NUMPY.replay(path)
    text = tmp_path / "text.zip"
    text.write_text("PK" * 100)
    refused(text, "no end of a zip archive")
