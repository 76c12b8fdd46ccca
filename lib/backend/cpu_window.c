/* SPDX-License-Identifier: Apache-2.0
 * Gathering and scattering the active windows of images, on the CPU. Work is divided into lines of windows: their positions
 * along the last dimension, with all channels. */
#include "backend/cpu.h"
#include "conv/image.h"
#include "core/workspace.h"

#include <string.h>

typedef struct move {
    const tartan_layout *active; /* of the last mask, if it is dynamic */
    tartan_i_windows windows;
    tartan_i_image image, blocks; /* blocks.data is NULL: zeros */
    tartan_i_image base;
    tartan_i_tile_copy copy;
    int32_t workers;
    int64_t first, count; /* windows */
    bool outside, relu;   /* as the operations have it */
    int64_t *ids;         /* where windows overlap: [heads, grid], -1 for inactive ones */
} move;

static move move_of(const tartan_context *context, const tartan_layout *active,
                    const tartan_i_windows *windows, int64_t first, const tartan_array *image,
                    const tartan_array *blocks) {
    move m = {.active = tartan_i_cpu_layout_now(active),
              .windows = tartan_i_windows_leading(windows),
              .image = tartan_i_image_of(image, true),
              .copy = tartan_i_tile_copier(image->dtype, image->dtype),
              .workers = context->threads};
    if (blocks != NULL) m.blocks = tartan_i_image_of(blocks, true);
    m.count = m.active->blocks - first; /* of a dynamic layout fewer than there are blocks */
    if (blocks != NULL && m.blocks.count < m.count) m.count = m.blocks.count;
    m.first = first;
    return m;
}

/* ---- Lines ---- */

/* A line of a window: its number, and where it is in the image. */
typedef struct line {
    int64_t block, row[2]; /* rows of the first two dimensions, inside the window */
    bool inside;           /* some of it is in the image: */
    int64_t begin, end;    /* positions of the window */
    int64_t at;            /* offset of `begin` in the image, in elements */
} line;

static line line_of(const move *m, int64_t number) {
    const tartan_i_windows *w = &m->windows;
    const int64_t rows = w->size[0] * w->size[1], block = number / rows, id = m->first + block;
    const int64_t grid_row = m->active->block_rows[id];
    const int64_t window[TARTAN_I_MAX_DIMS] = {grid_row / w->count[1], grid_row % w->count[1],
                                               m->active->block_cols[id]};
    line l = {.block = block, .row = {number % rows / w->size[1], number % w->size[1]}};
    const int64_t first = tartan_i_window_inside(w, 2, window[2], m->image.size[2], &l.begin, &l.end);
    l.at = tartan_i_layout_head(m->active, id) * m->image.item + (first + l.begin) * m->image.step[2];
    l.inside = l.end > l.begin;
    for (int32_t d = 0; d < 2; d++) {
        const int64_t at = w->offset[d] + window[d] * w->stride[d] + l.row[d];
        l.inside = l.inside && at >= 0 && at < m->image.size[d];
        l.at += at * m->image.step[d];
    }
    return l;
}

/* The part of a block from position `begin` of a line on. */
static char *in_block(const move *m, const line *l, int64_t begin) {
    const tartan_i_image *b = &m->blocks;
    return b->data +
           (l->block * b->item + l->row[0] * b->step[0] + l->row[1] * b->step[1] + begin * b->step[2]) *
               b->bytes;
}

/* Copies positions with their channels; all at once where neither side has gaps. */
static void copy_line(tartan_i_tile_copy copy, char *to, int64_t to_step, int64_t to_channel,
                      const char *from, int64_t from_step, int64_t from_channel, int64_t positions,
                      int64_t channels) {
    if (to_channel == 1 && from_channel == 1 && to_step == channels && from_step == channels)
        copy(to, 0, 1, from, 0, 1, 1, positions * channels);
    else
        copy(to, to_step, to_channel, from, from_step, from_channel, positions, channels);
}

static const uint64_t zero;

static void clear_line(const move *m, const tartan_i_image *image, char *to, int64_t positions) {
    if (positions <= 0) return;
    copy_line(m->copy, to, image->step[2], image->channel, (const char *)&zero, 0, 0, positions,
              image->channels);
}

