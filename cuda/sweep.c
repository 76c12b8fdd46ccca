/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep.h"

#include "dtype.h"

/* ---- Division ---- */

/* With 2^(s-1) < d <= 2^s, factor = floor(2^(31+s) / d) + 1 exceeds 2^(31+s) / d by at most 1. So n factor / 2^(31+s) exceeds n / d
 * by at most n / 2^(31+s) < 2^-s <= 1 / d, which never reaches the next whole number. */
tartan_cuda_divider tartan_cuda_divider_of(int64_t divisor) {
    if (divisor <= 1) return (tartan_cuda_divider){0, 0};
    uint32_t s = 1;
    while (((int64_t)1 << s) < divisor) s++;
    const uint64_t power = (uint64_t)1 << (31 + s);
    return (tartan_cuda_divider){(uint32_t)(power / (uint64_t)divisor + 1), s - 1};
}

/* ---- Dimensions ---- */

/* One dimension of all arrays, while they are ordered. */
typedef struct dimension {
    bool summed;
    int64_t length, step[TARTAN_CUDA_SWEPT];
} dimension;

static int64_t step_along(const tartan_array *a, int32_t ndim, int32_t d) {
    const int32_t of = d - (ndim - a->ndim);
    return of < 0 || a->shape[of] == 1 ? 0 : a->strides[of];
}

/* Array i in the order that decides. */
static int32_t nth(const tartan_cuda_sweeping *of, int32_t i) {
    return (of->first + i) % of->count;
}

/* Turns a dimension round if the first array that steps along it does so backwards. */
static void turn(const tartan_cuda_sweeping *of, dimension *d, tartan_cuda_sweep *s) {
    int64_t leading = 0;
    for (int32_t i = 0; i < of->count && leading == 0; i++) leading = d->step[nth(of, i)];
    if (leading >= 0) return;
    for (int32_t i = 0; i < of->count; i++) {
        tartan_cuda_swept *a = &s->array[i];
        if (a->data == NULL) continue;
        a->data = (char *)a->data + (d->length - 1) * d->step[i] * tartan_cuda_bytes_of(a->dtype);
        d->step[i] = -d->step[i];
    }
}

static int64_t size_of(int64_t step) {
    return step < 0 ? -step : step;
}

/* Whether dimension a changes faster than b. */
static bool is_faster(const tartan_cuda_sweeping *of, const dimension *a, const dimension *b) {
    for (int32_t i = 0; i < of->count; i++) {
        const int64_t x = size_of(a->step[nth(of, i)]), y = size_of(b->step[nth(of, i)]);
        if (x != y && x != 0 && y != 0) return x < y;
    }
    return false;
}

static void sort(const tartan_cuda_sweeping *of, dimension *all, int32_t count) {
    for (int32_t i = 1; i < count; i++)
        for (int32_t j = i; j > 0 && is_faster(of, &all[j], &all[j - 1]); j--) {
            const dimension moved = all[j];
            all[j] = all[j - 1];
            all[j - 1] = moved;
        }
}

/* Whether `outer` continues `inner` in every array. */
static bool continues(const dimension *outer, const dimension *inner, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (outer->step[i] != inner->step[i] * inner->length) return false;
    return true;
}

/* The dimensions of one kind, merged. */
static void take(const dimension *all, int32_t count, bool summed, tartan_cuda_sweep *s) {
    tartan_cuda_axes *axes = &s->axes[summed ? TARTAN_CUDA_SUMMED : TARTAN_CUDA_KEPT];
    const dimension *last = NULL;
    dimension merged = {0};
    *axes = (tartan_cuda_axes){.elements = 1};
    for (int32_t d = 0; d < count; d++) {
        if (all[d].summed != summed) continue;
        axes->elements *= all[d].length;
        if (last != NULL && continues(&all[d], &merged, s->count)) {
            axes->length[axes->ndim - 1] = merged.length *= all[d].length;
            continue;
        }
        last = &all[d];
        merged = all[d];
        axes->length[axes->ndim] = all[d].length;
        for (int32_t i = 0; i < s->count; i++)
            s->array[i].step[summed ? TARTAN_CUDA_SUMMED : TARTAN_CUDA_KEPT][axes->ndim] = all[d].step[i];
        axes->ndim++;
    }
}

