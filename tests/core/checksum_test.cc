// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <limits>

namespace {

std::string checksum(const tartan_array &array) {
    char *text = nullptr;
    EXPECT_OK(tartan_array_checksum(&array, &text));
    std::string result = text;
    tartan_text_free(text);
    return result;
}

tartan_array matrix(void *data, int64_t rows, int64_t cols, bool by_row) {
    const int64_t shape[] = {rows, cols}, strides[] = {by_row ? cols : 1, by_row ? 1 : rows};
    tartan_array array;
    EXPECT_OK(tartan_array_init(data, TARTAN_F64, 2, shape, strides, &array));
    return array;
}

TEST(Checksum, IsXxh3OfTheRowMajorBytes) {
    std::vector<double> a = tartan_test::random_values(37 * 53, 1);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(a.data(), a.size() * sizeof(double)));
    std::string expected;
    for (unsigned char byte : digest.digest) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", byte);
        expected += hex;
    }
    EXPECT_EQ(expected, checksum(matrix(a.data(), 37, 53, true)));
}

TEST(Checksum, DoesNotDependOnStrides) {
    std::vector<double> a = tartan_test::random_values(6 * 4, 2), b(a.size());
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) b[(size_t)(j * 6 + i)] = a[(size_t)(i * 4 + j)];
    EXPECT_EQ(checksum(matrix(a.data(), 6, 4, true)), checksum(matrix(b.data(), 6, 4, false)));
    b[7] = std::nextafter(b[7], 10);
    EXPECT_NE(checksum(matrix(a.data(), 6, 4, true)), checksum(matrix(b.data(), 6, 4, false)));
}

TEST(Checksum, RefusesAndSurvivesFullMemory) {
    double x = 1;
    tartan_array array = matrix(&x, 1, 1, true);
    char *text = nullptr;
    EXPECT_FAILS(HANDLE, "NULL", tartan_array_checksum(nullptr, &text));
    EXPECT_FAILS(HANDLE, "NULL", tartan_array_checksum(&array, nullptr));
    BRUTAL(tartan_array_checksum(&array, &text), tartan_text_free(text));
    array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "CUDA device 0", tartan_array_checksum(&array, &text));
    array.dtype = 99;
    EXPECT_FAILS(DTYPE, "99", tartan_array_checksum(&array, &text));
}

} // namespace
