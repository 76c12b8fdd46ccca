# SPDX-License-Identifier: Apache-2.0
"""The structs of operations, and their names, operands and costs."""

import re

import schema
from c_contracts import comment
from c_names import HEAD, OPTION_TYPES, SHARED, TYPES, kinds_of


def members(op):
    yield "const char *function;"
    for item in op.items:
        if isinstance(item, schema.Argument):
            constant = "" if item.written and item.kind == "matrix" else "const "
            yield f"{constant}{TYPES[item.kind]} *{item.name};"
        elif item is not None:
            yield f"{OPTION_TYPES[item.kind]} {item.name};"
    for type_, name in op.keeps:
        yield f"{type_}{'' if type_.endswith('*') else ' '}{name};"


def structs(ops):
    kinds = kinds_of(ops)
    others = [op for op in ops if op.converted or not op.kind]
    yield HEAD + "#ifndef TARTAN_BACKEND_OPERATION_STRUCTS_H\n#define TARTAN_BACKEND_OPERATION_STRUCTS_H\n"
    for op in [*kinds.values(), *others]:
        if op.by_hand or op.kind in SHARED:
            continue
        yield comment([f"{op.help}{': ' + op.formula if op.formula else ''}. tartan/operations.h says the rest."])
        yield f"typedef struct tartan_op_{op.struct} {{"
        yield from ("    " + line for line in members(op))
        yield f"}} tartan_op_{op.struct};\n"
        for o in op.options:
            if o.kind == "word":
                names = (f"TARTAN_I_{op.name}_{o.name}_{word}".upper() for word in o.words)
                yield f"enum {{ {', '.join(names)} }};\n"
        if op.shapes:
            yield f"enum {{ {', '.join(f'TARTAN_I_{op.name.upper()}_ARGUMENT_{a.name.upper()}' for a in op.arguments)} }};\n"
    yield "#define TARTAN_I_OPERATIONS(X) \\"
    yield " \\\n".join(f"    X({kind.upper()}, {kind})" for kind in kinds)
    yield "\n/* Structs that arguments are read into, where backends run others. */\n#define TARTAN_I_CALLS(X) \\"
    yield " \\\n".join(f"    X({op.name})" for op in others)
    yield "\n#endif"


def operand_lines(kind, op):
    if kind in SHARED:
        for name, written in SHARED[kind]:
            yield f'add_array(all, "{name}", op->{name}, {str(written).lower()});'
        return
    if not op.by_hand:
        for a in op.arguments:
            if a.kind in ("array", "matrix"):
                yield f'add_{a.kind}(all, "{a.name}", op->{a.name}, {str(a.written).lower()});'
            elif a.kind == "arrays":
                add = "add_list_of_arrays" if op.any_number else "add_arrays"
                written = f", {str(a.written).lower()}" if op.any_number else ""
                yield f'{add}(all, "{a.name}", op->{a.name}, op->{op.count.name}{written});'
            elif a.kind == "layout":
                yield f'add_layout(all, "{a.name}", op->{a.name});'
        return
    for o in op.operands:
        name = f"op->{o.name}" if o.named else f'"{o.name}"'
        if o.kind in ("array", "matrix"):
            yield f"add_{o.kind}(all, {name}, op->{o.member}, {o.written});"
        elif o.kind == "layout":
            yield f"add_layout(all, {name}, op->{o.member});"
        elif o.kind == "arrays":
            yield f"add_list_of_arrays(all, {name}, op->{o.member}, {o.length}, {o.written});"
        else:
            yield f"if (op->{o.member} != NULL) add_list(all, {name}, op->{o.member}, {o.length});"


def cost_of(op):
    if not op.flops:
        return "0"
    lists = {o.member: o.length for o in op.operands if o.kind == "arrays"} | {a.name: f"op->{op.count.name}" for a in op.arguments if op.any_number and a.kind == "arrays"}
    def elements(match):
        name = match.group(1)
        return f"elements_of_list(op->{name}, {lists[name]})" if name in lists else f"elements_of(op->{name})"
    found = re.sub(r"\belements\((\w+)\)", elements, op.flops)
    def stored(match):
        name = match.group(1)
        member = next((o.member for o in op.operands if o.name == name), name)
        return f"tartan_i_stored_elements(op->{member})"
    return re.sub(r"\bstored\((\w+)\)", stored, found)


def rows(ops):
    kinds = kinds_of(ops)
    yield HEAD + '#include "backend/attention.h"\n#include "backend/operands.h"\n'
    for kind, op in kinds.items():
        yield f"static void {kind}_operands(const tartan_op_{kind} *op, operands *all) {{"
        yield from ("    " + line for line in operand_lines(kind, op))
        yield "}\n"
    yield "const char *tartan_i_op_name(const tartan_op *op) {"
    yield "    static const char *const names[] = {"
    yield from (f'        [TARTAN_OP_{kind.upper()}] = "{kind}",' for kind in kinds)
    yield "    };\n    return op->schema != NULL ? op->schema->name : names[op->kind];\n}\n"
    yield "int32_t tartan_i_op_operands(const tartan_op *any, tartan_i_operand out[TARTAN_I_MAX_OPERANDS]) {"
    yield "    operands all = {.out = out};\n    switch (any->kind) {"
    for kind in kinds:
        yield f"    case TARTAN_OP_{kind.upper()}:\n        {kind}_operands(&any->{kind}, &all);\n        break;"
    yield "    case TARTAN_OP_COUNT:\n        break;\n    }\n    return all.count;\n}\n"
    yield "double tartan_i_op_flops(const tartan_op *any) {\n    switch (any->kind) {"
    for kind, op in kinds.items():
        yield f"    case TARTAN_OP_{kind.upper()}: {{\n        const tartan_op_{kind} *op = &any->{kind};"
        yield f"        (void)op;\n        return {cost_of(op)};\n    }}"
    yield "    case TARTAN_OP_COUNT:\n        break;\n    }\n    return 0;\n}"
