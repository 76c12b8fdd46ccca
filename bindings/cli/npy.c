/* SPDX-License-Identifier: Apache-2.0 */
#include "npy.h"

#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 6, PREFIX = 10 }; /* magic, two bytes of version, two (from version 2 on four) of length */
static const char magic[] = "\x93NUMPY";

static bool parse_shape(const char *text, npy *out) {
    out->ndim = 0;
    out->elements = 1;
    for (const char *c = text; *c != ')';) {
        char *end;
        long long size = strtoll(c, &end, 10);
        if (end == c) {
            if (*c == '\0' || strchr(" ,L", *c) == NULL) return false;
            c++;
            continue;
        }
        if (out->ndim == 8 || size < 0 || __builtin_mul_overflow(out->elements, size, &out->elements))
            return false;
        out->shape[out->ndim++] = size;
        c = end;
    }
    return true;
}

static bool known_kind(const npy *a) {
    switch (a->kind) {
    case 'f':
        return a->bytes == 2 || a->bytes == 4 || a->bytes == 8;
    case 'i':
    case 'u':
        return a->bytes == 1 || a->bytes == 2 || a->bytes == 4 || a->bytes == 8;
    case 'b':
        return a->bytes == 1;
    default: /* texts */
        return (a->kind == 'S' || a->kind == 'U') && a->bytes >= 1 && a->bytes <= 1 << 20;
    }
}

/* *out_unit: the bytes per number if the file is big-endian, else 1. */
static bool parse_header(const char *header, npy *out, int *out_unit) {
    const char *descr = strstr(header, "'descr':"), *order = strstr(header, "'fortran_order':"),
               *shape = strstr(header, "'shape':");
    if (descr == NULL || order == NULL || shape == NULL || (shape = strchr(shape, '(')) == NULL) return false;
    char byte_order;
    if (sscanf(descr + 8, " '%c%c%7d'", &byte_order, &out->kind, &out->bytes) != 3) return false;
    if (!known_kind(out)) return false;
    *out_unit = byte_order != '>' || out->kind == 'S' ? 1 : out->kind == 'U' ? 4 : out->bytes;
    if (out->kind == 'U') out->bytes *= 4;
    order += strlen("'fortran_order':");
    out->fortran_order = strncmp(order + strspn(order, " "), "True", 4) == 0;
    return parse_shape(shape + 1, out);
}

static void reverse_each(unsigned char *bytes, int64_t size, int unit) {
    for (int64_t at = 0; unit > 1 && at + unit <= size; at += unit)
        for (int i = 0; i < unit / 2; i++) {
            unsigned char swap = bytes[at + i];
            bytes[at + i] = bytes[at + unit - 1 - i];
            bytes[at + unit - 1 - i] = swap;
        }
}

bool npy_parse(const char *what, unsigned char *bytes, size_t size, npy *out) {
    int unit = 1;
    bool good =
        size > PREFIX + 2 && memcmp(bytes, magic, MAGIC) == 0 && bytes[MAGIC] >= 1 && bytes[MAGIC] <= 3;
    size_t prefix = good && bytes[MAGIC] > 1 ? PREFIX + 2 : PREFIX, length = 0;
    for (size_t i = prefix; good && i-- > MAGIC + 2;) length = length << 8 | bytes[i];
    good = good && length <= size - prefix;
    char *header = good ? malloc(length + 1) : NULL;
    good = header != NULL;
    if (good) {
        memcpy(header, bytes + prefix, length);
        header[length] = '\0';
        int64_t needed;
        out->data = bytes + prefix + length;
        good = parse_header(header, out, &unit) &&
               !__builtin_mul_overflow(out->elements, (int64_t)out->bytes, &needed) &&
               (uint64_t)needed <= size - prefix - length;
        if (good) reverse_each(bytes + prefix + length, needed, unit);
    }
    free(header);
    if (!good) complain("%s: not an .npy file of real numbers or texts, or truncated", what);
    return good;
}

bool npy_is_integer(const npy *a) {
    return a->kind == 'i' || a->kind == 'u';
}

int32_t npy_dtype(const npy *a) {
    if (npy_is_integer(a) || a->kind == 'b') return TARTAN_F64;
    if (a->kind == 'h') return TARTAN_BF16;
    if (a->kind != 'f') return 0;
    return a->bytes == 8 ? TARTAN_F64 : a->bytes == 4 ? TARTAN_F32 : TARTAN_F16;
}

/* Little-endian bytes as a number. */
static uint64_t bits_at(const npy *a, int64_t i) {
    const unsigned char *p = a->data + i * a->bytes;
    uint64_t bits = 0;
    for (int b = a->bytes; b-- > 0;) bits = bits << 8 | p[b];
    return bits;
}

static double f32_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double f16_of(uint32_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -size : size;
}

double npy_number(const npy *a, int64_t i) {
    uint64_t bits = bits_at(a, i);
    double f64;
    switch (npy_dtype(a)) {
    case TARTAN_F32:
        return f32_of((uint32_t)bits);
    case TARTAN_BF16:
        return f32_of((uint32_t)bits << 16);
    case TARTAN_F16:
        return f16_of((uint32_t)bits);
    default:
        if (a->kind == 'i') return (double)npy_integer(a, i);
        if (a->kind != 'f') return (double)bits;
        memcpy(&f64, &bits, sizeof f64);
        return f64;
    }
}

int64_t npy_integer(const npy *a, int64_t i) {
    uint64_t bits = bits_at(a, i);
    int unused = 64 - 8 * a->bytes;
    return a->kind == 'i' ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

const char *npy_descr(int32_t dtype) {
    return dtype == TARTAN_F64 ? "<f8" : dtype == TARTAN_F32 ? "<f4" : dtype == TARTAN_F16 ? "<f2" : NULL;
}

int npy_header(const char *descr, int ndim, const int64_t *shape, char *out, int size) {
    int used =
        snprintf(out, (size_t)size, "%sxxxx{'descr': '%s', 'fortran_order': False, 'shape': (", magic, descr);
    for (int i = 0; i < ndim; i++)
        used += snprintf(out + used, (size_t)(size - used), "%lld,", (long long)shape[i]);
    used += snprintf(out + used, (size_t)(size - used), "), }");
    int total = (used + 1 + 63) / 64 * 64;
    memset(out + used, ' ', (size_t)(total - used));
    out[total - 1] = '\n';
    out[MAGIC] = 1, out[MAGIC + 1] = 0;
    out[MAGIC + 2] = (char)((total - PREFIX) & 0xff), out[MAGIC + 3] = (char)((total - PREFIX) >> 8);
    return total;
}
