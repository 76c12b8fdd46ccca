# SPDX-License-Identifier: Apache-2.0
"""generate_c.py FILE...: writes what C takes from the schema, each file by its name, by the modules c_*.py.

    operation_structs.h   structs of operations (lib/backend/operation.h includes it)
    operation_rows.c      names, operands and costs of operations
    schema_tables.c       the tables that lib/backend/schema.h declares
    operations.h          the public prototypes with their contracts, tartan/operations.h
    operations.c          the public functions
"""

import pathlib
import sys

import schema
from c_functions import functions, header
from c_structs import rows, structs
from c_tables import tables

WRITERS = {"operation_structs.h": structs, "operation_rows.c": rows, "schema_tables.c": tables, "operations.h": header, "operations.c": functions}


def main():
    ops = schema.load()
    for path in map(pathlib.Path, sys.argv[1:]):
        text = "\n".join(WRITERS[path.name](ops)) + "\n"
        # A file that stays as it is keeps its time, and nothing that includes it is compiled again.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except schema.SchemaError as error:
        sys.exit(f"schema: {error}")
