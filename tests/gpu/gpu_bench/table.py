# SPDX-License-Identifier: Apache-2.0
"""The table of results, from the objects that gpu.jsonl holds."""

import json
import sys

COLUMNS = ("operation", "dtype", "block", "layout", "size", "kernel", "plan ms", "ms", "expected", "TFLOP/s", "peer",
           "peer TFLOP/s", "ratio", "floor", "goal", "verdict")
ATTENTION = ("layout", "block", "B x H, T, d", "pass", "density", "kernel", "plan ms", "error", "ms", "TFLOP/s", "peer",
             "peer TFLOP/s", "ratio", "other order", "floor", "goal", "verdict")
CONV = ("case", "size", "filter", "windows", "active", "kernel", "plan ms", "ms", "TFLOP/s", "peer", "peer ms", "peer TFLOP/s", "ratio",
        "floor", "goal", "verdict")
TEXTS = ("case", "filter", "windows", "operation", "dtype", "layout", "size", "B x H, T, d", "pass", "kernel", "peer", "verdict")
VERDICTS = ("goal", "floor", "BELOW", "WRONG", "REFUSED", "NO PEER", "NOT RUN", "shown", "peer refuses", "skipped")
FAILING = ("BELOW", "WRONG", "REFUSED", "NO PEER", "NOT RUN")
TITLES = {"goals": "Goals", "cliffs": "Block sizes and numbers of columns between the usual ones",
          "minibatch": "Small minibatch: TB/s, against the copy rate",
          "peers": "Against PyTorch and cuSPARSE (ratio: times as fast)",
          "break-even": "Break-even with dense cuBLAS (ratio: times as fast)",
          "openai": "openai/blocksparse: hidden 2560 h, minibatch 64, Barabasi-Albert (ratio: times as fast as dense)",
          "megablocks": "MegaBlocks: experts, against cuBLAS batched over the experts",
          "qwen": "Qwen2.5-7B projections, 90% block sparsity (ratio: times as fast as dense)",
          "attention": "Attention, bf16: useful FLOP/s against dense attention (causal SDPA, unmasked: times as fast)",
          "attention patterns": "Patterns of the Sparse Transformer",
          "attention decoding": "Decoding: TB/s, against the copy rate",
          "attention host": "The host's time of a call, beside SDPA's (ratio: theirs over ours)",
          "attention flex": "Against FlexAttention (ratio: times as fast)",
          "attention, one thread": "Attention, one thread, against the peak of multiply-adds in registers",
          "attention, all threads": "Attention, all threads (ratio: times as fast; of SDPA, as its dense attention)",
          "conv": "Convolutions with block-sparse filters (useful FLOP/s, against the peak or dense; times as fast)",
          "sbnet": "3x3 convolutions in windows of images (GPU, dense: useful FLOP/s; else times as fast)",
          "sbnet plans": "SBNet's plans: 3x3 convolutions in the windows of a mask (times as fast)",
          "attention, memory": "Attention, memory of a process (ratio: 2 GB to what it holds)"}


def verdict(row, ratio):
    if row.floor is None:
        return "shown"
    return "goal" if ratio >= row.goal else "floor" if ratio >= row.floor else "BELOW"


def no_peer(row):
    """FlexAttention may refuse what the goals do not ask of it."""
    return "peer refuses" if row.peer == "FlexAttention" else "NO PEER" if row.floor is not None else "shown"


def number(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= .1 \
        else f"{value:.3g}"


def cells(r):
    if "windows" in r:
        return conv_cells(r)
    if "pass" in r:
        return attention_cells(r)
    layout = r["layout"] if r["layout"].startswith(("ba ", "experts")) else f"{r['layout']} {100 * r['density']:.3g}%"
    figures = [number(r.get(name)) for name in ("plan_ms", "ms", "expected_tflops", "tflops")]
    return [r["operation"], r["type"], str(r["block"]), layout, r["size"], r.get("kernel") or "-", *figures, r["peer"],
            number(r.get("peer_tflops")), number(r.get("ratio")), number(r["floor"]), number(r["goal"]), r["verdict"]]


def attention_cells(r):
    figures = [number(r.get(name)) for name in ("plan_ms", "error", "ms", "tflops")]
    density = f"{100 * r['density']:.3g}%" if "density" in r else "-"
    name = r["pass"] + (f", deterministic={r['deterministic']}" if "deterministic" in r else "")
    return [r["case"], r["block"], r["size"], name, density, r.get("kernel") or "-", *figures, r["peer"], number(r.get("peer_tflops")),
            number(r.get("ratio")), number(r.get("other_ratio")), number(r["floor"]), number(r["goal"]), r["verdict"]]


def conv_cells(r):
    filter_ = f"b{r['block']} {100 * r['density']:.3g}%" if r["block"] else "dense"
    windows, active = (f"{r['windows']}x{r['windows']}", f"{100 * r.get('share', 1):.3g}%") if r["windows"] else ("-", "all")
    figures = [number(r.get(name)) for name in ("plan_ms", "ms", "tflops")]
    return [r["name"], r["size"].removeprefix(r["name"] + " "), filter_, windows, active, r.get("kernel") or "-", *figures, r["peer"],
            number(r.get("peer_ms")), number(r.get("peer_tflops")), number(r.get("ratio")), number(r["floor"]), number(r["goal"]),
            r["verdict"]]


def lines(results, markdown):
    """The table, section by section; notes stand beside their rows, in Markdown below the table. Attention's "error" is that of
    our results over that of plain bf16 attention, on the CPU relative to their norm; "other order" is the ratio of a backward pass with
    the other value of "deterministic"."""
    out = []
    for section in dict.fromkeys(r["section"] for r in results):
        chosen = [r for r in results if r["section"] == section]
        columns = CONV if "windows" in chosen[0] else ATTENTION if "pass" in chosen[0] else COLUMNS
        table = [list(columns)] + [cells(r) for r in chosen]
        if markdown:
            out += ["", f"### {TITLES[section]}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            out += ["| " + " | ".join(row) + " |" for row in table[1:]]
            notes = [f"* {' '.join(row[:5])}, {r['peer']}: {r['note']}" for row, r in zip(table[1:], chosen) if r.get("note")]
            out += ["", *dict.fromkeys(notes)] if notes else []
            continue
        widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
        out += ["", TITLES[section]]
        for row, r in zip(table, [{}] + chosen):
            text = "  ".join(cell.ljust(width) if columns[i] in TEXTS else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(row, widths)))
            out.append(text.rstrip() + (f"  ({r['note']})" if r.get("note") else ""))
    return out


def summary(results):
    counts = {name: sum(r["verdict"] == name for r in results) for name in VERDICTS}
    return f"{len(results)} rows: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def failed(results):
    return any(r["verdict"] in FAILING for r in results)


def shown(options):
    """The exit status of a call that measures nothing (it wants the table of an earlier run, the texts of rows, or no row), or None."""
    if options.render:
        with open(options.render, encoding="utf-8") as file:
            results = [json.loads(line) for line in file if line.strip()]
        print("\n".join(lines(results, options.markdown)))
        print(summary(results))
        return 0
    if options.list:
        print("\n".join(row.text for row in options.rows))
        return 0
    if not options.rows:
        print("bench: no row matches", file=sys.stderr)
        return 2
    return None
