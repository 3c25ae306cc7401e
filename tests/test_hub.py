"""Packages by name, from a hub that is a server of this test: fetched, cached, locked, refused."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from registry import ContractError, PackageError, Registry
from registry.cli import main
from registry.packaging import hub
from registry.packaging.export import export_op
from registry.packaging.finding import fetch
from registry.packaging.package_lock import read_lock

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

NAME = "webgpu-kernels/com.microsoft.BiasAdd"
STRANGER = "somebody/com.microsoft.BiasAdd"
GATED = "webgpu-kernels/gated"


class Hub:
    """A hub of a few repositories: by name, the commit of each branch, and the files of each commit."""

    def __init__(self) -> None:
        self.branches: dict[tuple[str, str], str] = {}
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}
        self.asked: list[str] = []

    def push(self, repo: str, branch: str, folder: Path) -> str:
        """Makes a commit of a folder, and the head of a branch."""
        files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.branches[repo, branch] = commit
        self.files[repo, commit] = files
        return commit

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request."""
        path = path.partition("?")[0]
        self.asked.append(path)
        parts = path.strip("/").split("/")
        api = parts[0] == "api"
        repo = "/".join(parts[2:4] if api else parts[1:3])
        kind, rest = (parts[4:5], parts[5:]) if api else (parts[3:4], parts[4:])
        if repo == GATED:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if not any(known == repo for known, _ in self.branches):
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        revision = rest[0] if rest else ""
        commit = self.branches.get((repo, revision), revision)
        files = self.files.get((repo, commit))
        if files is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if kind == ["revision"]:
            names = [{"rfilename": name} for name in files]
            return 200, {}, json.dumps({"id": repo, "sha": commit, "siblings": names}).encode()
        if kind == ["tree"]:
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
            return 200, {}, json.dumps(tree).encode()
        data = files["/".join(rest[1:])]
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        return 200, {"ETag": etag, "X-Repo-Commit": commit, "Content-Length": str(len(data))}, data


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub, the client pointed at it with an empty cache, and an empty current folder."""
    made = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = made.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{web.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield made
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture(scope="module")
def package(shared: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "package"
    export_op(shared, shared.op("BiasAdd"), folder, "2.1")
    return folder


@pytest.fixture
def changed(package: Path, tmp_path: Path) -> Path:
    """The package with another template, its digest right."""
    folder = tmp_path / "changed"
    shutil.copytree(package, folder)
    path = folder / "build/webgpu/bias-add.wgsl.jinja"
    metadata = folder / "build/webgpu/metadata.json"
    before = path.read_bytes()
    path.write_bytes(before + b"// changed\n")
    document = json.loads(metadata.read_text())
    document["digest"]["files"]["bias-add.wgsl.jinja"] = hub_digest(path.read_bytes())
    metadata.write_text(json.dumps(document))
    return folder


def hub_digest(data: bytes) -> str:
    import base64

    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def test_by_version_and_by_commit(
    webgpu: Registry, fresh: Registry, server: Hub, package: Path, changed: Path
) -> None:
    old = server.push(NAME, "v1", package)
    handle = fresh.load(NAME, version=1)
    assert handle.package.origin is not None
    assert (handle.package.origin.repo, handle.package.origin.version) == (NAME, 1)
    assert handle.package.origin.revision == old and handle.package.dialect == "2.1"
    assert handle.package.provenance == f"{NAME} (v1, {old})"
    x = np.ones((1, 2, 4), np.float32)
    call = {"X": x, "bias": x[0, 0], "skip": x}
    np.testing.assert_array_equal(handle(**call), x * 3)
    np.testing.assert_array_equal(fresh.run(NAME, **call), x * 3)  # by the repository's name
    assert fresh.op("BiasAdd").package is None  # the plugin's op keeps its name
    assert [each.id for each in fresh.packages()] == ["com.microsoft::BiasAdd"]
    new = server.push(NAME, "v1", changed)
    assert fresh.load(NAME, version=1).package.origin.revision == new  # type: ignore[union-attr]
    assert fresh.load(NAME, revision=old).package.origin.revision == old  # type: ignore[union-attr]
    assert fresh.load(f"{NAME}@{old}").package.origin.revision == old  # type: ignore[union-attr]


def test_only_what_is_needed_is_fetched(fresh: Registry, server: Hub, package: Path) -> None:
    server.push(NAME, "v1", package)
    fresh.load(NAME, version=1)
    fetched = {path.rpartition("/")[2] for path in server.asked if "/resolve/" in path}
    assert "README.md" not in fetched and "manifest.json" in fetched


def test_without_network(
    fresh: Registry, server: Hub, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = server.push(NAME, "v1", package)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PackageError, match="at v1: not in the cache, and HF_HUB_OFFLINE is set; unset it"):
        fresh.load(NAME, version=1)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    fresh.load(NAME, version=1)
    before = len(server.asked)
    fresh.load(NAME, revision=commit)
    assert len(server.asked) == before  # a commit that is in the cache asks nobody
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fresh.load(NAME, version=1).id == "com.microsoft::BiasAdd"
    assert fresh.load(NAME, revision=commit).id == "com.microsoft::BiasAdd"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fresh.load(NAME, version=1).id == "com.microsoft::BiasAdd"
    with pytest.raises(PackageError, match="at v2: not in the cache, and the hub cannot be reached"):
        fresh.load(NAME, version=2)


@pytest.mark.parametrize(
    ("name", "pins", "message"),
    [
        (
            "webgpu-kernels/none",
            {"version": 1},
            "no such repository, or a private one; check the name",
        ),
        (NAME, {"version": 9}, "at v9: no such revision; versions are branches"),
        (NAME, {"revision": "0" * 40}, "no such revision"),
        (GATED, {"version": 1}, "access is restricted; ask for it on the repository's page"),
    ],
)
def test_what_the_hub_refuses(
    fresh: Registry, server: Hub, package: Path, name: str, pins: Any, message: str
) -> None:
    server.push(NAME, "v1", package)
    with pytest.raises(PackageError, match=message):
        fresh.load(name, **pins)


def test_without_the_client(fresh: Registry, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PackageError, match=r"not installed; pip install 'kernel-registry\[hub\]'"):
        fresh.load(NAME, version=1)


@pytest.mark.parametrize(
    ("name", "pins", "message"),
    [
        (NAME, {"version": -1}, "version is -1"),
        (NAME, {"version": True}, "version is True"),
        (NAME, {"version": "1"}, "version is '1'"),
        (NAME, {"revision": "main"}, "revision is 'main'; needed: a commit, 40 hexadecimal digits"),
        (NAME, {"revision": "A" * 40}, "needed: a commit"),
        (NAME, {"version": 1, "revision": "0" * 40}, "one of version and revision"),
        (f"{NAME}@v1", {"version": 1}, "one of version and revision"),
        ("a/b/c", {"version": 1}, "no package name"),
        ("nothing", {"version": 1}, "no package name"),
        (Path("x"), {"version": 1}, "is a folder"),
    ],
)
def test_names_and_pins(fresh: Registry, server: Hub, name: Any, pins: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        fresh.load(name, **pins)
    assert not server.asked


def test_strangers_and_false_names(fresh: Registry, server: Hub, package: Path) -> None:
    server.push(STRANGER, "v1", package)
    with pytest.raises(PackageError, match=f"{STRANGER}@v1 is not of webgpu-kernels; trust=True"):
        fresh.load(STRANGER, version=1)
    with pytest.raises(PackageError, match="no such folder, and a package by name needs version=1"):
        fresh.load(STRANGER)
    assert not server.asked
    assert fresh.load(STRANGER, version=1, trust=True).id == "com.microsoft::BiasAdd"
    server.push("webgpu-kernels/ai.onnx.Other", "v1", package)
    with pytest.raises(PackageError, match=r"holds com\.microsoft::BiasAdd; needed: the op"):
        fresh.load("webgpu-kernels/ai.onnx.Other", version=1)


def test_a_spoiled_cache(fresh: Registry, server: Hub, package: Path, tmp_path: Path) -> None:
    """Files of the cache are links to contents, which are held against the digests at every load."""
    server.push(NAME, "v1", package)
    folder = fresh.load(NAME, version=1).package.folder
    target = (folder / "bias-add.wgsl.jinja").resolve()
    assert not target.is_relative_to(folder)
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PackageError, match=r"bias-add\.wgsl\.jinja: sha256 is .*; metadata\.json says"):
        fresh.load(NAME, version=1)
    (folder / "bias-add.wgsl.jinja").unlink()
    (tmp_path / "secret").write_text("a secret")
    (folder / "bias-add.wgsl.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(PackageError, match=r"'bias-add\.wgsl\.jinja' lies outside the package"):
        fresh.load(NAME, version=1)


# The lock


def cli(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


def test_the_lock_pins(fresh: Registry, server: Hub, package: Path, changed: Path) -> None:
    old = server.push(NAME, "v1", package)
    with pytest.raises(PackageError, match=f"not in registry.lock; `registry lock {NAME}@v1` adds it"):
        fresh.load(NAME, version=1, frozen=True)
    done = cli("lock", f"{NAME}@v1")
    assert done.exit_code == 0 and old in done.output and "new" in done.output
    document = json.loads(Path("registry.lock").read_text())
    (entry,) = document["packages"]
    assert (entry["repo"], entry["version"], entry["revision"]) == (NAME, 1, old)
    assert entry["digests"]["manifest.json"] == hub_digest(
        (package / "build/webgpu/manifest.json").read_bytes()
    )
    assert {"metadata.json", "bias-add.wgsl.jinja"} < entry["digests"].keys()

    new = server.push(NAME, "v1", changed)
    for load in (
        lambda: fresh.load(NAME, version=1),
        lambda: fresh.load(NAME),
        lambda: fresh.load(NAME, version=1, frozen=True),
        lambda: fresh.load(NAME, revision=old, frozen=True),
    ):
        assert load().package.origin.revision == old
    assert "unchanged" in cli("lock", "--check").output
    text = Path("registry.lock").read_text()
    assert "was" in cli("lock").output  # brought up to date
    assert Path("registry.lock").read_text() != text
    assert fresh.load(NAME).package.origin.revision == new  # type: ignore[union-attr]
    with pytest.raises(PackageError, match=r"not in registry\.lock"):
        fresh.load(NAME, revision=old, frozen=True)
    assert not [path for path in Path().iterdir() if path.name != "registry.lock"]


def test_what_is_not_what_the_lock_says(fresh: Registry, server: Hub, package: Path, changed: Path) -> None:
    commit = server.push(NAME, "v1", package)
    assert cli("lock", f"{NAME}@v1").exit_code == 0
    folder = fresh.load(NAME).package.folder
    # Somebody replaced template and metadata alike: only the lock can tell.
    for name in ("bias-add.wgsl.jinja", "metadata.json"):
        (folder / name).resolve().write_bytes((changed / "build/webgpu" / name).read_bytes())
    with pytest.raises(PackageError, match=r"bias-add\.wgsl\.jinja: sha256 is .*; registry\.lock says"):
        fresh.load(NAME)
    done = cli("lock", "--check")
    assert done.exit_code == 2 and "registry.lock says" in done.output
    assert read_lock(Path("registry.lock")).pins[0].revision == commit


def test_strangers_in_the_lock_are_trusted(fresh: Registry, server: Hub, package: Path) -> None:
    server.push(STRANGER, "v1", package)
    assert cli("lock", f"{STRANGER}@v1").exit_code == 2
    assert cli("lock", f"{STRANGER}@v1", "--trust").exit_code == 0
    assert fresh.load(STRANGER, version=1).id == "com.microsoft::BiasAdd"
    server.push(NAME, "v1", package)
    server.push(NAME, "v2", package)
    assert cli("lock", f"{NAME}@v1").exit_code == cli("lock", f"{NAME}@v2").exit_code == 0
    assert [(e.repo, e.version) for e in read_lock(Path("registry.lock")).pins] == [
        (STRANGER, 1),
        (NAME, 1),
        (NAME, 2),
    ]
    with pytest.raises(PackageError, match="several times: v1, v2; say which"):
        fresh.load(NAME)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"lockFormat": 2, "packages": []}',
        '{"lockFormat": 1, "packages": [7]}',
        '{"lockFormat": 1, "packages": [{"repo": 1}]}',
        "[" * 100_000,
    ],
)
def test_a_lock_that_is_none(fresh: Registry, server: Hub, text: str) -> None:
    Path("registry.lock").write_text(text)
    with pytest.raises(PackageError, match=r"registry\.lock"):
        fresh.load(NAME, version=1)


def test_a_lock_elsewhere(
    server: Hub, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.push(NAME, "v1", package)
    monkeypatch.setenv("REGISTRY_LOCK", str(tmp_path / "other.lock"))
    monkeypatch.setenv("REGISTRY_FROZEN", "1")
    assert cli("lock", f"{NAME}@v1").exit_code == 0
    assert (tmp_path / "other.lock").is_file() and not Path("registry.lock").exists()
    reg = Registry()
    assert reg.load(NAME).id == "com.microsoft::BiasAdd"
    with pytest.raises(PackageError, match=r"not in .*other\.lock"):
        reg.load(NAME, version=2)
    monkeypatch.setenv("REGISTRY_LOCK", str(tmp_path / "none/other.lock"))
    assert cli("lock", f"{NAME}@v1").exit_code == 2


def test_the_command_line(webgpu: Registry, server: Hub, package: Path) -> None:
    commit = server.push(NAME, "v1", package)
    assert cli("op", NAME).exit_code == 2
    assert "is not in registry.lock" in cli("op", f"{NAME}@v1", "--frozen").output
    done = cli("op", f"{NAME}@v1")
    assert done.exit_code == 0 and commit in done.output
    assert cli("lock", f"{NAME}@v1").exit_code == 0
    done = cli("run", NAME, "X=1x2x4", "bias=4", "skip=1x2x4", "--frozen", "--json")
    assert json.loads(done.stdout)["backend"] == "webgpu"
    listed = json.loads(cli("ops", "--json").stdout)
    assert listed[-1]["op"] == "com.microsoft::BiasAdd" and listed[-1]["from"] == f"{NAME} (v1, {commit})"
    assert commit[:12] in cli("ops").output
    done = cli("test", NAME, "--cases", "1", "--backend", "webgpu", "--frozen")
    assert done.exit_code == 0 and "its own tests (" in done.output and "passed" in done.output


def test_listing_asks_nobody(server: Hub, package: Path, tmp_path: Path) -> None:
    server.push(NAME, "v1", package)
    assert cli("lock", f"{NAME}@v1").exit_code == 0
    shutil.rmtree(tmp_path / "cache")
    before = len(server.asked)
    done = cli("ops")
    assert done.exit_code == 0 and len(server.asked) == before
    assert "not in the cache" in done.output


def test_fetching_says_what_failed(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(PackageError, match=r"the hub's client failed \(no space left on device\)"):
        fetch(hub.PackageName(NAME, 1), "v1", 1)