static void set_dividers(tartan_cuda_axes *axes) {
    axes->small = axes->elements <= INT32_MAX;
    for (int32_t d = 0; d < axes->ndim && axes->small; d++)
        axes->by[d] = tartan_cuda_divider_of(axes->length[d]);
}

tartan_cuda_sweep tartan_cuda_sweep_of(const tartan_cuda_sweeping *of) {
    tartan_cuda_sweep s = {.count = of->count, .unit = 1};
    dimension all[TARTAN_MAX_NDIM];
    int32_t count = 0;
    bool empty = false;
    for (int32_t i = 0; i < TARTAN_CUDA_SWEPT; i++)
        if (of->array[i] != NULL)
            s.array[i] = (tartan_cuda_swept){.data = of->array[i]->data, .dtype = of->array[i]->dtype};
    for (int32_t d = of->ndim - 1; d >= 0; d--) {
        if (of->shape[d] == 1) continue;
        dimension *one = &all[count++];
        *one = (dimension){.summed = (of->summed >> d & 1) != 0, .length = of->shape[d]};
        empty = empty || one->length == 0;
        for (int32_t i = 0; i < TARTAN_CUDA_SWEPT; i++)
            if (of->array[i] != NULL) one->step[i] = step_along(of->array[i], of->ndim, d);
    }
    for (int32_t d = 0; d < count && !empty && !of->keep_direction; d++) turn(of, &all[d], &s);
    sort(of, all, count);
    take(all, count, false, &s);
    take(all, count, true, &s);
    s.inner = count > 0 && all[0].summed ? TARTAN_CUDA_SUMMED : TARTAN_CUDA_KEPT;
    set_dividers(&s.axes[TARTAN_CUDA_KEPT]);
    set_dividers(&s.axes[TARTAN_CUDA_SUMMED]);
    return s;
}

/* ---- Units ---- */

/* Whether units of `unit` elements of array a can be moved in accesses of up to 16 bytes. */
static bool fits(const tartan_cuda_sweep *s, const tartan_cuda_swept *a, int64_t unit) {
    const int64_t bytes = unit * tartan_cuda_bytes_of(a->dtype);
    if (a->step[s->inner][0] != 1) return false;
    if ((uintptr_t)a->data % (uintptr_t)(bytes < 16 ? bytes : 16) != 0) return false;
    for (int32_t which = 0; which < 2; which++)
        for (int32_t d = 0; d < s->axes[which].ndim; d++)
            if ((which != s->inner || d > 0) && a->step[which][d] % unit != 0) return false;
    return true;
}

/* Whether, of several dimensions, it has elements along the first alone. */
static bool is_line(const tartan_cuda_sweep *s, const tartan_cuda_swept *a) {
    for (int32_t which = 0; which < 2; which++)
        for (int32_t d = 0; d < s->axes[which].ndim; d++)
            if ((which != s->inner || d > 0) && a->step[which][d] != 0) return false;
    return s->axes[TARTAN_CUDA_KEPT].ndim + s->axes[TARTAN_CUDA_SUMMED].ndim > 1;
}

/* Whether units can be moved; inputs that can't otherwise are gathered. */
static bool all_move(tartan_cuda_sweep *s, int32_t outputs, int64_t unit, bool gathers) {
    bool good = s->axes[s->inner].length[0] >= unit, any = false;
    for (int32_t i = 0; i < s->count && good; i++) {
        tartan_cuda_swept *a = &s->array[i];
        a->gathered = false;
        if (a->data == NULL || (a->step[s->inner][0] == 0 && i < outputs)) continue;
        const bool fit = fits(s, a, unit);
        any = any || fit;
        a->gathered = !fit && gathers && i < outputs;
        good = fit || a->gathered;
    }
    good = good && (any || !gathers);
    for (int32_t i = 0; i < s->count && !good; i++) s->array[i].gathered = false;
    return good;
}

static void set_unit(tartan_cuda_sweep *s, int64_t unit) {
    tartan_cuda_axes *axes = &s->axes[s->inner];
    s->unit = (int32_t)unit;
    s->rest = axes->length[0] % unit;
    axes->length[0] /= unit;
    axes->elements /= unit;
    for (int32_t i = 0; i < s->count; i++) {
        s->array[i].next = s->array[i].step[s->inner][0];
        s->array[i].step[s->inner][0] *= unit;
    }
    set_dividers(axes);
}

