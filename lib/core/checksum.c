/* SPDX-License-Identifier: Apache-2.0 */
#include "core/array.h"
#include "core/memory.h"

#define XXH_INLINE_ALL /* so the size of its state always matches the code that uses it */
#include <xxhash.h>

enum { BUFFER_BYTES = 4096 };

/* Feeds the elements in row-major order of their indices: an odometer over all dimensions. */
static void feed(XXH3_state_t *state, const tartan_array *array) {
    int64_t index[TARTAN_MAX_NDIM] = {0}, left = tartan_i_array_elements(array);
    size_t size = (size_t)tartan_dtype_bytes(array->dtype), used = 0;
    const char *element = array->data;
    char buffer[BUFFER_BYTES];
    for (; left > 0; left--) {
        memcpy(buffer + used, element, size);
        used += size;
        if (used == sizeof buffer || left == 1) {
            XXH3_128bits_update(state, buffer, used);
            used = 0;
        }
        for (int32_t d = array->ndim - 1; d >= 0; d--) {
            /* The stride of a dimension of length 1 may be any number: do not multiply it. */
            const int64_t step = array->shape[d] == 1 ? 0 : array->strides[d] * (int64_t)size;
            element += step;
            if (++index[d] < array->shape[d]) break;
            element -= array->shape[d] * step;
            index[d] = 0;
        }
    }
}

tartan_status tartan_array_checksum(const tartan_array *array, char **out_text) {
    CHECK_OUT(out_text);
    PASS(tartan_i_array_check(__func__, "array", array, false));
    tartan_i_text text = {0};
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    feed(&state, array);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    for (size_t i = 0; i < sizeof digest.digest; i++) tartan_i_text_add(&text, "%02x", digest.digest[i]);
    if (text.status != TARTAN_OK) {
        tartan_i_free(text.data);
        return text.status;
    }
    *out_text = text.data;
    return TARTAN_OK;
}
