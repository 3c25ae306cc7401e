"""Normalises real activations: what a sentence encoder computes behind its first attention block.

The data are layer 0 of all-MiniLM-L6-v2 on two sentences of 11 tokens, hidden size 384
(``examples/data/minilm-layer0.npz``). Each op runs on the backend the registry chooses, then on every
backend there is, and is judged against the float64 reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import registry
from registry.commands.tables import comparison_table, decision_table, make_console

DATA = Path(__file__).parent / "data" / "minilm-layer0.npz"


def main() -> None:
    """Prints, for both ops, the choice with its reasons and the comparison of all backends."""
    with np.load(DATA) as file:
        data = {name: file[name] for name in file.files}
    rows = {name: data[name].reshape(-1, 384) for name in ("input", "skip", "embeddings")}
    console = make_console()
    skip_layer_norm: dict[str, Any] = {
        "input": rows["input"],
        "skip": rows["skip"],
        "gamma": data["gamma"],
        "beta": data["beta"],
        "bias": data["bias"],
        "epsilon": float(data["epsilon"]),
        "outputs": ("output", "input_skip_bias_sum"),
    }
    layer_norm: dict[str, Any] = {
        "X": rows["embeddings"],
        "Scale": data["embeddings_gamma"],
        "B": data["embeddings_beta"],
        "epsilon": float(data["epsilon"]),
    }
    ok = True
    for op, arguments in (
        ("SkipLayerNormalization", skip_layer_norm),
        ("LayerNormalization", layer_norm),
    ):
        console.rule(op)
        result = registry.run(op, **arguments)
        plan = registry.last()
        assert plan is not None
        console.print(f"ran on [bold]{plan.backend}[/bold], variant [bold]{plan.variant}[/bold]")
        if op == "SkipLayerNormalization":
            error = np.abs(result.output - data["output"].reshape(-1, 384)).max()
            console.print(f"largest difference from the encoder's own float64 output: {error:.3g}")
        console.print(decision_table(registry.explain(op, **arguments)))
        report = registry.compare(op, **arguments)
        console.print(comparison_table(report))
        ok = ok and report.ok
    if not ok:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
