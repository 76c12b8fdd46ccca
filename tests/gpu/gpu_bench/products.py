# SPDX-License-Identifier: Apache-2.0
"""The rows of products: ours and its peers in turns."""

import torch

from . import library, machine, operands, peers, table, timing


class Products:
    """Measures the rows of cases.py; run() yields (row, result), group by group."""

    def __init__(self, options, here):
        self.options, self.machine, self.timer = options, here, here.timer

    def setup_ours(self, product):
        """(our operands or None, arm or None, facts of the row)."""
        facts, ours = {}, None
        if self.machine.late():
            return None, None, {"verdict": "NOT RUN", "note": "out of time"}
        try:
            ours = operands.Ours(self.machine.library, self.machine.contexts[product.tf32], product, self.machine.generator)
            facts["density"] = ours.layout.density
            facts |= self.explained(ours)
            for call in ours.calls:
                call()
            facts["error_over_bound"] = ours.check()
            facts["plan_ms"] = ours.plan_ms()
            arm = timing.Arm(ours.calls)
            self.timer.prepare(arm, self.options.samples)
            return ours, arm, facts
        except library.Refused as error:
            facts |= {"verdict": "REFUSED", "note": str(error)}
        except operands.Wrong as error:
            facts |= {"verdict": "WRONG", "note": str(error)}
        except torch.cuda.OutOfMemoryError:
            facts |= {"verdict": "REFUSED", "note": "out of device memory"}
        except RuntimeError as error:  # a fault of the device, which PyTorch finds
            facts |= {"verdict": "WRONG", "note": peers.first_line(error)}
        return ours, None, facts

    def explained(self, ours):
        try:
            said = ours.explain()
            return {"kernel": said.get("kernel"), "why": said.get("why"), "expected_tflops": said.get("expected_tflops")}
        except library.Refused as error:
            return {"kernel": "?", "why": str(error)}

    def setup_peer(self, row, ours):
        try:
            arm, work, note = peers.make(row, ours, self.machine.generator, self.machine.stream)
            self.timer.prepare(arm, self.options.samples)
            return arm, work, note
        except Exception as error:  # whatever a peer throws is its row's note
            return None, 0.0, peers.first_line(error)

    def run_group(self, rows):
        ours, others = {}, {}
        for row in rows:
            if row.product not in ours:
                ours[row.product] = self.setup_ours(row.product)
            key = peers.key(row)
            if self.machine.late():
                others.setdefault(key, (None, 0.0, ""))
            elif key not in others:
                others[key] = self.setup_peer(row, ours[row.product][0])
        arms = [arm for _, arm, _ in ours.values() if arm] + [arm for arm, _, _ in others.values() if arm]
        timing.measure(self.timer, arms, self.options.samples)
        results = [(row, self.result(row, *ours[row.product], *others[peers.key(row)])) for row in rows]
        for arm in arms:
            arm.free()
        for made, _, _ in ours.values():
            if made:
                made.free()
        del ours, others, arms
        if self.machine.cuda:
            torch.cuda.empty_cache()
        return results

    def result(self, row, ours, arm, facts, peer, work, note):
        result = describe(row) | self.machine.about | {k: v for k, v in facts.items() if k not in ("verdict", "note")}
        notes = [facts["note"]] if "note" in facts else []
        if peer:
            result |= {"peer_ms": peer.ms, "peer_tflops": work / peer.ms / 1e9, "peer_samples": len(peer.times),
                       "peer_timing": peer.how}
        notes += [note] if note else []
        if arm:
            done = ours.bytes if row.metric == "bytes" else ours.flops
            result |= {"ms": arm.ms, "tflops": done / arm.ms / 1e9, "samples": len(arm.times), "timing": arm.how}
        if arm and peer:
            result["ratio"] = peer.ms / arm.ms if row.metric == "time" else result["tflops"] / result["peer_tflops"]
        if not arm:
            result["verdict"] = facts["verdict"]
        else:
            result["verdict"] = table.verdict(row, result["ratio"]) if peer else "NO PEER"
        if notes:
            result["note"] = "; ".join(notes)
        return result

    def run(self):
        return machine.in_groups(self.options.rows, self.run_group)


def describe(row):
    p = row.product
    return {"section": row.section, "operation": p.name, "type": p.type_name, "dtype": p.dtype, "block": p.block,
            "layout": p.layout, "density": p.density, "size": p.size_name, "rows": p.rows, "cols": p.cols, "n": p.size,
            "peer": row.peer, "metric": row.metric, "floor": row.floor, "goal": row.goal}
