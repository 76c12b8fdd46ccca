# SPDX-License-Identifier: Apache-2.0
"""The library's messages in the words of a Python program: its arguments and functions have C's names."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Functions that messages advise to call.
_FUNCTIONS = {
    "tartan_attention_forward": "attention",
    "tartan_conv_filter_from_sets": "filter_from_sets",
    "tartan_conv_get_layout": "BlockConv.layout",
    "tartan_explain_begin": "explain",
    "tartan_explain_end": "explain",
    "tartan_layout_add_diagonal": "add_diagonal",
    "tartan_layout_add_elements": "with_elements",
    "tartan_layout_from_device_mask": "Layout.from_device_mask",
    "tartan_layout_from_device_scores": "Layout.from_device_scores",
    "tartan_layout_from_windows": "Layout.from_windows",
    "tartan_layout_to_host": "to_host",
    "tartan_matrix_to_host": "to_host",
    "tartan_dtype": "dtype",
    "tartan_function": "function",
    "tartan_norm_kind": "norm",
    "tartan_reduction": "reduction",
    "tartan_sparsifier_add_growth": "Sparsifier.add_growth",
    "tartan_sparsifier_add_scores": "Sparsifier.observe",
    "tartan_sparsifier_prepare": "Sparsifier.step",
}

# Arguments, by the functions that have them.
_LISTS = {"pointers": "indptr", "indices": "cols"}
# "The length of the diagonal" speaks of the matrix.
_DIAGONALS = {"of the diagonal": "of the diagonal", "diagonal": "values", "offset": "k"}
_ORDERS = {"row_order": "rows", "col_order": "cols"}
_RANGES = {"row_begin .. row_end": "the range of rows", "col_begin .. col_end": "the range of columns"}
_ARGUMENTS: dict[str, Mapping[str, str]] = {
    "tartan_block_mask_from_bits": {"mask": "bits"},
    "tartan_buffer_create": {"lengths": "shape"},
    "tartan_buffer_to_array": {"buffer": "the device array"},
    "tartan_conv_from_sets": {"cols": "blocks", "rows": "blocks"},
    "tartan_conv_output_size": {"in_size": "size"},
    "tartan_layout_from_csr": _LISTS,
    "tartan_layout_from_pattern": {"pattern is": "name is"},
    "tartan_layout_permute": _ORDERS,
    "tartan_layout_reblock": {"block_rows": "block", "block_cols": "block"},
    "tartan_layout_slice": _RANGES,
    "tartan_layout_with_boundaries": {"row_bounds": "rows", "col_bounds": "cols"},
    "tartan_matrix_add_diagonal": _DIAGONALS,
    "tartan_matrix_apply": {"parameter": "the number"},
    "tartan_matrix_count_different": {"relative": "rtol", "absolute": "atol"},
    "tartan_matrix_from_compressed": _LISTS,
    "tartan_matrix_from_csr": _LISTS,
    "tartan_matrix_permute": _ORDERS,
    "tartan_matrix_reblock": {"block_rows": "block", "block_cols": "block"},
    "tartan_matrix_reblock_at": {"row_bounds": "rows", "col_bounds": "cols"},
    "tartan_matrix_scale": {"row_factors": "rows", "col_factors": "cols"},
    "tartan_matrix_scatter": {"from": "matrix"},
    "tartan_matrix_set_diagonal": _DIAGONALS,
    "tartan_matrix_slice": _RANGES,
    "tartan_matrix_to_dense": {"dense": "out"},
    "tartan_matrix_triangle": {"offset": "k"},
    "tartan_reorder_rcm": _LISTS,
    "tartan_sparsifier_add_scores": {"scores": "gradients"},
    "tartan_sparsifier_create": {"options has": "schedule has"},
    "tartan_sparsifier_add_scores": {"scores": "gradients"},
    "tartan_sparsifier_create": {
        "options has density and threshold": "density and threshold are given", "options has end=": "end is ", "options has": "schedule has",
    },
}

# A frame is one argument in C; options are one text.
_PHRASES = (
    (re.compile(r"^shape\.(?:block_rows|block_cols) "), "block "),
    (re.compile(r"^shape\.(?:rows|cols) "), "shape "),
    (re.compile(r"^shape\.heads "), "heads "),
    (re.compile(r"^shape has blocks of "), "block is "),
    (re.compile(r"^(\w+: )?options has '(\w+)=(.*)', expected \2 to be ", re.DOTALL), r"\1\2 is \3, expected "),
    (re.compile(r"^(\w+: )?options has (\w+), which needs causal=1"), r"\1\2 is given, which needs causal=True"),
    (re.compile(r"^(\w+: )?schedule has '(\w+)=(.*?)', expected ", re.DOTALL), r"\1\2 is \3, expected "),
    (re.compile(r"^options has neither size nor output"), "neither size nor output is given"),
    (re.compile(r"^options has size and output"), "size and output are given"),
    (re.compile(r", but options has no preactivate=1"), ", which needs preactivate=True"),
)

_PREFIX = re.compile(r"(tartan_\w+): ")
_CALLS = re.compile("|".join(rf"\b{name}\b" for name in _FUNCTIONS))


def in_python(text: str) -> str:
    """The message without the name of the C function, which the traceback tells better, and with Python's names."""
    begin = _PREFIX.match(text)
    if begin is not None:
        text = text[begin.end() :]
        if begin[1].startswith("tartan_file_"):
            return text  # the names in it are the user's
        names = _ARGUMENTS.get(begin[1])
        if names is not None:
            text = re.sub("|".join(rf"\b{re.escape(name)}\b" for name in names), lambda found: names[found[0]], text)
    for phrase, words in _PHRASES:
        text = phrase.sub(words, text)
    return _CALLS.sub(lambda found: _FUNCTIONS[found[0]], text)
