# SPDX-License-Identifier: Apache-2.0
"""The rows of attention: ours and its peers in turns."""

import dataclasses
import importlib.util
from pathlib import Path

import torch

from . import attention_operands, attention_peers, library, machine, operands, peers, table, timing
from .attention_cases import ANY_ORDER, BACKWARD, CAUSAL, COPY, DENSE, FLEX, FORWARD, HOST, UNMASKED

CALLS = Path(__file__).resolve().parents[2] / "calls" / "python.py"


class Attention:
    """Measures the rows of attention_cases.py; run() yields (row, result), group by group."""

    def __init__(self, options, here):
        self.options, self.machine, self.timer = options, here, here.timer
        self.context, self.flex = here.contexts[False], None

    def run(self):
        return machine.in_groups(self.options.rows, self.run_group)

    def run_group(self, rows):
        if rows[0].metric == "host":
            return [(row, self.describe(row) | host_time(row, self.machine)) for row in rows]
        group = Group(self, rows)
        try:
            timing.measure(self.timer, group.arms, self.options.samples)
            results = [(row, self.describe(row) | group.result(row)) for row in rows]
            group.free()
            if self.machine.cuda:
                torch.cuda.empty_cache()
            return results
        except RuntimeError as error:  # a fault of the device
            failure = {"verdict": "WRONG", "note": peers.first_line(error)}
            return [(row, self.describe(row) | failure) for row in rows]

    def flex_attention(self):
        if self.flex is None:
            self.flex = attention_peers.Flex()
        return self.flex

    def describe(self, row):
        c = row.case
        return {"section": row.section, "case": c.name, "pass": row.direction, "type": c.type_name, "block": c.block_name,
                "size": c.size_name, "pattern": f"{c.pattern} {c.parameters}".strip(), "peer": row.peer, "metric": row.metric,
                "floor": row.floor, "goal": row.goal} | self.machine.about


@dataclasses.dataclass
class Side:
    """One arm of a row, or the facts that say why there is none."""
    arm: timing.Arm | None
    work: float
    facts: dict