static void gather_task(void *data, int32_t worker) {
    const move *m = data;
    const tartan_i_windows *w = &m->windows;
    int64_t begin, end;
    tartan_i_share(m->count * w->size[0] * w->size[1], m->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        line l = line_of(m, i);
        if (!l.inside) l.begin = l.end = 0;
        clear_line(m, &m->blocks, in_block(m, &l, 0), l.begin);
        if (l.inside && !m->outside)
            copy_line(m->copy, in_block(m, &l, l.begin), m->blocks.step[2], m->blocks.channel,
                      m->image.data + l.at * m->image.bytes, m->image.step[2], m->image.channel,
                      l.end - l.begin, m->image.channels);
        clear_line(m, &m->blocks, in_block(m, &l, l.end), w->size[2] - l.end);
    }
}

/* ---- Sums ---- */

#define AS_IS(x)     (x)
#define TO_F16(x)    tartan_i_f16_of_f32(x)
#define FROM_F16(x)  tartan_i_f32_of_f16(x)
#define TO_BF16(x)   tartan_i_bf16_of_f32(x)
#define FROM_BF16(x) tartan_i_f32_of_bf16(x)

/* add: rows x cols elements, y += x, then max(y, 0) with relu. sum: y += the n elements of x, one for each channel, added to `sums` first. */
#define DEFINE_SUMS(name, type, sum_type, FROM, TO)                                                          \
    static void add_##name(char *to, int64_t tr, int64_t tc, const char *from, int64_t fr, int64_t fc,       \
                           int64_t rows, int64_t cols, bool relu) {                                          \
        for (int64_t r = 0; r < rows; r++) {                                                                 \
            type *restrict y = (type *)(void *)to + r * tr;                                                  \
            const type *restrict x = (const type *)(const void *)from + r * fr;                              \
            if (tc == 1 && fc == 1)                                                                          \
                for (int64_t c = 0; c < cols; c++) {                                                         \
                    const sum_type sum = FROM(y[c]) + FROM(x[c]);                                            \
                    y[c] = TO(relu && sum <= 0 ? 0 : sum);                                                   \
                }                                                                                            \
            else                                                                                             \
                for (int64_t c = 0; c < cols; c++) {                                                         \
                    const sum_type sum = FROM(y[c * tc]) + FROM(x[c * fc]);                                  \
                    y[c * tc] = TO(relu && sum <= 0 ? 0 : sum);                                              \
                }                                                                                            \
        }                                                                                                    \
    }                                                                                                        \
    static void start_##name(int64_t n, void *sums, const char *from, int64_t step) {                        \
        sum_type *s = sums;                                                                                  \
        const type *x = (const type *)(const void *)from;                                                    \
        for (int64_t c = 0; c < n; c++) s[c] = FROM(x[c * step]);                                            \
    }                                                                                                        \
    static void sum_##name(int64_t n, void *sums, const char *from, int64_t step) {                          \
        sum_type *s = sums;                                                                                  \
        const type *x = (const type *)(const void *)from;                                                    \
        for (int64_t c = 0; c < n; c++) s[c] += FROM(x[c * step]);                                           \
    }                                                                                                        \
    static void end_##name(int64_t n, const void *sums, char *to, int64_t step) {                            \
        const sum_type *s = sums;                                                                            \
        type *y = (type *)(void *)to;                                                                        \
        for (int64_t c = 0; c < n; c++) y[c * step] = TO(s[c]);                                              \
    }
DEFINE_SUMS(f64, double, double, AS_IS, AS_IS)
DEFINE_SUMS(f32, float, float, AS_IS, AS_IS)
DEFINE_SUMS(f16, tartan_i_half, float, FROM_F16, TO_F16)
DEFINE_SUMS(bf16, tartan_i_bfloat, float, FROM_BF16, TO_BF16)

typedef struct sums {
    void (*add)(char *to, int64_t tr, int64_t tc, const char *from, int64_t fr, int64_t fc, int64_t rows,
                int64_t cols, bool relu);
    void (*start)(int64_t n, void *sums, const char *from, int64_t step);
    void (*sum)(int64_t n, void *sums, const char *from, int64_t step);
    void (*end)(int64_t n, const void *sums, char *to, int64_t step);
} sums;
static const sums sums_of[] = {[TARTAN_F64] = {add_f64, start_f64, sum_f64, end_f64},
                               [TARTAN_F32] = {add_f32, start_f32, sum_f32, end_f32},
                               [TARTAN_F16] = {add_f16, start_f16, sum_f16, end_f16},
                               [TARTAN_BF16] = {add_bf16, start_bf16, sum_bf16, end_bf16}};

