"""Files that outlive a process: whatever kills it while it writes, the old one or the new one is there.

The writer is killed by SIGKILL at every point of writing, one after another: half through the text, before
and after each call that changes a name or a mode. All of it happens in processes forked from a small one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import itertools, os, signal, sys, tempfile
from pathlib import Path

from registry.freezing import decision_lock
from registry.freezing.records import Asked, Chosen, Decided, Source
from registry.packaging import package_lock as packages
from registry.deciding.tuned import TunedVariant, Choice, Entry, Store

kind, folder = sys.argv[1], Path(sys.argv[2])


def decided(name, text):
    import hashlib
    source = Source("main", "x", hashlib.sha256(text.encode()).hexdigest(), "1x1x1", "wgsl", text)
    return Decided(Asked(name, {"X": "2:float32"}, ("Y",)), Chosen("b", "v", passes=(source,)))


def entry(name):
    return packages.Pin("owner/" + name, 1, "0" * 40, {"manifest.json": name * 2000})


def choice(name):
    one = TunedVariant("b", name * 2000)
    return Entry({"op": "a::B"}, "digest", (one,), Choice(one, 1.0, one, 1.0, "2026-01-01"))


def add(name):
    "Adds something to what there is."
    if kind == "decisions":
        decision_lock.add(folder / "decisions.lock", [decided(name, name * 2000)], {"machine": "m"})
    elif kind == "packages":
        packages.add_pins(folder / "registry.lock", [entry(name)])
    else:
        assert Store(folder).write(choice(name))


def names():
    "What is there, read in full."
    if kind == "decisions":
        lock = decision_lock.read_lock(folder / "decisions.lock")
        assert all(lock.text_of(source) for each in lock.decisions for source in each.chosen.passes)
        return [each.asked.op for each in lock.decisions]
    if kind == "packages":
        return [each.repo[6:] for each in packages.read_lock(folder / "registry.lock").pins]
    return [Store(folder).read({"op": "a::B"}).choice.chosen.variant[:1]]


def deadly(point):
    "Patches all that writing goes through: the process is killed at one point of it."
    points = itertools.count()

    def pass_by():
        if next(points) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(function):
        def call(*args, **more):
            pass_by()
            result = function(*args, **more)
            pass_by()
            return result
        return call

    for name in ("replace", "chmod", "unlink", "open", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))
    make = tempfile.NamedTemporaryFile

    def temporary(*args, **more):
        draft = make(*args, **more)
        write = draft.file.write

        def halves(data):
            for part in (data[: len(data) // 2], data[len(data) // 2 :]):
                write(part)
                draft.file.flush()
                pass_by()
        draft.write = halves
        return draft

    tempfile.NamedTemporaryFile = temporary


def forked(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


killed = 0
for point in itertools.count():
    for file in [*folder.rglob("*")][::-1]:
        file.rmdir() if file.is_dir() else file.unlink()
    add("o")
    status = os.waitpid(forked(lambda: (deadly(point), add("n"))), 0)[1]
    found = names()
    assert found in ([["o"], ["n"]] if kind == "tuned" else [["o"], ["n", "o"]]), (point, found)
    add("z")  # and it goes on
    assert "z" in names() and (kind == "tuned" or "o" in names())
    if status == 0:
        break
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    killed += 1
assert killed >= 6, killed

# Several at once lose nothing.
before = set(names())
many = [[f"{worker}{number}" for number in range(8)] for worker in "abcd"]
children = [forked(lambda mine=mine: [add(name) for name in mine]) for mine in many]
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
if kind == "tuned":
    assert names()[0] in "abcd"
else:
    assert set(names()) == before.union(*many)
print("killed", killed)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("kind", ["decisions", "packages", "tuned"])
def test_a_writer_that_is_killed(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, kind, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("killed")
