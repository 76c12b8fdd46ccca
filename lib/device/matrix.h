/* SPDX-License-Identifier: Apache-2.0
 * Matrices with values in memory of a context's device. */
#ifndef TARTAN_DEVICE_MATRIX_H
#define TARTAN_DEVICE_MATRIX_H

#include "device/resource.h"

/* A matrix with values in memory of the context's device, not initialised. */
tartan_status tartan_i_matrix_new_on(tartan_i_call *call, tartan_layout *layout, int32_t dtype,
                                     int32_t block_order, tartan_matrix **out);

/* A matrix on the context's device with all values as they are, including padding and room for blocks to come. */
tartan_status tartan_i_matrix_duplicate(tartan_i_call *call, const tartan_matrix *from, tartan_matrix **out);

#endif
