/* SPDX-License-Identifier: Apache-2.0
 * The operations on images as rows of a table; tartan._conv and tartan._windows document them. */
#include "images.h"

static tartan_status residual(const tartan_py_operands_of *with) {
    const tartan_array *const *in = with->inputs;
    return tartan_residual_forward(with->context, in[0], in[1], in[2], with->handles[0], with->matrices[0],
                                   in[3], in[4], with->handles[1], with->matrices[1], in[5], in[6],
                                   with->handles[2], with->matrices[2], in[7], in[8], with->texts[0],
                                   with->handles[3], with->texts[1], with->outputs[0]);
}

static const tartan_py_operation operations[] = {
    {.name = "residual_unit",
     .handles = {"reduce", "spatial", "expand", "active"},
     .matrices = {"reduce_filter", "spatial_filter", "expand_filter"},
     .inputs = {"x", "x_gain", "x_bias", "reduce_gain", "reduce_bias", "spatial_gain", "spatial_bias",
                "expand_gain", "expand_bias"},
     .outputs = {"out"},
     .images = 1,
     .names = {{"tartan_residual_forward", "residual_unit"}, {"y", "out"}},
     .run = residual},
};

const tartan_py_operation *tartan_py_operation_named(PyObject *name) {
    for (size_t i = 0; PyUnicode_Check(name) && i < sizeof operations / sizeof *operations; i++)
        if (PyUnicode_CompareWithASCIIString(name, operations[i].name) == 0) return &operations[i];
    PyErr_SetString(PyExc_TypeError, "image_operation: there is no such operation");
    return NULL;
}
