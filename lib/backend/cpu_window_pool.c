/* SPDX-License-Identifier: Apache-2.0
 * Which windows of a mask are active, on the CPU. */
#include "backend/cpu.h"
#include "conv/image.h"

/* What is looked for in a window. */
typedef struct pool {
    const tartan_op_window_pool *op;
    tartan_i_image mask;
    tartan_i_windows windows;
    double positions; /* of a window */
    int32_t workers;
} pool;

/* A box of a mask: the part of a window that is inside of it. */
typedef struct box {
    const char *data;
    int64_t size[TARTAN_I_MAX_DIMS];
} box;

/* Whether a number is above the tolerance, or is NaN; and the sum, in row-major order. */
#define DEFINE_BOX(name, type, VALUE)                                                                        \
    static bool any_##name(const pool *p, const box *b) {                                                    \
        const double tolerance = p->op->tolerance;                                                           \
        const int64_t *step = p->mask.step, columns = b->size[2];                                            \
        int found = 0;                                                                                       \
        for (int64_t i = 0; i < b->size[0]; i++)                                                             \
            for (int64_t j = 0; j < b->size[1] && !found; j++) {                                             \
                const type *line = (const type *)(const void *)b->data + i * step[0] + j * step[1];          \
                if (step[2] == 1)                                                                            \
                    for (int64_t k = 0; k < columns; k++) found |= !((double)VALUE(line[k]) <= tolerance);   \
                else                                                                                         \
                    for (int64_t k = 0; k < columns; k++)                                                    \
                        found |= !((double)VALUE(line[k * step[2]]) <= tolerance);                           \
            }                                                                                                \
        return found != 0;                                                                                   \
    }                                                                                                        \
    static double sum_##name(const pool *p, const box *b) {                                                  \
        const int64_t *step = p->mask.step;                                                                  \
        double sum = 0;                                                                                      \
        for (int64_t i = 0; i < b->size[0]; i++)                                                             \
            for (int64_t j = 0; j < b->size[1]; j++) {                                                       \
                const type *line = (const type *)(const void *)b->data + i * step[0] + j * step[1];          \
                for (int64_t k = 0; k < b->size[2]; k++) sum += (double)VALUE(line[k * step[2]]);            \
            }                                                                                                \
        return sum;                                                                                          \
    }
#define AS_IS(x) (x)
DEFINE_BOX(f64, double, AS_IS)
DEFINE_BOX(f32, float, AS_IS)
DEFINE_BOX(f16, tartan_i_half, tartan_i_f32_of_f16)
DEFINE_BOX(bf16, tartan_i_bfloat, tartan_i_f32_of_bf16)
DEFINE_BOX(u8, uint8_t, AS_IS)

typedef bool (*any_function)(const pool *p, const box *b);
typedef double (*sum_function)(const pool *p, const box *b);
static const any_function any_of[] = {[TARTAN_F64] = any_f64,
                                      [TARTAN_F32] = any_f32,
                                      [TARTAN_F16] = any_f16,
                                      [TARTAN_BF16] = any_bf16,
                                      [TARTAN_U8] = any_u8};
static const sum_function sum_of[] = {[TARTAN_F64] = sum_f64,
                                      [TARTAN_F32] = sum_f32,
                                      [TARTAN_F16] = sum_f16,
                                      [TARTAN_BF16] = sum_bf16,
                                      [TARTAN_U8] = sum_u8};

static bool is_active(const pool *p, int64_t image, const int64_t window[TARTAN_I_MAX_DIMS]) {
    int64_t at = image * p->mask.item;
    box b;
    for (int32_t d = 0; d < TARTAN_I_MAX_DIMS; d++) {
        int64_t begin, end;
        const int64_t first =
            tartan_i_window_inside(&p->windows, d, window[d], p->mask.size[d], &begin, &end);
        b.size[d] = end - begin;
        if (end > begin) at += (first + begin) * p->mask.step[d];
    }
    if (b.size[0] * b.size[1] * b.size[2] == 0) return p->op->average && !(0 <= p->op->tolerance);
    b.data = p->mask.data + at * p->mask.bytes;
    if (!p->op->average) return any_of[p->mask.dtype](p, &b);
    return !(sum_of[p->mask.dtype](p, &b) / p->positions <= p->op->tolerance);
}

static void pool_task(void *data, int32_t worker) {
    const pool *p = data;
    const int64_t *count = p->windows.count;
    uint8_t *active = p->op->active->data;
    int64_t begin, end;
    tartan_i_share(tartan_i_array_elements(p->op->active), p->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t rows = i / count[2];
        const int64_t window[TARTAN_I_MAX_DIMS] = {rows / count[1] % count[0], rows % count[1], i % count[2]};
        active[i] = is_active(p, rows / count[1] / count[0], window);
    }
}

tartan_status tartan_i_cpu_window_pool(const tartan_context *context, const tartan_op *any) {
    const tartan_op_window_pool *op = &any->window_pool;
    pool p = {.op = op,
              .mask = tartan_i_image_of(op->mask, false),
              .windows = tartan_i_windows_leading(op->windows),
              .workers = context->threads};
    p.positions = tartan_i_windows_positions(&p.windows);
    tartan_i_parallel(context, p.workers, p.positions * (double)tartan_i_array_elements(op->active),
                      pool_task, &p);
    return TARTAN_OK;
}
