// SPDX-License-Identifier: Apache-2.0
// The elements of an inverse where its Cholesky factor has elements: the equations of Takahashi, Fagan and Chin (1973). With Z the
// inverse of L L', Z L = L'^-1, whose lower triangle is known: its diagonal is 1 / L(j, j), and below there are zeros. So column j
// of Z, taken from the last to the first, follows from the columns of Z that column j of L names, at the rows that it names.
#include "core/array.h"
#include "core/memory.h"
#include "layout/places.h"
#include "tartan/arithmetic.h"

#include <math.h>
#include <string.h>

static tartan_status check_columns(const char *function, const tartan_compressed *factor, const double *x) {
    for (int64_t j = 0; j + 1 < factor->npointers; j++) {
        const int64_t begin = factor->pointers[j], end = factor->pointers[j + 1];
        CHECK_IN(function, begin < end && factor->indices[begin] == j, ARGUMENT,
                 "column %" PRId64
                 " of the factor does not begin with its diagonal, expected ascending rows from there on",
                 j);
        CHECK_IN(function, isfinite(x[begin]) && x[begin] != 0, ARGUMENT,
                 "element (%" PRId64 ", %" PRId64 ") of the factor is %g, expected a diagonal without zeros",
                 j, j, x[begin]);
        for (int64_t n = begin + 1; n < end; n++)
            CHECK_IN(function, factor->indices[n] > factor->indices[n - 1], ARGUMENT,
                     "column %" PRId64 " of the factor has row %" PRId64 " after row %" PRId64
                     ", expected ascending rows",
                     j, factor->indices[n], factor->indices[n - 1]);
    }
    return TARTAN_OK;
}

// The first row below the diagonal is the parent of a column, and has all other rows of it.
static tartan_status check_fill(const char *function, const tartan_compressed *factor) {
    for (int64_t j = 0; j + 1 < factor->npointers; j++) {
        const int64_t begin = factor->pointers[j] + 1, end = factor->pointers[j + 1];
        if (begin + 1 >= end) continue;
        const int64_t parent = factor->indices[begin];
        int64_t at = factor->pointers[parent];
        for (int64_t n = begin; n < end; n++) {
            while (at < factor->pointers[parent + 1] && factor->indices[at] < factor->indices[n]) at++;
            CHECK_IN(function, at < factor->pointers[parent + 1] && factor->indices[at] == factor->indices[n],
                     ARGUMENT,
                     "column %" PRId64 " of the factor has row %" PRId64 ", and column %" PRId64
                     " has not, expected all elements that elimination fills, zeros as well",
                     j, factor->indices[n], parent);
        }
    }
    return TARTAN_OK;
}

// Column j of z, which has L there and Z to the right. `place` is -1 for all rows, before and after.
static void invert_column(const tartan_compressed *factor, double *z, int64_t j, int64_t *place, double *l,
                          double *y) {
    const int64_t begin = factor->pointers[j] + 1, count = factor->pointers[j + 1] - begin;
    const int64_t *rows = factor->indices + begin;
    const double diagonal = z[begin - 1];
    for (int64_t a = 0; a < count; a++) {
        place[rows[a]] = a;
        l[a] = z[begin + a] / diagonal;
        y[a] = 0;
    }
    for (int64_t a = 0; a < count; a++) {
        const int64_t first = factor->pointers[rows[a]], end = factor->pointers[rows[a] + 1];
        double sum = z[first] * l[a];
        for (int64_t n = first + 1; n < end; n++) {
            const int64_t b = place[factor->indices[n]];
            if (b < 0) continue;
            y[b] += z[n] * l[a];
            sum += z[n] * l[b];
        }
        y[a] += sum;
    }
    double sum = 1 / (diagonal * diagonal);
    for (int64_t a = 0; a < count; a++) {
        sum += l[a] * y[a];
        z[begin + a] = -y[a];
        place[rows[a]] = -1;
    }
    z[begin - 1] = sum;
}

tartan_status tartan_selected_inverse(const tartan_compressed *factor, const tartan_array *values,
                                      tartan_array *inverse) {
    tartan_status status;
    int64_t *place = NULL, longest = 0;
    double *l = NULL, *y = NULL;
    CHECK(factor != NULL && factor->npointers > 0, HANDLE,
          "factor is NULL or without pointers, expected compressed columns");
    CHECK(factor->by_column != 0, ARGUMENT,
          "factor has compressed rows, expected the columns of a lower triangle");
    const int64_t n = factor->npointers - 1;
    PASS(tartan_i_lists_check(__func__, factor, n, "rows + 1", n));
    const tartan_array *const arrays[] = {values, inverse};
    for (int k = 0; k < 2; k++) {
        const char *name = k == 0 ? "values" : "inverse";
        PASS(tartan_i_array_check(__func__, name, arrays[k], k == 1));
        CHECK(arrays[k]->dtype == TARTAN_F64 && arrays[k]->ndim == 1 &&
                  arrays[k]->shape[0] == factor->nindices &&
                  (arrays[k]->shape[0] <= 1 || arrays[k]->strides[0] == 1),
              SHAPE, "%s is no contiguous f64 vector of %" PRId64 " elements, as the factor has", name,
              factor->nindices);
    }
    PASS(check_columns(__func__, factor, values->data));
    PASS(check_fill(__func__, factor));
    for (int64_t j = 0; j < n; j++)
        if (factor->pointers[j + 1] - factor->pointers[j] > longest)
            longest = factor->pointers[j + 1] - factor->pointers[j];
    NEW(place, n);
    NEW(l, longest);
    NEW(y, longest);
    for (int64_t i = 0; i < n; i++) place[i] = -1;
    if (inverse->data != values->data)
        memcpy(inverse->data, values->data, (size_t)factor->nindices * sizeof(double));
    for (int64_t j = n - 1; j >= 0; j--) invert_column(factor, inverse->data, j, place, l, y);
    status = TARTAN_OK;
fail:
    tartan_i_free(place);
    tartan_i_free(l);
    tartan_i_free(y);
    return status;
}
