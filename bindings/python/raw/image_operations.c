/* SPDX-License-Identifier: Apache-2.0
 * The operations on images as rows of a table; tartan._conv and tartan._windows document them. */
#include "images.h"

static tartan_status forward(const tartan_py_operands_of *with) {
    return tartan_conv_forward(with->context, with->handles[0], with->matrices[0], with->inputs[0],
                               with->texts[0], with->inputs[1], with->inputs[2], with->handles[1],
                               with->texts[1], with->outputs[0]);
}

static tartan_status input_gradient(const tartan_py_operands_of *with) {
    return tartan_conv_input_gradient(with->context, with->handles[0], with->matrices[0], with->inputs[0],
                                      with->handles[1], with->texts[1], with->outputs[0]);
}

static tartan_status filter_gradient(const tartan_py_operands_of *with) {
    return tartan_conv_filter_gradient(with->context, with->handles[0], with->inputs[0], with->inputs[1],
                                       with->handles[1], with->texts[1], with->number, with->matrices[0]);
}

static tartan_status gather(const tartan_py_operands_of *with) {
    return tartan_window_gather(with->context, with->handles[0], with->texts[1], with->inputs[0],
                                with->outputs[0]);
}

static tartan_status scatter(const tartan_py_operands_of *with) {
    return tartan_window_scatter(with->context, with->handles[0], with->texts[1], with->inputs[1],
                                 with->inputs[0], with->texts[0], with->outputs[0]);
}

static tartan_status linear(const tartan_py_operands_of *with) {
    const tartan_channel_linear_arguments given = {
        .conv = with->handles[0],
        .in_size = with->nsizes > 0 ? with->sizes : NULL,
        .nin_size = with->nsizes,
        .x = with->inputs[0],
        .gain = with->inputs[1],
        .bias = with->inputs[2],
        .options = with->texts[0],
        .y = with->outputs[0],
    };
    return tartan_channel_linear(with->context, &given);
}

static tartan_status linear_gradient(const tartan_py_operands_of *with) {
    const tartan_channel_linear_gradient_arguments given = {
        .conv = with->handles[0],
        .in_size = with->nsizes > 0 ? with->sizes : NULL,
        .nin_size = with->nsizes,
        .x = with->inputs[0],
        .gain = with->inputs[2],
        .bias = with->inputs[3],
        .y_grad = with->inputs[1],
        .options = with->texts[0],
        .x_grad = with->outputs[0],
        .gain_grad = with->outputs[1],
        .bias_grad = with->outputs[2],
    };
    return tartan_channel_linear_gradient(with->context, &given);
}

static tartan_status residual(const tartan_py_operands_of *with) {
    const tartan_array *const *in = with->inputs;
    return tartan_residual_forward(with->context, in[0], in[1], in[2], with->handles[0], with->matrices[0],
                                   in[3], in[4], with->handles[1], with->matrices[1], in[5], in[6],
                                   with->handles[2], with->matrices[2], in[7], in[8], with->texts[0],
                                   with->handles[3], with->texts[1], with->outputs[0]);
}

static const tartan_py_operation operations[] = {
    {.name = "conv",
     .handles = {"conv", "active"},
     .matrices = {"filter"},
     .inputs = {"x", "gain", "bias"},
     .outputs = {"out"},
     .images = 1,
     .names = {{"tartan_conv_forward", "conv"}, {"y", "out"}},
     .run = forward},
    {.name = "input_gradient",
     .handles = {"conv", "active"},
     .matrices = {"filter"},
     .inputs = {"y_grad"},
     .outputs = {"out"},
     .images = 1,
     .names = {{"tartan_conv_input_gradient", "input_gradient"}, {"x_grad", "out"}},
     .run = input_gradient},
    {.name = "filter_gradient",
     .handles = {"conv", "active"},
     .matrices = {"out"},
     .inputs = {"x", "y_grad"},
     .images = 3,
     .names = {{"tartan_conv_filter_gradient", "filter_gradient"}, {"filter_grad", "out"}},
     .run = filter_gradient},
    {.name = "window_gather",
     .handles = {"active"},
     .inputs = {"x"},
     .outputs = {"out"},
     .images = 1,
     .names = {{"tartan_window_gather", "window_gather"}, {"blocks", "out"}},
     .run = gather},
    {.name = "window_scatter",
     .handles = {"active"},
     .inputs = {"base", "blocks"},
     .outputs = {"out"},
     .images = 3,
     .names = {{"tartan_window_scatter", "window_scatter"}, {"y", "out"}},
     .run = scatter},
    {.name = "channel_linear",
     .handles = {"conv"},
     .inputs = {"x", "gain", "bias"},
     .outputs = {"out"},
     .images = 1,
     .names = {{"tartan_channel_linear", "channel_linear"}, {"in_size", "size"}, {"y", "out"}},
     .run = linear},
    {.name = "channel_linear_gradient",
     .handles = {"conv"},
     .inputs = {"x", "y_grad", "gain", "bias"},
     .outputs = {"x_grad", "gain_grad", "bias_grad"},
     .images = 3,
     .names = {{"tartan_channel_linear_gradient", "channel_linear_gradient"}, {"in_size", "size"}},
     .run = linear_gradient},
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
