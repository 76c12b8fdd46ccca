// SPDX-License-Identifier: Apache-2.0
// Loads, stores and copies between the element types.
#include "core/dtype.h"

double tartan_i_load(const void *data, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TARTAN_F64:
        return ((const double *)data)[i];
    case TARTAN_F32:
        return ((const float *)data)[i];
    case TARTAN_F16:
        return tartan_i_f32_of_f16(((const tartan_i_half *)data)[i]);
    case TARTAN_F8E4M3:
        return tartan_i_f32_of_e4m3(((const tartan_i_e4m3 *)data)[i]);
    case TARTAN_F8E5M2:
        return tartan_i_f32_of_e5m2(((const tartan_i_e5m2 *)data)[i]);
    case TARTAN_U8:
    case TARTAN_I32:
    case TARTAN_I64:
        return (double)tartan_i_index_at(data, dtype, i);
    default:
        return tartan_i_f32_of_bf16(((const tartan_i_bfloat *)data)[i]);
    }
}

void tartan_i_store(void *data, int32_t dtype, int64_t i, double value) {
    switch (dtype) {
    case TARTAN_F64:
        ((double *)data)[i] = value;
        break;
    case TARTAN_F32:
        ((float *)data)[i] = (float)value;
        break;
    case TARTAN_F16:
        ((tartan_i_half *)data)[i] = tartan_i_f16_of_f64(value);
        break;
    case TARTAN_F8E4M3:
        ((tartan_i_e4m3 *)data)[i] = tartan_i_e4m3_of_f64(value);
        break;
    case TARTAN_F8E5M2:
        ((tartan_i_e5m2 *)data)[i] = tartan_i_e5m2_of_f64(value);
        break;
    case TARTAN_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case TARTAN_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case TARTAN_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        ((tartan_i_bfloat *)data)[i] = tartan_i_bf16_of_f64(value);
        break;
    }
}

// Loops with unit strides are separate so that the compiler vectorises them. If the rows are the contiguous
// dimension of both places, rows and columns swap roles.
#define DEFINE_TILE_COPY(name, to_type, from_type, CONVERT)                                                  \
    static void name(void *to_data, int64_t tr, int64_t tc, const void *from_data, int64_t fr, int64_t fc,   \
                     int64_t rows, int64_t cols) {                                                           \
        if (cols == 1 || (tr == 1 && fr == 1 && !(tc == 1 && fc == 1))) {                                    \
            int64_t swap;                                                                                    \
            swap = tr, tr = tc, tc = swap;                                                                   \
            swap = fr, fr = fc, fc = swap;                                                                   \
            swap = rows, rows = cols, cols = swap;                                                           \
        }                                                                                                    \
        for (int64_t r = 0; r < rows; r++) {                                                                 \
            to_type *restrict to = (to_type *)to_data + r * tr;                                              \
            const from_type *restrict from = (const from_type *)from_data + r * fr;                          \
            if (tc == 1 && fc == 1) {                                                                        \
                for (int64_t c = 0; c < cols; c++) to[c] = (to_type)CONVERT(from[c]);                        \
            } else {                                                                                         \
                for (int64_t c = 0; c < cols; c++) to[c * tc] = (to_type)CONVERT(from[c * fc]);              \
            }                                                                                                \
        }                                                                                                    \
    }

// Equal dtypes copy bits, so NaN payloads survive.
#define AS_IS(x)       (x)
#define F16_OF_BF16(x) tartan_i_f16_of_f32(tartan_i_f32_of_bf16(x))
#define BF16_OF_F16(x) tartan_i_bf16_of_f32(tartan_i_f32_of_f16(x))
DEFINE_TILE_COPY(copy_64, uint64_t, uint64_t, AS_IS)
DEFINE_TILE_COPY(copy_32, uint32_t, uint32_t, AS_IS)
DEFINE_TILE_COPY(copy_16, uint16_t, uint16_t, AS_IS)
DEFINE_TILE_COPY(copy_8, uint8_t, uint8_t, AS_IS)
DEFINE_TILE_COPY(f64_of_f32, double, float, AS_IS)
DEFINE_TILE_COPY(f64_of_f16, double, tartan_i_half, tartan_i_f32_of_f16)
DEFINE_TILE_COPY(f64_of_bf16, double, tartan_i_bfloat, tartan_i_f32_of_bf16)
DEFINE_TILE_COPY(f32_of_f64, float, double, AS_IS)
DEFINE_TILE_COPY(f32_of_f16, float, tartan_i_half, tartan_i_f32_of_f16)
DEFINE_TILE_COPY(f32_of_bf16, float, tartan_i_bfloat, tartan_i_f32_of_bf16)
DEFINE_TILE_COPY(f16_of_f64, tartan_i_half, double, tartan_i_f16_of_f64)
DEFINE_TILE_COPY(f16_of_f32, tartan_i_half, float, tartan_i_f16_of_f32)
DEFINE_TILE_COPY(f16_of_bf16, tartan_i_half, tartan_i_bfloat, F16_OF_BF16)
DEFINE_TILE_COPY(bf16_of_f64, tartan_i_bfloat, double, tartan_i_bf16_of_f64)
DEFINE_TILE_COPY(bf16_of_f32, tartan_i_bfloat, float, tartan_i_bf16_of_f32)
DEFINE_TILE_COPY(bf16_of_f16, tartan_i_bfloat, tartan_i_half, BF16_OF_F16)

