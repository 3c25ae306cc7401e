"""The choice as a pure function: order, conditions, demotions, obstacles, and how the reasons read."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

import registry_manifests
from registry import (
    Availability,
    Backend,
    Claim,
    ContractError,
    NoPlanError,
    Predicate,
    Refusal,
    Registry,
    hookimpl,
)
from registry.calling.call import parse_call
from registry.calling.request import Request, bind
from registry.calling.scope import NO_DEVICE
from registry.deciding.decide import Offer, Policy, decide
from registry.deciding.decision import Candidate, Decision, Reason
from registry.deciding.tuned import Choice, TunedVariant

HERE = Availability(True, name="here", device=NO_DEVICE)
SOFTWARE = Availability(True, name="llvmpipe", hardware=False, device=NO_DEVICE)
MISSING = Availability(False, "it is installed", "not found", "install it")


@pytest.fixture
def request_(shared: Registry) -> Request:
    op = shared.op("BiasAdd")
    named = {"X": ((2, 3, 6), "float32"), "bias": ((6,), "float32"), "skip": ((2, 3, 6), "float32")}
    return bind(parse_call(op, (), named))


def verdicts(decision: Decision) -> list[tuple[str, str, str]]:
    return [(row.backend, row.variant, row.verdict) for row in decision.candidates]


def test_priority_then_position(request_: Request) -> None:
    claims = [Claim("a", 1), Claim("b", 5), Claim("c", 5)]
    got = decide(request_, [Offer("x", HERE, claims)], Policy(exhaustive=True))
    assert verdicts(got) == [("x", "b", "chosen"), ("x", "c", "eligible"), ("x", "a", "eligible")]


def test_demoted_claims_come_last_within_their_backend(request_: Request) -> None:
    claims = [
        Claim("a", 9, demote_when=("true",)),
        Claim("b", 1),
        Claim("c", 0, demote_when=("false",)),
    ]
    got = decide(
        request_,
        [Offer("x", HERE, claims), Offer("y", HERE, [Claim("d", 99)])],
        Policy(exhaustive=True),
    )
    assert [row.variant for row in got.candidates] == ["b", "c", "a", "d"]
    only = decide(request_, [Offer("x", HERE, claims[:1]), Offer("y", HERE, [Claim("d")])])
    assert only.variant == "a" and only.chosen is not None and only.chosen.demoted


def test_a_broken_demotion_rejects(request_: Request) -> None:
    got = decide(request_, [Offer("x", HERE, [Claim("a", demote_when=("1 + true",))])])
    assert got.chosen is None and got.candidates[0].condition == "1 + true"


@pytest.mark.parametrize("clause", ["1", "'x'", "[1]", "false", "none", "missing.deep == 1", "1 / 'a' > 0"])
def test_only_exactly_true_holds(request_: Request, clause: str) -> None:
    clause = clause.replace("missing", "shapes.missing")
    got = decide(request_, [Offer("x", HERE, [Claim("a", when=("true", clause))])])
    assert got.chosen is None and got.candidates[0].condition == clause


def test_later_clauses_may_rely_on_earlier_ones(request_: Request) -> None:
    got = decide(request_, [Offer("x", HERE, [Claim("a", when=("ranks.X == 4", "1 / 'a' > 0"))])])
    row = got.candidates[0]
    assert (row.because, row.found, row.needed) == ("ranks.X", "3", "== 4")


def test_predicates(request_: Request) -> None:
    def odd(request: Request, device: Any) -> str | None:
        return None if request.inputs["X"].size % 2 else f"{request.inputs['X'].size} elements"

    claim = Claim("a", when=(Predicate("X has an odd size", "odd", odd),))
    row = decide(request_, [Offer("x", HERE, [claim])]).candidates[0]
    assert (row.because, row.found, row.needed) == ("X has an odd size", "36 elements", "odd")


def test_backend_conditions_come_first(request_: Request) -> None:
    claims = [Claim("a"), Claim("b", when=("false",))]
    offers = [
        Offer("gone", MISSING, claims),
        Offer("soft", SOFTWARE, claims),
        Offer("far", HERE, claims, Reason("stay", "stay", "X on z:0", "move it")),
        Offer("last", HERE, claims),
    ]
    got = decide(request_, offers, Policy(exhaustive=True))
    assert [row.because for row in got.candidates] == [
        "it is installed",
        "it is installed",
        "adapter is hardware",
        "adapter is hardware",
        "stay",
        "stay",
        "every condition holds",
        "false",
    ]
    assert decide(request_, offers, Policy(accept_software=True)).backend == "soft"


def test_nothing_is_asked_after_the_choice(request_: Request) -> None:
    def offers() -> Any:
        yield Offer("x", HERE, [Claim("a"), Claim("b")])
        raise AssertionError("a later backend was asked")

    got = decide(request_, offers())
    assert verdicts(got) == [("x", "a", "chosen"), ("x", "b", "not tried")]


def test_failures_of_preparing_are_reasons(request_: Request) -> None:
    offers = [Offer("x", HERE, [Claim("a"), Claim("b")]), Offer("y", HERE, [Claim("a")])]
    got = decide(request_, offers, Policy(failures={("x", "a"): "line 3: no"}))
    assert got.variant == "b" and got.candidates[0].found == "line 3: no"
    other = decide(request_, offers[1:], Policy(failures={("x", "a"): "line 3: no"}))
    assert (other.backend, other.variant) == ("y", "a")  # a variant of one name is another backend's
    lost = decide(request_, offers, Policy(failures={("x", None): "device is lost"}))
    assert lost.backend == "y" and {row.found for row in lost.rejected} == {"device is lost"}


def test_a_backend_that_asks_too_much_stops_no_other(request_: Request) -> None:
    greedy = [Claim(f"v{number}", when=("numel(fill(1, 4000)) < 0",)) for number in range(300)]
    got = decide(request_, [Offer("x", HERE, greedy), Offer("y", HERE, [Claim("a", when=("true",))])])
    assert (got.backend, got.variant) == ("y", "a")
    assert "more than 1000000 steps" in got.candidates[299].found


def test_a_measured_choice_is_judged_by_its_own_tunables(request_: Request) -> None:
    claims = [Claim("a", when=("tunables.ITEMS > 2",)), Claim("b")]  # by default it is 2
    for items, variant in ((4, "a"), (1, "b")):
        choice = Choice(
            TunedVariant("x", "a", {"ITEMS": items}), 1.0, TunedVariant("x", "b"), 2.0, "2026-01-01"
        )
        got = decide(request_, [Offer("x", HERE, claims, measured=choice)])
        assert got.variant == variant and got.chosen is not None
        assert got.chosen.measured == (choice if items == 4 else None)
    row = decide(request_, [Offer("x", HERE, [Claim("b"), Claim("a")], measured=choice)]).candidates[1]
    assert (row.variant, row.because) == ("b", "behind the measured choice")


def test_refusals_are_rows(request_: Request) -> None:
    got = decide(request_, [Offer("x", HERE, [Refusal("float64 is supported", "float64", "float32")])])
    assert verdicts(got) == [("x", "all", "rejected")]
    with pytest.raises(NoPlanError) as caught:
        got.require()
    assert "float64 is supported" in str(caught.value) and caught.value.decision is got


def test_broken_derived_values_reject_without_raising(seeds: Any) -> None:
    pairs = {"x": ((), "float32"), "scale": ((), "float32")}
    got = seeds["LayerNormalization"].explain(**pairs, backend="webgpu", profile={"webgpu": {}})
    assert got.chosen is None and "lastAxisWgVec4" in got.candidates[0].found


def test_reads_at_a_glance(shared: Registry) -> None:
    """Why did beta_bias_vec4 lose? The row names the part of the condition that failed."""
    named = {
        "input": ((3, 6), "float32"),
        "skip": ((3, 6), "float32"),
        "gamma": ((6,), "float32"),
        "beta": ((6,), "float32"),
        "bias": ((6,), "float32"),
    }
    got = shared.explain(
        "SkipLayerNormalization",
        **named,
        outputs=("output", "input_skip_bias_sum"),
        backend="webgpu",
        profile={"webgpu": {}},
    )
    row = next(row for row in got.candidates if row.variant == "beta_bias_vec4")
    assert row.condition == "hiddenSize % 4 == 0"
    assert (row.because, row.found, row.needed) == ("hiddenSize % 4", "2", "== 0")
    line = next(line for line in str(got).splitlines() if " beta_bias_vec4 " in line)
    assert line.split("rejected")[1].split() == ["hiddenSize", "%", "4", "2", "==", "0"]
    assert got.variant == "wide_rows_bias_beta_residual"


def test_of_many_rejections_the_nearest_are_told(request_: Request) -> None:
    half, long = 'dtypes.T == "f16"', "dim(shapes.X, 2) > 64"
    far = [Claim(f"far{i}", 9, when=(f"dim(shapes.X, 0) == {i + 9}", half, long)) for i in range(4)]
    near = [Claim("near", when=(half, "ranks.X == 3")), Claim("beside", when=("ranks.X == 3", half))]
    broken = [Claim("broken", 99, when=("1 + true",))]

    def notes(*claims: Claim) -> tuple[str, ...]:
        offers = [Offer("x", HERE, claims), Offer("y", HERE, near)]  # the few of y speak for themselves
        return decide(request_, offers).notes

    found = "nearest on x: near and 1 more, but dtypes.T is f32, needed: == f16"
    assert notes(*broken, *far, *near) == (found,)
    assert notes(*far, near[0], Claim("c", when=(half, long)))[0].startswith("nearest on x: near, but")
    (both,) = notes(*far, Claim("c", when=(half, long)), Claim("d", when=(long, half)))
    assert both.endswith(
        ": c and 1 more, but dim(shapes.X, 2) is 6, needed: > 64 and dtypes.T is f32, needed: == f16"
    )
    assert notes(*far) == notes(*broken * 6) == notes(*[near[0]] * 6) == ()
    assert notes(*far, *near, Claim("takes it")) == ()
    every = decide(
        request_,
        [Offer("x", HERE, [*far, *near]), Offer("y", HERE, [Claim("takes it")])],
        Policy(exhaustive=True),
    )
    assert every.variant == "takes it" and every.notes == (found,)


def test_equal_reasons_are_folded(request_: Request) -> None:
    same = tuple(Candidate("x", f"v{i}", "rejected", "why", "found", "needed") for i in range(5))
    other = Candidate("y", "w", "rejected", "why", "found", "needed")
    table = Decision(request_, (*same, other)).table()
    assert [cells[:4] for cells in table] == [
        ("1", "x", "v0", "rejected"),
        ("", "x", "4 more", "rejected"),
        ("6", "y", "w", "rejected"),
    ]


def test_a_decision_is_plain_data(request_: Request) -> None:
    import json

    got = decide(
        request_,
        [Offer("x", HERE, [Claim("a"), Claim("b", when=("false",))])],
        Policy(exhaustive=True),
    )
    data = json.loads(json.dumps(got.as_dict()))
    assert data["backend"] == "x" and data["candidates"][1]["verdict"] == "rejected"
    assert isinstance(HERE.details, MappingProxyType)


def test_batch_invariance_can_be_asked_for(request_: Request, fresh: Registry) -> None:
    claims = [Claim("split", 9, batch_invariant=False), Claim("whole")]
    assert decide(request_, [Offer("x", HERE, claims)]).variant == "split"
    got = decide(request_, [Offer("x", HERE, claims)], Policy(batch_invariant=True))
    assert got.variant == "whole"
    assert got.candidates[0].because == "a row's bits do not depend on the other rows"
    with pytest.raises(ContractError, match="True or False"):
        fresh.configure(batch_invariant="yes")  # type: ignore[arg-type]


def test_batch_invariance_is_a_setting() -> None:
    class Splitting(Backend):
        name = "splitting"

        def claims(self, op: Any) -> Any:
            return [Claim("split", 1, batch_invariant=False), Claim("whole")]

    class Plugin:
        @hookimpl
        def registry_backends(self) -> Any:
            return [Splitting()]

    reg = Registry([registry_manifests, Plugin()], entry_points=False)
    call = {"X": ((2, 3, 6), "float32"), "bias": ((6,), "float32"), "skip": ((2, 3, 6), "float32")}
    assert reg.explain("BiasAdd", **call).variant == "split"
    reg.configure(batch_invariant=True)
    assert reg.explain("BiasAdd", **call).variant == "whole"
    with pytest.raises(NoPlanError, match="do not depend on the other rows"):
        reg.explain("BiasAdd", **call, variant="split").require()
    reg.configure(options={"splitting": {}})  # another setting leaves this one alone
    assert reg.explain("BiasAdd", **call).variant == "whole"
    reg.configure(batch_invariant=False)
    assert reg.explain("BiasAdd", **call).variant == "split"