/* ---- Windows that do not overlap ---- */

static void scatter_line(const move *m, int64_t number, bool add) {
    const line l = line_of(m, number);
    char *to = m->image.data + l.at * m->image.bytes;
    if (!l.inside) return;
    if (m->blocks.data == NULL)
        clear_line(m, &m->image, to, l.end - l.begin);
    else if (add)
        sums_of[m->image.dtype].add(to, m->image.step[2], m->image.channel, in_block(m, &l, l.begin),
                                    m->blocks.step[2], m->blocks.channel, l.end - l.begin, m->image.channels,
                                    m->relu);
    else
        copy_line(m->copy, to, m->image.step[2], m->image.channel, in_block(m, &l, l.begin),
                  m->blocks.step[2], m->blocks.channel, l.end - l.begin, m->image.channels);
}

static void set_task(void *data, int32_t worker) {
    const move *m = data;
    int64_t begin, end;
    tartan_i_share(m->count * m->windows.size[0] * m->windows.size[1], m->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) scatter_line(m, i, false);
}

static void add_task(void *data, int32_t worker) {
    const move *m = data;
    int64_t begin, end;
    tartan_i_share(m->count * m->windows.size[0] * m->windows.size[1], m->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) scatter_line(m, i, true);
}

/* ---- Windows that overlap: position by position of the image ---- */

enum { SUMS = 256 };

/* The windows that cover a position, in the order of ids. */
typedef struct covering {
    int64_t first[TARTAN_I_MAX_DIMS], end[TARTAN_I_MAX_DIMS]; /* windows of each dimension */
    int64_t at[TARTAN_I_MAX_DIMS];                            /* the position */
} covering;

/* Adds channels c, c + 1, ... c + n - 1 of all active windows to those at `to`. */
static void sum_position(const move *m, const covering *v, const int64_t *ids, char *to, int64_t n,
                         int64_t c) {
    const tartan_i_windows *w = &m->windows;
    const tartan_i_image *b = &m->blocks;
    const sums *s = &sums_of[m->image.dtype];
    double room[SUMS];
    bool any = false;
    for (int64_t i = v->first[0]; i < v->end[0]; i++)
        for (int64_t j = v->first[1]; j < v->end[1]; j++)
            for (int64_t k = v->first[2]; k < v->end[2]; k++) {
                const int64_t window[] = {i, j, k}, id = ids[(i * w->count[1] + j) * w->count[2] + k];
                if (id < 0) continue;
                int64_t from = id * b->item + c * b->channel;
                for (int32_t d = 0; d < TARTAN_I_MAX_DIMS; d++)
                    from += (v->at[d] - w->offset[d] - window[d] * w->stride[d]) * b->step[d];
                if (!any) s->start(n, room, to, m->image.channel);
                any = true;
                s->sum(n, room, b->data + from * b->bytes, b->channel);
            }
    if (any) s->end(n, room, to, m->image.channel);
}

static void sum_task(void *data, int32_t worker) {
    const move *m = data;
    const tartan_i_windows *w = &m->windows;
    const tartan_i_image *y = &m->image;
    const int64_t grid = w->count[0] * w->count[1] * w->count[2];
    int64_t begin, end;
    tartan_i_share(y->count * y->size[0] * y->size[1], m->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / y->size[1] / y->size[0];
        covering v = {.at = {i / y->size[1] % y->size[0], i % y->size[1]}};
        for (int32_t d = 0; d < 2; d++) tartan_i_windows_covering(w, d, v.at[d], &v.first[d], &v.end[d]);
        if (v.first[0] == v.end[0] || v.first[1] == v.end[1]) continue;
        for (v.at[2] = 0; v.at[2] < y->size[2]; v.at[2]++) {
            tartan_i_windows_covering(w, 2, v.at[2], &v.first[2], &v.end[2]);
            char *to = y->data + (image * y->item + v.at[0] * y->step[0] + v.at[1] * y->step[1] +
                                  v.at[2] * y->step[2]) *
                                     y->bytes;
            for (int64_t c = 0; c < y->channels; c += SUMS)
                sum_position(m, &v, m->ids + image * grid, to + c * y->channel * y->bytes,
                             y->channels - c < SUMS ? y->channels - c : SUMS, c);
        }
    }
}

