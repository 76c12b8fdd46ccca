/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include "backend/operation.h"

/* ---- The tables ---- */

#define ROWS(...)                                                                                            \
    .rows = (const tartan_cuda_kernel[]){__VA_ARGS__},                                                       \
    .count = sizeof((const tartan_cuda_kernel[]){__VA_ARGS__}) / sizeof(tartan_cuda_kernel)
#define ONE(kernel)                                                                                          \
    { .name = #kernel, .launch = tartan_cuda_##kernel }
#define KERNEL(kernel, ...) {.name = #kernel, .launch = tartan_cuda_##kernel, __VA_ARGS__},
#define MANY(op, ...)       [TARTAN_I_OP_##op] = {.make = tartan_cuda_##op##_of, ROWS(__VA_ARGS__)},
#define MADE(op)            MANY(op, ONE(op##_plain))
#define PLAIN(op)           [TARTAN_I_OP_##op] = {ROWS(ONE(op##_plain))},

static const tartan_cuda_kernels all[TARTAN_OP_COUNT] = {
#include "kernels.def"
};

const tartan_cuda_kernels *tartan_cuda_kernels_of(int32_t kind) {
    return all[kind].count > 0 ? &all[kind] : NULL;
}

tartan_status tartan_cuda_problem_of(const tartan_host *host, const tartan_context *context,
                                     const tartan_op *op, tartan_cuda_problem *room, const void **out) {
    room->nothing = false;
    *out = &op->function; /* the first member of every struct */
    if (all[op->kind].make == NULL) return TARTAN_OK;
    *out = room;
    return all[op->kind].make(host, context, &op->function, room);
}

/* ---- The choice ---- */

const char *tartan_cuda_kernel_refuses(const tartan_cuda_kernel *kernel, const tartan_cuda_chip *chip,
                                       const void *problem) {
    return kernel->refuses != NULL ? kernel->refuses(chip, problem) : NULL;
}

double tartan_cuda_kernel_rate(const tartan_cuda_kernel *kernel, const void *problem) {
    return kernel->rate != NULL ? kernel->rate(problem) : 0;
}

int32_t tartan_cuda_choose(const tartan_cuda_kernels *kernels, const tartan_cuda_chip *chip,
                           const void *problem) {
    int32_t best = -1;
    double best_rate = 0;
    for (int32_t i = 0; i < kernels->count; i++) {
        if (tartan_cuda_kernel_refuses(&kernels->rows[i], chip, problem) != NULL) continue;
        const double rate = tartan_cuda_kernel_rate(&kernels->rows[i], problem);
        if (best >= 0 && rate < best_rate) continue;
        best = i;
        best_rate = rate;
    }
    return best;
}
