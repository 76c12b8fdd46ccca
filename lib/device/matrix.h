/* SPDX-License-Identifier: Apache-2.0
 * Matrices with values on a context's device. */
#ifndef TARTAN_DEVICE_MATRIX_H
#define TARTAN_DEVICE_MATRIX_H

#include "device/resource.h"

/* A matrix with uninitialised values on the context's device. */
tartan_status tartan_i_matrix_new_on(tartan_i_call *call, tartan_layout *layout, int32_t dtype,
                                     int32_t block_order, tartan_matrix **out);

/* A copy on the context's device of all values, including padding and unused capacity. */
tartan_status tartan_i_matrix_duplicate(tartan_i_call *call, const tartan_matrix *from, tartan_matrix **out);

#endif
