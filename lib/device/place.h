/* SPDX-License-Identifier: Apache-2.0
 * Checks of where operands are. Errors name `function` and the argument `name`. */
#ifndef TARTAN_DEVICE_PLACE_H
#define TARTAN_DEVICE_PLACE_H

#include "backend/backend.h"
#include "backend/operation.h"

/* A valid array in memory of the context's device. */
tartan_status tartan_i_operand_array(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array, bool output);

/* An input of bytes there. */
tartan_status tartan_i_operand_bytes(const char *function, const tartan_context *context, const char *name,
                                     const tartan_array *array);
/* The same for an array of indices. */
tartan_status tartan_i_operand_indices(const char *function, const tartan_context *context, const char *name,
                                       const tartan_array *array, bool output);

/* An open matrix with values there. */
tartan_status tartan_i_operand_matrix(const char *function, const tartan_context *context, const char *name,
                                      const tartan_matrix *matrix);

/* An open layout; a dynamic one must be on the context's device. */
tartan_status tartan_i_operand_layout(const char *function, const tartan_context *context,
                                      const tartan_layout *layout);

/* Memory that the context can copy from: memory of the host or of any device of its kind. */
tartan_status tartan_i_operand_near(const char *function, const tartan_context *context, const char *name,
                                    int32_t device_type, int32_t device_id);

#endif
