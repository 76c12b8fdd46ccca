/* SPDX-License-Identifier: Apache-2.0
 * Checks that operations of convolutions share. */
#ifndef TARTAN_OPS_CONV_CHECKS_H
#define TARTAN_OPS_CONV_CHECKS_H

#include "conv/windows.h"
#include "ops/operand.h"

/* A matrix on the layout of the convolution's filters. */
tartan_status tartan_i_conv_check_filter(const char *function, const tartan_context *context,
                                         const char *name, const tartan_conv *conv,
                                         const tartan_matrix *filter);

/* gain or bias: NULL, or [channels] or [classes, channels] of the type in which `dtype` is summed, apart from the output `y`. */
tartan_status tartan_i_conv_check_factor(const char *function, const tartan_context *context,
                                         const char *name, const tartan_array *array, int64_t channels,
                                         int64_t classes, int32_t dtype, const char *y_name,
                                         const tartan_array *y);

#endif
