"""Feeds what no one would write to manifests, expressions, templates and packages, and stops at anything but
our own errors: ``python scripts/fuzz.py SECONDS [--target NAME] [--seed N] [--out FOLDER]``.

Inputs are changed by Atheris, guided by coverage, from the corpus in ``tests/hostile/corpus`` and the
manifests of this library. Another exception, more than a second of processor time or more than 512 MB for one
input is a finding: the input is kept as a file in the folder, and the script exits with 1. ``--replay
FILE...`` tries files again; their folder's name is their target. ``--recipes`` tries those of
``tests/hostile/bombs.py``, each in a process with bounded memory. Needs ``kernel-registry[fuzz]``.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "hostile" / "corpus"
MAX_SECONDS = 1.0
ATTEMPTS = 3
"""For a recipe that is slow: where other programs take the caches and the memory, all work takes longer."""
MAX_BYTES = 512 * 2**20
SEPARATOR = b"\n=====\n"
"""Between the manifest, the template and the metadata of a package in one file."""
WORDS = (
    '"when"', '"derive"', '"variants"', '"passes"', '"$T"', '"cases"', '"axes"', "{a}", "shapes.", "fill(",
    "range(", "{% for i in ", "{% endfor %}", "{% set x = ", "{% macro m(", "{{ ", " }}", "|join", "|sort",
    "|tojson", "10 ** 300", "&a ", "*a", "<<: ", "!!python/", "\\ud800", "__class__", "__proto__",
    "namespace(", '{% include "', "1e999",
)  # fmt: skip


def targets(folder: Path) -> Mapping[str, Callable[[bytes], list[Any]]]:
    """What can be fed, by name; files are written into a folder."""
    sys.path.insert(0, str(ROOT / "tests"))
    from hostile import stages

    registry = stages.make_registry()

    def manifest(suffix: str) -> Callable[[bytes], list[Any]]:
        file = folder / f"manifest{suffix}"

        def take(data: bytes) -> list[Any]:
            file.write_bytes(data)
            return stages.walk_manifest(registry, file)

        return take

    def package(data: bytes) -> list[Any]:
        here = folder / "package"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        names = ("manifest.json", "twice.wgsl.jinja", "metadata.json")
        for name, part in zip(names, data.split(SEPARATOR, 2), strict=False):
            (here / name).write_bytes(part)
        return stages.walk_package(registry, here)

    def text(walk: Callable[[str], list[Any]]) -> Callable[[bytes], list[Any]]:
        return lambda data: walk(data.decode("utf-8", "replace"))

    return {
        "yaml": manifest(".yaml"),
        "json": manifest(".json"),
        "expression": text(stages.walk_expression),
        "template": text(stages.walk_template),
        "package": package,
    }


def feed(target: Callable[[bytes], list[Any]], data: bytes) -> None:
    """Feeds one input.

    Raises:
        RuntimeError: a step took too long; any exception that is not ours passes through.
    """
    hold(target(data))


def hold(outcomes: list[Any]) -> None:
    """Raises RuntimeError when a step took too long."""
    seconds = max(outcome.seconds for outcome in outcomes)
    if seconds > MAX_SECONDS:
        raise RuntimeError(f"a step takes {seconds:.1f} s; needed: at most {MAX_SECONDS:g} s")


def seeds(name: str, folder: Path) -> None:
    """Copies what a target begins with into a folder."""
    for file in (CORPUS / name).glob("*"):
        shutil.copy(file, folder)
    manifests = ROOT / "manifests" / "registry_manifests"
    templates = ROOT / "plugins" / "webgpu" / "registry_webgpu" / "templates"
    found = {"yaml": (manifests, "*/*.yaml"), "template": (templates, "*.jinja")}
    if name in found:
        for file in found[name][0].glob(found[name][1]):
            shutil.copy(file, folder)


def child(name: str, seconds: int, seed: int, out: Path) -> None:
    """Feeds one target in this process, which ends with the first finding."""
    import atheris

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as corpus:
        with atheris.instrument_imports(include=["registry"]):
            target = targets(Path(place))[name]
        seeds(name, Path(corpus))
        words = Path(place) / "words.txt"
        lines = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in WORDS)
        words.write_text("".join(f'"{line}"\n' for line in lines))
        options = [
            f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={out / name}/", "-timeout=20",
            f"-rss_limit_mb={MAX_BYTES // 2**20 + 256}", "-max_len=20000", f"-dict={words}",
            "-print_final_stats=1", "-verbosity=1", "-use_value_profile=1",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, corpus], lambda data: feed(target, data))
        atheris.Fuzz()


def replay(files: list[Path]) -> int:
    """Feeds files again; tells how many are findings."""
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        every = targets(Path(place))
        for file in files:
            try:
                feed(every[file.parent.name], file.read_bytes())
            except Exception as error:
                failed += 1
                print(f"{file}: {type(error).__name__}: {error}")
    print(f"{len(files)} files, {failed} findings")
    return failed


def recipes() -> int:
    """Tries every recipe, each in a process of its own with bounded memory; tells how many are findings."""
    sys.path.insert(0, str(ROOT / "tests"))
    from hostile import bombs, stages

    registry = stages.make_registry()
    stages.walk(registry, lambda: registry.op("BiasAdd"))  # what is loaded late is loaded now
    stages.walk_template("{{ 1 }}")
    failed = count = 0
    for kind, name, take in bombs.walks(registry, Path(tempfile.mkdtemp())):
        count += 1
        failed += not any(_passes(f"{kind}, {name}", take, attempt) for attempt in range(ATTEMPTS))
    print(f"{count} recipes, {failed} findings")
    return failed


def _passes(name: str, take: Callable[[], list[Any]], attempt: int) -> bool:
    """Whether a recipe's steps keep to the limits in a new process; the last attempt prints what is wrong."""
    child = os.fork()
    if child == 0:
        os._exit(_limited(name, take, attempt == ATTEMPTS - 1))
    return os.waitpid(child, 0)[1] == 0