class Group:
    """The arms of rows whose operands have one shape."""

    def __init__(self, bench, rows):
        self.bench, self.machine, self.rows = bench, bench.machine, rows
        self.ours, self.sides, self.others, self.inputs = {}, {}, {}, None
        self.backward = any(row.direction == BACKWARD for row in rows)
        cases = [row.case for row in rows] + [unmasked(row.case) for row in rows if row.peer == UNMASKED]
        for case in dict.fromkeys(cases):
            self.add_ours(case)
        for row in rows:
            self.add_peers(row)
        sides = [*self.sides.values(), *(side for found in self.others.values() for side in found.values())]
        self.arms = list({id(side.arm): side.arm for side in sides if side.arm}.values())

    def prepare(self, arm):
        self.bench.timer.prepare(arm, self.bench.options.samples)
        return arm

    # ---- Ours ----

    def add_ours(self, case):
        directions = (FORWARD, BACKWARD, ANY_ORDER) if self.backward else (FORWARD,)
        for direction in directions:
            self.sides[case, direction] = Side(None, 0.0, {"verdict": "NOT RUN", "note": "out of time"})
        if self.machine.late():
            return
        facts, ours = self.attempt(lambda: self.make(case))
        if ours is None:
            for direction in directions:
                self.sides[case, direction] = Side(None, 0.0, facts)
            return
        self.ours[case] = ours
        checker = None
        for direction in directions:
            facts, _ = self.attempt(lambda: ours.run(direction))
            facts |= {"density": ours.pairs / (case.batch * case.heads * case.tq * case.tk)} | self.explained(ours, direction)
            if "verdict" not in facts:
                checker = checker or ours.checker()
                check = checker.check_forward if direction == FORWARD else checker.check_backward
                found, facts["error"] = self.attempt(check)
                facts |= found
            if "verdict" not in facts and direction == FORWARD:
                facts["plan_ms"] = ours.plan_ms()
            arm = None
            if "verdict" not in facts:
                found, arm = self.attempt(lambda: self.prepare(timing.Arm([ours.calls[direction]], capture=False)))
                facts |= found
            self.sides[case, direction] = Side(arm, ours.flops(direction), facts)
            if "verdict" in facts and direction == FORWARD and self.backward:
                failed = {"verdict": facts["verdict"], "note": f"forward: {facts['note']}"}
                self.sides[case, BACKWARD] = self.sides[case, ANY_ORDER] = Side(None, 0.0, failed)
                break

    def make(self, case):
        if self.inputs is None:
            self.inputs = attention_operands.Inputs.make(case, self.machine.generator, self.backward)
        return attention_operands.Ours(self.machine.library, self.bench.context, case, self.inputs, self.backward)

    def attempt(self, work):
        """(facts of a failure or {}, what `work` returned)."""
        try:
            result = work()
            if self.machine.cuda:
                torch.cuda.synchronize()  # a fault of the device shows here
            return {}, result
        except library.Refused as error:
            return {"verdict": "REFUSED", "note": str(error)}, None
        except operands.Wrong as error:
            return {"verdict": "WRONG", "note": str(error)}, None
        except torch.cuda.OutOfMemoryError:
            return {"verdict": "REFUSED", "note": "out of device memory"}, None
        except RuntimeError as error:  # a fault of the device, which PyTorch finds
            return {"verdict": "WRONG", "note": peers.first_line(error)}, None

    @staticmethod
    def explained(ours, direction):
        try:
            said = ours.explain(direction)
            return {"kernel": said.get("kernel"), "expected_tflops": said.get("expected_tflops")}
        except library.Refused:
            return {}

    # ---- Peers ----

    @staticmethod
    def key(row):
        """Rows with equal keys share the peers' arms."""
        return row.peer, row.case if row.peer == FLEX else None

    def add_peers(self, row):
        key = self.key(row)
        if row.peer == UNMASKED or key in self.others:
            return
        if self.machine.late():
            self.others[key] = {}
            return
        found = self.others[key] = {}
        case = row.case
        if row.peer in (DENSE, CAUSAL):
            for name in attention_peers.BACKENDS:
                self.add_peer(found, name, lambda name=name: attention_peers.dense(name, case, self.inputs, row.peer == CAUSAL,
                                                                                  self.backward))
        elif row.peer == COPY:
            self.add_peer(found, COPY, self.copy)
        elif self.sides[case, FORWARD].arm:
            self.add_peer(found, FLEX, lambda: self.flex(case))
        if row.peer == DENSE:
            self.others.setdefault((COPY, None), {})
            self.add_peer(self.others[COPY, None], COPY, self.copy)

    def copy(self):
        arm, work, _ = peers.copy(self.machine.generator.device)
        return {FORWARD: arm}, work

    def flex(self, case):
        arms, note = self.bench.flex_attention().arms(self.ours[case], self.backward)
        return arms, 0.0, note

    def add_peer(self, found, name, make):
        """Adds to `found` the sides {(name, direction): side}."""
        try:
            arms, work, *note = make()
            for direction, arm in arms.items():
                scale = 2.5 if direction == BACKWARD else 1
                found[name, direction] = Side(self.prepare(arm), work * scale, {"note": note[0]} if note and note[0] else {})
        except Exception as error:  # whatever a peer throws is its row's note
            for direction in (FORWARD, BACKWARD):
                found.setdefault((name, direction), Side(None, 0.0, {"note": f"{name}: {peers.first_line(error)}"}))

    def peers_of(self, row):
        """{name: side} of the row's direction."""
        if row.peer == UNMASKED:
            return {UNMASKED: self.of(unmasked(row.case), row.direction)[0]}
        return {name: side for (name, direction), side in self.others[self.key(row)].items() if direction == row.direction}

    # ---- Results ----

    def of(self, case, direction):
        """The side that a row is judged by, and the other one of a backward pass or None: the faster of the two orders in which
        dq is added up is judged, as no peer promises either, unless one of them failed."""
        if direction == FORWARD:
            return self.sides[case, FORWARD], None
        one, any_order = (self.sides[case, order] for order in (BACKWARD, ANY_ORDER))
        for side, order in ((one, 1), (any_order, 0)):
            side.facts["deterministic"] = order
        if not (one.arm and any_order.arm):
            return (any_order, one) if one.arm else (one, any_order)
        return (any_order, one) if any_order.arm.ms < one.arm.ms else (one, any_order)

    def result(self, row):
        (side, other), found = self.of(row.case, row.direction), self.peers_of(row)
        result = {key: value for key, value in side.facts.items() if key not in ("verdict", "note")}
        notes = [side.facts["note"]] if "note" in side.facts else []
        timed = {name: other for name, other in found.items() if other.arm and other.arm.times}
        if side.arm:
            work = self.ours[row.case].block_bytes if row.metric == "bytes" else side.work
            result |= {"ms": side.arm.ms, "tflops": work / side.arm.ms / 1e9, "samples": len(side.arm.times),
                       "timing": side.arm.how}
        name = min(timed, key=lambda name: timed[name].arm.ms, default=None)
        if name is not None:
            best = timed[name]
            notes += [best.facts["note"]] if best.facts.get("note") else []
            result |= {"peer": name, "peer_ms": best.arm.ms, "peer_tflops": best.work / best.arm.ms / 1e9 or None,
                       "peer_samples": len(best.arm.times), "peers_ms": {n: s.arm.ms for n, s in timed.items()}}
        elif side.arm:
            notes += [other.facts["note"] for other in found.values() if other.facts.get("note")]
        result["verdict"] = side.facts["verdict"] if not side.arm else \
            table.no_peer(row) if name is None else None
        if side.arm and name is not None:
            result["ratio"] = timed[name].arm.ms / side.arm.ms if row.metric == "time" else \
                result["tflops"] / result["peer_tflops"]
            if other:
                result["other_ms"] = other.arm.ms
                result["other_ratio"] = result["ratio"] * side.arm.ms / other.arm.ms
            result["verdict"] = table.verdict(row, result["ratio"])
            notes += self.limit(row, result) if row.peer == DENSE else []
        return result | ({"note": "; ".join(notes)} if notes else {})

    def limit(self, row, result):
        """A note where the arrays alone, moved at the copy rate, take so long that the goal cannot be reached."""
        copied = self.others.get((COPY, None), {}).get((COPY, FORWARD))
        if not (copied and copied.arm and copied.arm.times) or row.goal is None:
            return []
        ms = self.ours[row.case].array_bytes(row.direction) / (copied.work / copied.arm.ms)
        most = self.sides[row.case, row.direction].work / ms / 1e9 / result["peer_tflops"]
        return [f"memory allows a ratio of {most:.2f}"] if most < row.goal else []

    def free(self):
        for arm in self.arms:
            arm.free()
        for ours in self.ours.values():
            ours.free()
        self.ours, self.sides, self.others, self.arms, self.inputs = {}, {}, {}, [], None


def unmasked(case):
    return dataclasses.replace(case, masked=False, name=case.name.removeprefix("bit mask, "))


# ---- The host's time of a call ----

def host_time(row, here):
    """Ours beside SDPA, both asked for on the current stream and not waited for (tests/calls/python.py)."""
    try:
        spec = importlib.util.spec_from_file_location("calls", CALLS)
        calls = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(calls)
        found = calls.attention_times(torch, here.generator.device, row.direction, row.case.heads, row.case.tq, row.case.d, 200)
    except (ImportError, AttributeError, OSError) as error:
        return {"verdict": "skipped", "note": f"Tartan's Python package: {peers.first_line(error)}"}
    except Exception as error:  # of ours or of PyTorch: the note says whose
        return {"verdict": "REFUSED", "note": peers.first_line(error)}
    (ours, _), (theirs, _) = found
    return {"ms": 1e-3 * ours, "peer": HOST, "peer_ms": 1e-3 * theirs, "ratio": theirs / ours,
            "verdict": table.verdict(row, theirs / ours)}
