/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_BACKEND_CPU_MOMENTS_H
#define TARTAN_BACKEND_CPU_MOMENTS_H

#include "backend/operation.h"
#include "kernels/kernels.h"

/* A step of one slice, along the first axis, of a parameter that has moments of 8 bits: with gradients times `factor`, and a learning
 * rate of its own. */
void tartan_i_cpu_update_slice(const tartan_op_update *op, const tartan_i_kernels *kernels, int64_t place,
                               int64_t slice, double factor, double rate);

#endif
