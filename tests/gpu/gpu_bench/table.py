# SPDX-License-Identifier: Apache-2.0
"""The table of results, from the objects that gpu.jsonl holds."""

COLUMNS = ("operation", "dtype", "block", "layout", "size", "kernel", "plan ms", "ms", "expected", "TFLOP/s", "peer",
           "peer TFLOP/s", "ratio", "floor", "goal", "verdict")
TEXTS = ("operation", "dtype", "layout", "size", "kernel", "peer", "verdict")
VERDICTS = ("goal", "floor", "BELOW", "WRONG", "REFUSED", "NO PEER", "NOT RUN", "shown")
FAILING = ("BELOW", "WRONG", "REFUSED", "NO PEER", "NOT RUN")
TITLES = {"goals": "Goals", "minibatch": "Small minibatch: TB/s, against the copy rate",
          "peers": "Against PyTorch and cuSPARSE (ratio: times as fast)",
          "break-even": "Break-even with dense cuBLAS (ratio: times as fast)",
          "openai": "openai/blocksparse: hidden 2560 h, minibatch 64, Barabasi-Albert (ratio: times as fast as dense)",
          "megablocks": "MegaBlocks: experts, against cuBLAS batched over the experts",
          "qwen": "Qwen2.5-7B projections, 90% block sparsity (ratio: times as fast as dense)"}


def verdict(row, ratio):
    if row.floor is None:
        return "shown"
    return "goal" if ratio >= row.goal else "floor" if ratio >= row.floor else "BELOW"


def number(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= .1 \
        else f"{value:.3g}"


def cells(r):
    layout = r["layout"] if r["layout"].startswith(("ba ", "experts")) else f"{r['layout']} {100 * r['density']:.3g}%"
    figures = [number(r.get(name)) for name in ("plan_ms", "ms", "expected_tflops", "tflops")]
    return [r["operation"], r["type"], str(r["block"]), layout, r["size"], r.get("kernel") or "-", *figures, r["peer"],
            number(r.get("peer_tflops")), number(r.get("ratio")), number(r["floor"]), number(r["goal"]), r["verdict"]]


def lines(results, markdown):
    """The table, section by section; notes stand beside their rows, in Markdown below the table."""
    out = []
    for section in dict.fromkeys(r["section"] for r in results):
        chosen = [r for r in results if r["section"] == section]
        table = [list(COLUMNS)] + [cells(r) for r in chosen]
        if markdown:
            out += ["", f"### {TITLES[section]}", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
            out += ["| " + " | ".join(row) + " |" for row in table[1:]]
            notes = [f"* {' '.join(row[:5])}, {r['peer']}: {r['note']}" for row, r in zip(table[1:], chosen) if r.get("note")]
            out += ["", *dict.fromkeys(notes)] if notes else []
            continue
        widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
        out += ["", TITLES[section]]
        for row, r in zip(table, [{}] + chosen):
            text = "  ".join(cell.ljust(width) if COLUMNS[i] in TEXTS else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(row, widths)))
            out.append(text.rstrip() + (f"  ({r['note']})" if r.get("note") else ""))
    return out


def summary(results):
    counts = {name: sum(r["verdict"] == name for r in results) for name in VERDICTS}
    return f"{len(results)} rows: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def failed(results):
    return any(r["verdict"] in FAILING for r in results)
