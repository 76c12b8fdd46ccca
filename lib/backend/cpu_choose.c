/* SPDX-License-Identifier: Apache-2.0
 * The k largest numbers of a line, in one pass: numbers above the k-th largest so far are kept, and once many are kept, all but k
 * of them are dropped again. So each number takes one comparison, and some take a few more. */
#include "backend/cpu_choose.h"

#include "core/dtype.h"

#include <math.h>
#include <string.h>

enum { FEW = 16, FIRST = 64 }; /* choices that are sorted by insertion; elements that are looked at first */

/* ---- Order ---- */

static uint64_t key_of(double x) {
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;
    if (isnan(x)) return UINT64_MAX;
    x += 0; /* -0 becomes 0 */
    memcpy(&bits, &x, sizeof bits);
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

/* The number of a key that is not NaN's. */
static double number_of(uint64_t key) {
    const uint64_t sign = UINT64_C(1) << 63, bits = (key & sign) != 0 ? key & ~sign : ~key;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline bool before(tartan_i_choice a, tartan_i_choice b) {
    return a.key != b.key ? a.key > b.key : a.place < b.place;
}

static void swap(tartan_i_choice *a, tartan_i_choice *b) {
    const tartan_i_choice c = *a;
    *a = *b;
    *b = c;
}

static void insert(tartan_i_choice *c, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        const tartan_i_choice own = c[i];
        int64_t at = i;
        for (; at > 0 && before(own, c[at - 1]); at--) c[at] = c[at - 1];
        c[at] = own;
    }
}

/* In a heap, no choice comes before the two below it; the last of all is at the top. */
static void sink(tartan_i_choice *c, int64_t at, int64_t count) {
    for (int64_t below; (below = 2 * at + 1) < count; at = below) {
        if (below + 1 < count && before(c[below], c[below + 1])) below++;
        if (!before(c[at], c[below])) return;
        swap(&c[at], &c[below]);
    }
}

static void heap_sort(tartan_i_choice *c, int64_t count) {
    for (int64_t i = count / 2; i-- > 0;) sink(c, i, count);
    for (int64_t end = count; end-- > 1;) {
        swap(&c[0], &c[end]);
        sink(c, 0, end);
    }
}

/* Puts the middle one of three at its place among more than FEW, with those before it on the left; returns the place. */
static int64_t part(tartan_i_choice *c, int64_t count) {
    tartan_i_choice *middle = &c[count / 2], *last = &c[count - 1];
    if (before(*middle, c[0])) swap(middle, &c[0]);
    if (before(*last, *middle)) swap(last, middle);
    if (before(*middle, c[0])) swap(middle, &c[0]);
    swap(middle, last);
    int64_t at = 0;
    for (int64_t i = 0; i < count - 1; i++)
        if (before(c[i], *last)) swap(&c[i], &c[at++]);
    swap(&c[at], last);
    return at;
}

/* How often to part that many before it is clear that the chosen middles are far from the median. */
static int32_t most_parts(int64_t count) {
    int32_t parts = 0;
    for (; count > 0; count /= 2) parts += 2;
    return parts;
}

static void sort(tartan_i_choice *c, int64_t count, int32_t parts) {
    while (count > FEW) {
        if (parts-- == 0) {
            heap_sort(c, count);
            return;
        }
        const int64_t at = part(c, count), rest = count - at - 1;
        if (at < rest) {
            sort(c, at, parts);
            c += at + 1, count = rest;
        } else {
            sort(c + at + 1, rest, parts);
            count = at;
        }
    }
    insert(c, count);
}

void tartan_i_choices_sort(tartan_i_choice *choices, int64_t count) {
    sort(choices, count, most_parts(count));
}

/* The first k come to the front, the last of these at its end. */
static void select_first(tartan_i_choice *c, int64_t count, int64_t k) {
    for (int32_t parts = most_parts(count); count > FEW; parts--) {
        if (parts == 0) {
            heap_sort(c, count);
            return;
        }
        const int64_t at = part(c, count);
        if (at == k - 1) return;
        if (at < k) {
            c += at + 1, count -= at + 1, k -= at + 1;
        } else {
            count = at;
        }
    }
    insert(c, count);
}

/* ---- The choice ---- */

static bool counts(const uint32_t *mask, int64_t i) {
    return mask == NULL || (mask[i / 32] >> (i % 32) & 1) != 0;
}

int64_t tartan_i_choose(const tartan_i_kernels *kernels, int64_t n, int64_t k, const void *x,
                        const uint32_t *mask, tartan_i_choice *choices,
                        int32_t places[TARTAN_I_CHOOSE_AT_ONCE]) {
    const int64_t room = tartan_i_choices(n, k) - TARTAN_I_CHOOSE_AT_ONCE;
    int64_t count = 0, next;
    double limit = 0;
    bool limited = false;
    for (int64_t begin = 0; begin < n; begin = next) {
        const int64_t more = begin < FIRST                     ? FIRST
                             : begin < TARTAN_I_CHOOSE_AT_ONCE ? begin
                                                               : TARTAN_I_CHOOSE_AT_ONCE;
        const char *const from = (const char *)x + begin * kernels->bytes;
        next = n - begin < more ? n : begin + more;
        if (limited) {
            const int64_t found = kernels->row_above(next - begin, from,
                                                     mask == NULL ? NULL : mask + begin / 32, limit, places);
            for (int64_t i = 0; i < found; i++)
                choices[count++] = (tartan_i_choice){key_of(tartan_i_load(from, kernels->dtype, places[i])),
                                                     begin + places[i]};
        } else {
            for (int64_t i = begin; i < next; i++)
                if (counts(mask, i))
                    choices[count++] = (tartan_i_choice){key_of(tartan_i_load(x, kernels->dtype, i)), i};
        }
        if (count < k || (next < n && limited && count <= room)) continue;
        select_first(choices, count, k);
        count = k;
        if (choices[k - 1].key == UINT64_MAX) break; /* there is nothing above NaN */
        limit = number_of(choices[k - 1].key);
        limited = true;
    }
    return count;
}
