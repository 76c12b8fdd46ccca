/* SPDX-License-Identifier: Apache-2.0
 * Tables of convolutions on a device, made on first use and kept in the layout of the filter as plans. */
#ifndef TARTAN_CUDA_CONV_TABLES_H
#define TARTAN_CUDA_CONV_TABLES_H

#include "conv_jobs.h"
#include "conv_pieces.h"
#include "conv_sets.h"
#include "conv_steps.h"
#include "index_cache.h"

/* Which channels the slots of a side have; all NULL: slot i has channel i, if there is one. */
typedef struct tartan_cuda_channel_lists {
    const int32_t *of;           /* [slots]: its channel, or -1 */
    const int32_t *first, *slot; /* channel c has the slots slot[first[c]], ..., slot[first[c + 1] - 1] */
} tartan_cuda_channel_lists;

/* The edge class of position (d, h, w) is class_of[(line[0][d] * lines[1] + line[1][h]) * lines[2] + line[2][w]]. */
typedef struct tartan_cuda_edge_lists {
    const int32_t *line[TARTAN_I_DIMS];
    const int32_t *class_of; /* NULL: there is one class */
    int32_t lines[TARTAN_I_DIMS];
} tartan_cuda_edge_lists;

/* Errors: as tartan_cuda_index_get_tables. */
tartan_status tartan_cuda_channel_lists_get(const char *function, tartan_cuda_queue *queue,
                                            const tartan_layout *layout, bool rows,
                                            const tartan_cuda_slots *side, tartan_cuda_channel_lists *out);
/* The number of each active window, counted over all images, of a layout that is not dynamic and has windows. */
tartan_status tartan_cuda_window_numbers_get(const char *function, tartan_cuda_queue *queue,
                                             const tartan_layout *layout, const int32_t **out);
/* `layout`: of the filters of the convolution with these edges. */
tartan_status tartan_cuda_edge_lists_of(const char *function, tartan_cuda_queue *queue,
                                        const tartan_layout *layout, const tartan_i_geometry *geometry,
                                        bool transposed, const tartan_i_edges *edges,
                                        tartan_cuda_edge_lists *out);
tartan_status tartan_cuda_edge_lists_get(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_conv *p, tartan_cuda_edge_lists *out);

/* The tables of conv_steps.h in device memory. */
typedef struct tartan_cuda_conv_lists {
    int32_t count, busy, spans;
    int64_t steps, stages;
    const int32_t *steps_of, *stages_of, *stage_table, *step_table, *order, *sources;
} tartan_cuda_conv_lists;
tartan_status tartan_cuda_conv_lists_get(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_conv *p, const tartan_cuda_conv_form *form,
                                         tartan_cuda_conv_lists *out);

/* The tables of conv_jobs.h in device memory. */
typedef struct tartan_cuda_conv_job_tables {
    int64_t count; /* jobs */
    const int32_t *jobs, *pieces, *fragments;
} tartan_cuda_conv_job_tables;
tartan_status tartan_cuda_conv_jobs_get(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_conv_filter_gradient *p,
                                        const tartan_cuda_conv_job_form *form,
                                        tartan_cuda_conv_job_tables *out);

/* The tables of conv_pieces.h in device memory. */
typedef struct tartan_cuda_conv_piece_tables {
    tartan_cuda_conv_piece_form form;
    int64_t count; /* pieces */
    const int32_t *pieces, *lists;
    const int32_t *of_block, *steps; /* NULL: not wanted */
    const tartan_cuda_conv_piece_entry *entries;
} tartan_cuda_conv_piece_tables;
tartan_status tartan_cuda_conv_pieces_get(const char *function, tartan_cuda_queue *queue,
                                          const tartan_cuda_conv_lines *lines,
                                          tartan_cuda_conv_piece_tables *out);

/* The tables of conv_sets.h in device memory. */
typedef struct tartan_cuda_conv_set_tables {
    int64_t items;
    const int32_t *table, *parts, *first, *of_channel;
} tartan_cuda_conv_set_tables;
tartan_status tartan_cuda_conv_sets_get(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_conv_normalize *p,
                                        tartan_cuda_conv_set_tables *out);

#endif