def _limited(name: str, take: Callable[[], list[Any]], tell: bool) -> int:
    """Takes the steps of a recipe within limits; 1 where it is a finding."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * MAX_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    try:
        hold(take())
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if grown > MAX_BYTES:
            raise RuntimeError(f"it takes {grown >> 20} MB")
    except BaseException as error:
        if tell:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return 1
    return 0


def fuzz(name: str, seconds: int, seed: int, out: Path) -> bool:
    """Feeds one target in a process of its own; prints what it did, and tells whether all went well."""
    (out / name).mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        __file__,
        str(seconds),
        "--child",
        name,
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    units = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    memory = re.search(r"peak_rss_mb: +(\d+)", done.stderr)
    edges, features = covered[-1] if covered else ("?", "?")
    tried, most = units[1] if units else "?", memory[1] if memory else "?"
    print(f"{name}: {tried} inputs in {seconds} s, {edges} edges and {features} features covered, {most} MB")
    if done.returncode != 0:
        found = re.search(r"Test unit written to (\S+)", done.stderr)
        told = [line for line in done.stderr.splitlines() if not line.startswith(("#", "INFO", "MS:"))]
        print("\n".join(told[-40:]))
        print(f"{name}: {found[1] if found else 'no input was kept'}", flush=True)
    return done.returncode == 0


def main() -> int:
    """Feeds every target in turn, each for its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int, nargs="?", default=60)
    parser.add_argument("--target", action="append", help="yaml, json, expression, template or package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--recipes", action="store_true", help="try every recipe of tests/hostile/bombs.py")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.recipes:
        return 1 if recipes() else 0
    if options.replay:
        return 1 if replay(options.replay) else 0
    if options.child:
        child(options.child, options.seconds, options.seed, options.out)
        return 0
    names = options.target or ["yaml", "json", "expression", "template", "package"]
    share = max(1, options.seconds // len(names))
    results = [fuzz(name, share, options.seed, options.out.resolve()) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