void tartan_cuda_sweep_choose_unit(tartan_cuda_sweep *s, int32_t outputs, enum tartan_cuda_unit_rule rule) {
    tartan_cuda_axes *axes = &s->axes[s->inner];
    const bool flat = s->axes[TARTAN_CUDA_KEPT].ndim == 1 && s->axes[TARTAN_CUDA_SUMMED].ndim == 0;
    int32_t most = 2;
    if (axes->ndim == 0 || axes->elements == 0) return;
    for (int32_t i = 0; i < s->count; i++) {
        const tartan_cuda_swept *a = &s->array[i];
        if (a->data == NULL || a->step[s->inner][0] == 0) continue;
        const int32_t bytes = tartan_cuda_bytes_of(a->dtype);
        if (rule != TARTAN_CUDA_UNITS_ALIKE && i < outputs && bytes < 8 && is_line(s, a)) continue;
        most = bytes > most ? bytes : most;
    }
    const int64_t half = most == 8 ? 2 : 4; /* 16 bytes of sums */
    for (int gathered = 0; gathered <= (rule == TARTAN_CUDA_UNITS_GATHER ? 1 : 0); gathered++)
        for (int64_t unit = most == 2 ? 8 : half; unit >= half; unit /= 2)
            if ((flat || axes->length[0] % unit == 0) && all_move(s, outputs, unit, gathered == 1)) {
                set_unit(s, unit);
                return;
            }
}

bool tartan_cuda_sweep_join_lines(tartan_cuda_sweep *s) {
    tartan_cuda_axes *kept = &s->axes[TARTAN_CUDA_KEPT], *summed = &s->axes[TARTAN_CUDA_SUMMED];
    if (s->inner != TARTAN_CUDA_SUMMED || s->unit > 1 || kept->ndim != 1 || kept->elements == 0 ||
        summed->elements == 0)
        return false;
    const int64_t line = summed->length[0];
    const int32_t bytes = tartan_cuda_bytes_of(s->array[0].dtype);
    const int64_t least = bytes == 8 ? 2 : 4; /* 16 bytes of sums */
    for (int64_t unit = 16 / bytes; unit >= least; unit /= 2) {
        bool good = line >= unit && kept->length[0] % unit == 0;
        for (int32_t i = 0; i < s->count && good; i++) {
            const tartan_cuda_swept *a = &s->array[i];
            if (a->data == NULL) continue;
            good = a->step[TARTAN_CUDA_SUMMED][0] == 1 && a->step[TARTAN_CUDA_KEPT][0] == line &&
                   (uintptr_t)a->data % (uintptr_t)(unit * bytes) == 0;
            for (int32_t d = 1; d < summed->ndim; d++)
                good = good && a->step[TARTAN_CUDA_SUMMED][d] % unit == 0;
        }
        if (!good) continue;
        kept->length[0] = kept->elements = kept->length[0] / unit;
        for (int32_t i = 0; i < s->count; i++) {
            tartan_cuda_swept *a = &s->array[i];
            a->next = 1;
            a->step[TARTAN_CUDA_KEPT][0] *= unit;
            a->step[TARTAN_CUDA_SUMMED][0] = unit;
        }
        s->unit = (int32_t)unit;
        set_dividers(kept);
        return true;
    }
    return false;
}

tartan_cuda_sweep tartan_cuda_sweep_rest(const tartan_cuda_sweep *s) {
    tartan_cuda_sweep rest = *s;
    tartan_cuda_axes *axes = &rest.axes[TARTAN_CUDA_KEPT];
    axes->length[0] = axes->elements = s->rest;
    for (int32_t i = 0; i < TARTAN_CUDA_SWEPT; i++) {
        tartan_cuda_swept *a = &rest.array[i];
        if (a->data == NULL) continue;
        const int64_t before = s->axes[TARTAN_CUDA_KEPT].length[0] * a->step[TARTAN_CUDA_KEPT][0];
        a->data = (char *)a->data + before * tartan_cuda_bytes_of(a->dtype);
        a->step[TARTAN_CUDA_KEPT][0] = a->next;
        a->gathered = false;
    }
    rest.unit = 1;
    rest.rest = 0;
    set_dividers(axes);
    return rest;
}

