/* SPDX-License-Identifier: Apache-2.0
 * The options and the block mask of attention, which its unfused parts take too. */
#ifndef TARTAN_OPS_ATTENTION_OPTIONS_H
#define TARTAN_OPS_ATTENTION_OPTIONS_H

#include "backend/operation.h"

/* Which options an operation takes: all of them, or scale and those that say which keys a query sees. */
typedef enum tartan_i_attention_taken {
    TARTAN_I_OPTIONS_ATTENTION,
    TARTAN_I_OPTIONS_SOFTMAX,
} tartan_i_attention_taken;

/* Sets the members of *in that `text` (NULL: no options) names; in->bias is already set. */
tartan_status tartan_i_attention_options(const char *function, tartan_i_attention_taken taken,
                                         const char *text, tartan_i_attention *in);

/* in->block_mask is NULL, or an open mask of in->layout. */
tartan_status tartan_i_attention_check_mask(const char *function, const tartan_i_attention *in);

#endif