/* The id of each window, -1 for inactive ones. */
static void set_ids(const move *m) {
    const tartan_layout *l = m->active;
    const int64_t lines = l->shape.heads * l->grid_rows;
    for (int64_t i = 0; i < lines * l->grid_cols; i++) m->ids[i] = -1;
    for (int64_t row = 0; row < lines; row++)
        for (int64_t id = l->row_pointers[row]; id < l->row_pointers[row + 1]; id++)
            m->ids[row * l->grid_cols + l->block_cols[id]] = id;
}

/* ---- The image to begin with ---- */

static void base_task(void *data, int32_t worker) {
    const move *m = data;
    const tartan_i_image *y = &m->image, *x = &m->base;
    int64_t begin, end;
    tartan_i_share(y->count * y->size[0] * y->size[1], m->workers, worker, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / y->size[1] / y->size[0], j = i / y->size[1] % y->size[0],
                      k = i % y->size[1];
        copy_line(m->copy, y->data + (image * y->item + j * y->step[0] + k * y->step[1]) * y->bytes,
                  y->step[2], y->channel,
                  x->data + (image * x->item + j * x->step[0] + k * x->step[1]) * x->bytes, x->step[2],
                  x->channel, y->size[2], y->channels);
    }
}

/* ---- The operations ---- */

/* About as many operations as copying an element takes. */
enum { WORK = 4 };

static double elements_of(const move *m) {
    return WORK * (double)m->count * tartan_i_windows_positions(&m->windows) * (double)m->image.channels;
}

tartan_status tartan_i_cpu_window_gather(const tartan_context *context, const tartan_op *any) {
    const tartan_op_window_gather *op = &any->window_gather;
    move m = move_of(context, op->active, &op->windows, op->first, op->x, op->blocks);
    m.outside = op->outside;
    if (m.image.channels == 0) return TARTAN_OK;
    tartan_i_parallel(context, m.workers, elements_of(&m), gather_task, &m);
    return TARTAN_OK;
}

/* A scatter to the image, which has its base already. */
static move scatter_of(const tartan_context *context, const tartan_op_window_scatter *op) {
    move m = move_of(context, op->active, &op->windows, op->first, op->y, op->blocks);
    m.relu = op->relu;
    if (op->base == NULL) return m;
    m.base = tartan_i_image_of(op->base, true);
    tartan_i_parallel(context, m.workers, WORK * (double)tartan_i_array_elements(op->y), base_task, &m);
    return m;
}

const char *tartan_i_cpu_window_scatter_overlap_refuses(const tartan_context *context, const tartan_op *any) {
    (void)context;
    const tartan_op_window_scatter *op = &any->window_scatter;
    if (!op->add) return "values are not added";
    return tartan_i_windows_overlap(&op->windows) ? NULL : "windows do not overlap";
}

tartan_status tartan_i_cpu_window_scatter_overlap(const tartan_context *context, const tartan_op *any) {
    const tartan_op_window_scatter *op = &any->window_scatter;
    int64_t *ids;
    if (tartan_i_array_is_empty(op->y)) return TARTAN_OK;
    const tartan_layout *l = tartan_i_cpu_layout_now(op->active);
    PASS(tartan_i_workspace_get(context, TARTAN_I_ROOM_LISTS, &ids,
                                l->shape.heads * l->grid_rows * l->grid_cols, sizeof *ids));
    move m = scatter_of(context, op);
    m.ids = ids;
    set_ids(&m);
    tartan_i_parallel(context, m.workers, elements_of(&m) + (double)tartan_i_array_elements(op->y), sum_task,
                      &m);
    tartan_i_workspace_end(context);
    return TARTAN_OK;
}

tartan_status tartan_i_cpu_window_scatter(const tartan_context *context, const tartan_op *any) {
    const tartan_op_window_scatter *op = &any->window_scatter;
    if (tartan_i_array_is_empty(op->y)) return TARTAN_OK;
    move m = scatter_of(context, op);
    tartan_i_parallel(context, m.workers, elements_of(&m), op->add ? add_task : set_task, &m);
    return TARTAN_OK;
}