tartan_cuda_sweep tartan_cuda_sweep_one_by_one(const tartan_cuda_sweep *s) {
    tartan_cuda_sweep single = *s;
    if (s->unit == 1) return single;
    tartan_cuda_axes *axes = &single.axes[s->inner];
    axes->length[0] = axes->length[0] * s->unit + s->rest;
    axes->elements = axes->elements * s->unit + s->rest;
    for (int32_t i = 0; i < s->count; i++) {
        single.array[i].step[s->inner][0] = s->array[i].next;
        single.array[i].gathered = false;
    }
    single.unit = 1;
    single.rest = 0;
    set_dividers(axes);
    return single;
}

/* ---- Tiles and lines ---- */

void tartan_cuda_sweep_fold(tartan_cuda_sweep *s) {
    enum { LEAST = 64, MOST = 4096 }; /* units of a line */
    tartan_cuda_axes *axes = &s->axes[TARTAN_CUDA_KEPT];
    if (axes->ndim != 1 || s->axes[TARTAN_CUDA_SUMMED].ndim > 0 || s->unit == 1 || s->rest > 0) return;
    const int64_t power = axes->length[0] & -axes->length[0], line = power < MOST ? power : MOST;
    if (line < LEAST || line == axes->length[0]) return;
    axes->length[1] = axes->length[0] / line, axes->length[0] = line;
    axes->ndim = 2;
    for (int32_t i = 0; i < s->count; i++) {
        int64_t *const step = s->array[i].step[TARTAN_CUDA_KEPT];
        step[1] = step[0] * line;
    }
    set_dividers(axes);
}

/* A dimension along which an array has neighbours that lie apart along the first; 0: there is none. */
static int32_t turned_along(const tartan_cuda_sweep *s) {
    enum { SECTOR = 32, LEAST = 8 }; /* bytes that memory moves at once; of a tile */
    const tartan_cuda_axes *axes = &s->axes[TARTAN_CUDA_KEPT];
    for (int32_t i = 0; i < s->count; i++) {
        const tartan_cuda_swept *a = &s->array[i];
        const int64_t bytes = tartan_cuda_bytes_of(a->dtype), *step = a->step[TARTAN_CUDA_KEPT];
        const int64_t next = s->unit > 1 ? a->next : step[0];
        if (a->data == NULL || (next < 0 ? -next : next) * bytes < SECTOR) continue;
        for (int32_t d = 1; d < axes->ndim; d++)
            if (step[d] != 0 && (step[d] < 0 ? -step[d] : step[d]) * bytes < SECTOR &&
                axes->length[d] >= LEAST)
                return d;
    }
    return 0;
}

static int64_t divisor_of(int64_t length, int64_t most) {
    while (length % most != 0) most--;
    return most;
}

void tartan_cuda_sweep_tile(tartan_cuda_sweep *s) {
    enum { WIDE = 8, DEEP = 32, LEAST = 8, ENOUGH = 1 << 14 };
    tartan_cuda_axes *axes = &s->axes[TARTAN_CUDA_KEPT];
    if (axes->ndim + 2 > TARTAN_MAX_NDIM || axes->elements < ENOUGH || s->axes[TARTAN_CUDA_SUMMED].ndim > 0)
        return;
    const int32_t along = turned_along(s);
    if (along == 0) return;
    const int64_t wide = divisor_of(axes->length[0], WIDE), deep = divisor_of(axes->length[along], DEEP);
    if (deep < LEAST) return;
    axes->ndim += 2;
    for (int32_t i = 0; i < s->count; i++) {
        int64_t *const step = s->array[i].step[TARTAN_CUDA_KEPT], across = step[along];
        for (int32_t d = axes->ndim; d-- > 2;)
            step[d] = step[d - 2] * (d == 2 ? wide : d == along + 2 ? deep : 1);
        step[0] = step[2] / wide;
        step[1] = across;
    }
    for (int32_t d = axes->ndim; d-- > 2;)
        axes->length[d] = axes->length[d - 2] / (d == 2 ? wide : d == along + 2 ? deep : 1);
    axes->length[0] = wide, axes->length[1] = deep;
    set_dividers(axes);
}
