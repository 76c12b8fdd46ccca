/* SPDX-License-Identifier: Apache-2.0 */
#include "conv_tables.h"

#include <cstring>

namespace {

/* ---- Channels of slots ---- */

/* of, first, slot, one after another. */
tartan_status make_channels(const tartan_host *host, const tartan_layout *, const void *user,
                            tartan_cuda_made *out) {
    const tartan_i_channels *c = (const tartan_i_channels *)user;
    out->size = c->slots + c->count + 1 + c->slots;
    PASS(host->allocate(&out->values, out->size, sizeof *out->values));
    int32_t *of = out->values, *first = of + c->slots, *slot = first + c->count + 1, at = 0;
    memcpy(of, c->of, (size_t)c->slots * sizeof *of);
    memset(first, 0, (size_t)(c->count + 1) * sizeof *first);
    for (int64_t i = 0; i < c->slots; i++)
        if (of[i] >= 0) first[of[i]]++;
    for (int64_t i = 0; i < c->count; i++) {
        const int32_t here = first[i];
        first[i] = at;
        at += here;
    }
    first[c->count] = at;
    for (int64_t i = 0; i < c->slots; i++)
        if (of[i] >= 0) slot[first[of[i]]++] = (int32_t)i;
    for (int64_t i = c->count; i > 0; i--) first[i] = first[i - 1]; /* they have moved on by one list */
    first[0] = 0;
    return TARTAN_OK;
}

/* ---- Windows ---- */

/* The number of each window, counted over all images. */
tartan_status make_windows(const tartan_host *host, const tartan_layout *layout, const void *,
                           tartan_cuda_made *out) {
    const int64_t lines = layout->shape.heads * layout->grid_rows;
    out->size = layout->blocks;
    PASS(host->allocate(&out->values, out->size, sizeof *out->values));
    for (int64_t line = 0; line < lines; line++)
        for (int64_t i = layout->row_pointers[line]; i < layout->row_pointers[line + 1]; i++)
            out->values[i] = (int32_t)(line * layout->grid_cols + layout->block_cols[i]);
    return TARTAN_OK;
}

/* ---- Tables that depend on more than the layout ---- */

/* What tells the tables of one kind apart. */
enum { FACTS = 40 };
struct facts {
    int64_t values[FACTS];
    int32_t count;
    void add(int64_t value) { values[count++] = value; }
};

void add_taps(const tartan_cuda_taps &taps, bool adjoint, facts *f) {
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        f->add(taps.kernel[d]);
        f->add(taps.stride[d]);
        f->add(taps.dilation[d]);
        f->add(taps.before[d]);
    }
    f->add(adjoint);
}

struct wanted {
    const tartan_layout *layout;
    const void *p, *form; /* a problem, and its form if it has one */
    facts known;
};

/* Finds the tables with the wanted facts; facts with equal hashes are in consecutive places. Tables may keep more behind
 * their facts. */
tartan_status find(const char *function, tartan_cuda_queue *queue, tartan_cuda_making *make, const wanted *w,
                   const int32_t **out_values, const int64_t **out_facts) {
    const size_t bytes = (size_t)w->known.count * sizeof w->known.values[0];
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i < w->known.count; i++) hash = (hash ^ (uint32_t)w->known.values[i]) * 16777619u;
    do {
        PASS(tartan_cuda_index_get_tables(function, queue, w->layout, (int32_t)(hash >> 1), make, w,
                                          out_values, out_facts));
        hash += 2;
    } while (memcmp(*out_facts, w->known.values, bytes) != 0);
    return TARTAN_OK;
}

tartan_status keep_facts(const tartan_host *host, const wanted *w, int32_t more, tartan_cuda_made *out) {
    PASS(host->allocate(&out->facts, w->known.count + more, sizeof *out->facts));
    memcpy(out->facts, w->known.values, (size_t)w->known.count * sizeof *out->facts);
    return TARTAN_OK;
}

/* The edges of a geometry, with a class for each position of the given lengths. */
struct edge_request {
    const tartan_i_edges *edges;
    const int64_t *size;
};

tartan_status make_edges(const tartan_host *host, const tartan_layout *, const void *user,
                         tartan_cuda_made *out) {
    const wanted *w = (const wanted *)user;
    const auto *r = (const edge_request *)w->p;
    const tartan_i_edges *e = r->edges;
    int64_t classes = 1;
    out->size = 0;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        classes *= e->lines[d];
        out->size += r->size[d];
    }
    out->size += classes;
    PASS(keep_facts(host, w, 0, out));
    const tartan_status status = host->allocate(&out->values, out->size, sizeof *out->values);
    if (status != TARTAN_OK) {
        host->free(out->facts);
        return status;
    }
    int32_t *to = out->values;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        memcpy(to, e->line[d], (size_t)r->size[d] * sizeof *to);
        to += r->size[d];
    }
    memcpy(to, e->classes_of, (size_t)classes * sizeof *to);
    return TARTAN_OK;
}