// Conversions between the 8-bit type `kind` and all wider types. f32 holds every 8-bit and 16-bit number exactly.
#define DEFINE_TILE_COPIES_F8(kind)                                                                          \
    DEFINE_TILE_COPY(f64_of_##kind, double, tartan_i_##kind, tartan_i_f32_of_##kind)                         \
    DEFINE_TILE_COPY(f32_of_##kind, float, tartan_i_##kind, tartan_i_f32_of_##kind)                          \
    DEFINE_TILE_COPY(f16_of_##kind, tartan_i_half, tartan_i_##kind, F16_OF_F8_##kind)                        \
    DEFINE_TILE_COPY(bf16_of_##kind, tartan_i_bfloat, tartan_i_##kind, BF16_OF_F8_##kind)                    \
    DEFINE_TILE_COPY(kind##_of_f64, tartan_i_##kind, double, tartan_i_##kind##_of_f64)                       \
    DEFINE_TILE_COPY(kind##_of_f32, tartan_i_##kind, float, tartan_i_##kind##_of_f32)                        \
    DEFINE_TILE_COPY(kind##_of_f16, tartan_i_##kind, tartan_i_half, F8_OF_F16_##kind)                        \
    DEFINE_TILE_COPY(kind##_of_bf16, tartan_i_##kind, tartan_i_bfloat, F8_OF_BF16_##kind)
#define F16_OF_F8_e4m3(x)  tartan_i_f16_of_f32(tartan_i_f32_of_e4m3(x))
#define F16_OF_F8_e5m2(x)  tartan_i_f16_of_f32(tartan_i_f32_of_e5m2(x))
#define BF16_OF_F8_e4m3(x) tartan_i_bf16_of_f32(tartan_i_f32_of_e4m3(x))
#define BF16_OF_F8_e5m2(x) tartan_i_bf16_of_f32(tartan_i_f32_of_e5m2(x))
#define F8_OF_F16_e4m3(x)  tartan_i_e4m3_of_f32(tartan_i_f32_of_f16(x))
#define F8_OF_F16_e5m2(x)  tartan_i_e5m2_of_f32(tartan_i_f32_of_f16(x))
#define F8_OF_BF16_e4m3(x) tartan_i_e4m3_of_f32(tartan_i_f32_of_bf16(x))
#define F8_OF_BF16_e5m2(x) tartan_i_e5m2_of_f32(tartan_i_f32_of_bf16(x))
#define E4M3_OF_E5M2(x)    tartan_i_e4m3_of_f32(tartan_i_f32_of_e5m2(x))
#define E5M2_OF_E4M3(x)    tartan_i_e5m2_of_f32(tartan_i_f32_of_e4m3(x))
DEFINE_TILE_COPIES_F8(e4m3)
DEFINE_TILE_COPIES_F8(e5m2)
DEFINE_TILE_COPY(e4m3_of_e5m2, tartan_i_e4m3, tartan_i_e5m2, E4M3_OF_E5M2)
DEFINE_TILE_COPY(e5m2_of_e4m3, tartan_i_e5m2, tartan_i_e4m3, E5M2_OF_E4M3)

tartan_i_tile_copy tartan_i_tile_copier(int32_t to_dtype, int32_t from_dtype) {
    static const tartan_i_tile_copy copiers[TARTAN_I_LAST_DTYPE][TARTAN_I_LAST_DTYPE] = {
        {copy_64, f64_of_f32, f64_of_f16, f64_of_bf16, f64_of_e4m3, f64_of_e5m2},
        {f32_of_f64, copy_32, f32_of_f16, f32_of_bf16, f32_of_e4m3, f32_of_e5m2},
        {f16_of_f64, f16_of_f32, copy_16, f16_of_bf16, f16_of_e4m3, f16_of_e5m2},
        {bf16_of_f64, bf16_of_f32, bf16_of_f16, copy_16, bf16_of_e4m3, bf16_of_e5m2},
        {e4m3_of_f64, e4m3_of_f32, e4m3_of_f16, e4m3_of_bf16, copy_8, e4m3_of_e5m2},
        {e5m2_of_f64, e5m2_of_f32, e5m2_of_f16, e5m2_of_bf16, e5m2_of_e4m3, copy_8},
    };
    if (tartan_i_is_index(to_dtype)) /* from the same */
        return to_dtype == TARTAN_I64 ? copy_64 : to_dtype == TARTAN_I32 ? copy_32 : copy_8;
    return copiers[to_dtype - TARTAN_F64][from_dtype - TARTAN_F64];
}
