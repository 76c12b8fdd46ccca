/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_CONTEXT_H
#define TARTAN_CORE_CONTEXT_H

#include "core/status.h"
#include "tartan/context.h"

struct tartan_backend;

struct tartan_context {
    uint32_t magic; /* TARTAN_I_CONTEXT */
    tartan_context_options options;
    int32_t threads; /* resolved, >= 1 */
    const struct tartan_backend *backend;
    void *device; /* the backend's own */
};

/* A seed argument: itself if >= 0, the context's for -1. */
static inline uint64_t tartan_i_seed(const tartan_context *context, int64_t seed) {
    return (uint64_t)(seed >= 0 ? seed : context->options.seed);
}

#endif