/* Behind the facts: lists, those with steps, spans, steps, stages, and where each table begins. */
tartan_status make_steps(const tartan_host *host, const tartan_layout *, const void *user,
                         tartan_cuda_made *out) {
    const wanted *w = (const wanted *)user;
    tartan_cuda_conv_steps made;
    PASS(keep_facts(host, w, 11, out));
    const tartan_status status = tartan_cuda_conv_steps_make(host, (const tartan_cuda_conv *)w->p,
                                                             (const tartan_cuda_conv_form *)w->form, &made);
    if (status != TARTAN_OK) {
        host->free(out->facts);
        return status;
    }
    out->values = made.values;
    out->size = made.size;
    const int64_t more[11] = {made.lists,      made.busy,     made.spans,     made.steps,
                              made.stages,     made.steps_of, made.stages_of, made.stage_table,
                              made.step_table, made.order,    made.sources};
    memcpy(out->facts + w->known.count, more, sizeof more);
    return TARTAN_OK;
}

/* Behind the facts: jobs, and where the tables of pieces and fragments begin. */
tartan_status make_jobs(const tartan_host *host, const tartan_layout *, const void *user,
                        tartan_cuda_made *out) {
    const wanted *w = (const wanted *)user;
    tartan_cuda_conv_jobs made;
    PASS(keep_facts(host, w, 3, out));
    const tartan_status status =
        tartan_cuda_conv_jobs_make(host, (const tartan_cuda_conv_filter_gradient *)w->p,
                                   (const tartan_cuda_conv_job_form *)w->form, &made);
    if (status != TARTAN_OK) {
        host->free(out->facts);
        return status;
    }
    out->values = made.values;
    out->size = made.size;
    int64_t *more = out->facts + w->known.count;
    more[0] = made.jobs, more[1] = made.piece_table, more[2] = made.fragment_table;
    return TARTAN_OK;
}

/* Behind the facts: the form, pieces, and where the other tables begin. */
tartan_status make_pieces(const tartan_host *host, const tartan_layout *, const void *user,
                          tartan_cuda_made *out) {
    const wanted *w = (const wanted *)user;
    tartan_cuda_conv_piece_lists made;
    PASS(keep_facts(host, w, 15, out));
    const tartan_status status =
        tartan_cuda_conv_pieces_make(host, (const tartan_cuda_conv_lines *)w->p, &made);
    if (status != TARTAN_OK) {
        host->free(out->facts);
        return status;
    }
    out->values = made.values;
    out->size = made.size;
    const tartan_cuda_conv_piece_form &f = made.form;
    const int64_t more[15] = {f.piece,   f.step,      f.group,         f.lines,          f.width,
                              f.chunks,  f.groups,    f.phases,        f.each,           f.empty,
                              f.longest, made.pieces, made.list_table, made.block_table, made.entry_table};
    memcpy(out->facts + w->known.count, more, sizeof more);
    return TARTAN_OK;
}

/* Behind the fact, the number of items, where the other tables begin. */
tartan_status make_sets(const tartan_host *host, const tartan_layout *, const void *user,
                        tartan_cuda_made *out) {
    tartan_cuda_conv_sets made;
    PASS(host->allocate(&out->facts, 4, sizeof *out->facts));
    const tartan_status status =
        tartan_cuda_conv_sets_make(host, (const tartan_cuda_conv_normalize *)user, &made);
    if (status != TARTAN_OK) {
        host->free(out->facts);
        return status;
    }
    out->values = made.values;
    out->size = made.size;
    out->facts[0] = made.items, out->facts[1] = made.part_table;
    out->facts[2] = made.first, out->facts[3] = made.of_channel;
    return TARTAN_OK;
}

} // namespace

tartan_status tartan_cuda_channel_lists_get(const char *function, tartan_cuda_queue *queue,
                                            const tartan_layout *layout, bool rows,
                                            const tartan_cuda_slots *side, tartan_cuda_channel_lists *out) {
    const tartan_i_channels *c = side->channels;
    *out = {};
    if (c->of == nullptr) return TARTAN_OK;
    const int32_t *values;
    PASS(tartan_cuda_index_get_tables(function, queue, layout, rows, make_channels, c, &values, nullptr));
    *out = {values, values + c->slots, values + c->slots + c->count + 1};
    return TARTAN_OK;
}

tartan_status tartan_cuda_window_numbers_get(const char *function, tartan_cuda_queue *queue,
                                             const tartan_layout *layout, const int32_t **out) {
    return tartan_cuda_index_get_tables(function, queue, layout, 0, make_windows, nullptr, out, nullptr);
}

tartan_status tartan_cuda_edge_lists_of(const char *function, tartan_cuda_queue *queue,
                                        const tartan_layout *layout, const tartan_i_geometry *geometry,
                                        bool transposed, const tartan_i_edges *edges,
                                        tartan_cuda_edge_lists *out) {
    const edge_request request = {edges, transposed ? geometry->in : geometry->out};
    wanted w = {layout, &request, nullptr, {}};
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t all[] = {geometry->kernel[d], geometry->stride[d], geometry->dilation[d],
                               geometry->before[d], geometry->in[d],     geometry->out[d]};
        for (int64_t one : all) w.known.add(one);
    }
    w.known.add(transposed);
    const int32_t *values;
    const int64_t *known;
    *out = {};
    PASS(find(function, queue, make_edges, &w, &values, &known));
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        out->line[d] = values;
        out->lines[d] = (int32_t)edges->lines[d];
        values += request.size[d];
    }
    out->class_of = values;
    return TARTAN_OK;
}

tartan_status tartan_cuda_edge_lists_get(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_conv *p, tartan_cuda_edge_lists *out) {
    *out = {};
    if (p->edges == nullptr) return TARTAN_OK;
    return tartan_cuda_edge_lists_of(function, queue, p->layout, p->geometry, p->adjoint, p->edges, out);
}

tartan_status tartan_cuda_conv_lists_get(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_conv *p, const tartan_cuda_conv_form *f,
                                         tartan_cuda_conv_lists *out) {
    wanted w = {p->layout, p, f, {}};
    add_taps(p->taps, p->adjoint, &w.known);
    const int64_t more[] = {f->element,
                            f->parts,
                            f->units,
                            f->unit_bytes,
                            f->span,
                            f->split,
                            f->stages,
                            f->pitch,
                            f->in_place,
                            f->splits,
                            p->from_slots.stride,
                            p->to_slots.stride,
                            p->from.channels,
                            p->to.channels};
    for (int64_t one : more) w.known.add(one);
    const int32_t *values;
    const int64_t *known;
    PASS(find(function, queue, make_steps, &w, &values, &known));
    known += w.known.count;
    const auto table = [&](int i) { return values + known[i]; };
    *out = {(int32_t)known[0], (int32_t)known[1], (int32_t)known[2], known[3], known[4], table(5),
            table(6),          table(7),          table(8),          table(9), table(10)};
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_jobs_get(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_conv_filter_gradient *p,
                                        const tartan_cuda_conv_job_form *f,
                                        tartan_cuda_conv_job_tables *out) {
    wanted w = {p->layout, p, f, {}};
    add_taps(p->taps, false, &w.known);
    const int64_t more[] = {f->per_tap,     f->pitch,       f->x_bytes,     f->x_pieces,
                            p->rows.stride, p->cols.stride, p->in.channels, p->out.channels};
    for (int64_t one : more) w.known.add(one);
    const int32_t *values;
    const int64_t *known;
    PASS(find(function, queue, make_jobs, &w, &values, &known));
    known += w.known.count;
    *out = {known[0], values, values + known[1], values + known[2]};
    return TARTAN_OK;
}

tartan_status tartan_cuda_conv_pieces_get(const char *function, tartan_cuda_queue *queue,
                                          const tartan_cuda_conv_lines *lines,
                                          tartan_cuda_conv_piece_tables *out) {
    wanted w = {lines->layout, lines, nullptr, {}};
    add_taps(*lines->taps, lines->adjoint, &w.known);
    const int64_t more[] = {lines->piece,    lines->step,
                            lines->together, lines->costs != nullptr ? lines->costs->kind : -lines->group,
                            lines->packed,   lines->tiles};
    for (int64_t one : more) w.known.add(one);
    const int32_t *values;
    const int64_t *known;
    PASS(find(function, queue, make_pieces, &w, &values, &known));
    known += w.known.count;
    const auto fact = [&](int i) { return (int32_t)known[i]; };
    *out = {
        {fact(0), fact(1), fact(2), fact(3), fact(4), fact(5), fact(6), fact(7), fact(8), fact(9), fact(10)},
        known[11],
        values,
        values + known[12]};
    if (lines->packed) {
        out->steps = values + known[13];
        out->entries = (const tartan_cuda_conv_piece_entry *)(values + known[14]);
    } else {
        out->of_block = values + known[13];
    }
    return TARTAN_OK;
}

/* A layout of filters belongs to one convolution, unless taps have blocks of their own, which are not normalised. */
tartan_status tartan_cuda_conv_sets_get(const char *function, tartan_cuda_queue *queue,
                                        const tartan_cuda_conv_normalize *p,
                                        tartan_cuda_conv_set_tables *out) {
    const int32_t *values;
    const int64_t *facts;
    PASS(tartan_cuda_index_get_tables(function, queue, p->layout, 0, make_sets, p, &values, &facts));
    *out = {facts[0], values, values + facts[1], values + facts[2], values + facts[3]};
    return TARTAN_OK;
}
