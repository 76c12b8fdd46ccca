// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

extern "C" {
#include "core/array.h"
}

// DLPack's structure, as dlpack.h of version 0.2 and later has it.
struct DLTensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

namespace {

const int64_t huge = std::numeric_limits<int64_t>::max();

tartan_array array_of(void *data, int32_t dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    tartan_array a;
    EXPECT_OK(tartan_array_init(data, dtype, (int32_t)shape.size(), shape.data(),
                                strides.empty() ? nullptr : strides.data(), &a));
    return a;
}

TEST(Array, Dtypes) {
    const struct {
        int32_t dtype;
        const char *name;
        int64_t bytes;
    } all[] = {{TARTAN_F64, "float64", 8},          {TARTAN_F32, "float32", 4},
               {TARTAN_F16, "float16", 2},          {TARTAN_BF16, "bfloat16", 2},
               {TARTAN_F8E4M3, "float8_e4m3fn", 1}, {TARTAN_F8E5M2, "float8_e5m2", 1}};
    for (auto &d : all) {
        EXPECT_STREQ(d.name, tartan_dtype_name(d.dtype));
        EXPECT_EQ(d.bytes, tartan_dtype_bytes(d.dtype));
        EXPECT_EQ(d.dtype, tartan_dtype_of(d.name));
    }
    for (int32_t dtype : {0, 10, -1, 1 << 30}) {
        EXPECT_EQ(nullptr, tartan_dtype_name(dtype));
        EXPECT_EQ(0, tartan_dtype_bytes(dtype));
    }
    EXPECT_EQ(0, tartan_dtype_of("float"));
    EXPECT_STREQ("uint8", tartan_dtype_name(TARTAN_U8)); // masks alone have it
    EXPECT_EQ(1, tartan_dtype_bytes(TARTAN_U8));
    EXPECT_STREQ("int32", tartan_dtype_name(TARTAN_I32)); // indices alone have these
    EXPECT_EQ(4, tartan_dtype_bytes(TARTAN_I32));
    EXPECT_STREQ("int64", tartan_dtype_name(TARTAN_I64));
    EXPECT_EQ(8, tartan_dtype_bytes(TARTAN_I64));
    EXPECT_EQ(0, tartan_dtype_of("int64"));
    EXPECT_EQ(0, tartan_dtype_of("uint8"));
    EXPECT_EQ(0, tartan_dtype_of(nullptr));
}

TEST(Array, InitIsRowMajorByDefault) {
    double data[60];
    tartan_array a = array_of(data, TARTAN_F64, {3, 4, 5}, {});
    EXPECT_EQ(data, a.data);
    EXPECT_EQ(TARTAN_CPU, a.device_type);
    EXPECT_EQ(0, a.device_id);
    EXPECT_EQ(3, a.ndim);
    const int64_t strides[] = {20, 5, 1, 0, 0, 0, 0, 0}, shape[] = {3, 4, 5, 0, 0, 0, 0, 0};
    EXPECT_EQ(0, memcmp(strides, a.strides, sizeof strides));
    EXPECT_EQ(0, memcmp(shape, a.shape, sizeof shape));
    EXPECT_EQ(60, tartan_i_array_elements(&a));
    char text[TARTAN_I_SHAPE_TEXT];
    EXPECT_STREQ("[3, 4, 5]", tartan_i_shape_text(&a, text));
}

TEST(Array, InitOfScalarsAndEmptyArrays) {
    float x;
    tartan_array a = array_of(&x, TARTAN_F32, {}, {});
    EXPECT_EQ(1, tartan_i_array_elements(&a));
    EXPECT_OK(tartan_array_init(&x, TARTAN_F32, 0, nullptr, nullptr, &a));
    a = array_of(nullptr, TARTAN_F32, {4, 0, 3}, {});
    EXPECT_EQ(0, tartan_i_array_elements(&a));
    EXPECT_EQ(3, a.strides[0]);
    char text[TARTAN_I_SHAPE_TEXT];
    EXPECT_STREQ("[4, 0, 3]", tartan_i_shape_text(&a, text));
}

TEST(Array, ShapeTextFitsTheLongest) {
    tartan_array a = {};
    a.ndim = 8;
    for (int64_t &n : a.shape) n = std::numeric_limits<int64_t>::min();
    char text[TARTAN_I_SHAPE_TEXT];
    EXPECT_EQ(8 * 20 + 7 * 2 + 2u, strlen(tartan_i_shape_text(&a, text)));
}

TEST(Array, InitRefuses) {
    double data[8];
    const int64_t shape[] = {2, 2, 2, 1, 1, 1, 1, 1, 1}, negative[] = {2, -1}, wide[] = {huge, 2},
                  strides[] = {huge, 1};
    tartan_array a, before;
    memset(&a, 0x5a, sizeof a);
    before = a;
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_array_init(data, TARTAN_F64, 1, shape, nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "shape is NULL", tartan_array_init(data, TARTAN_F64, 1, nullptr, nullptr, &a));
    EXPECT_FAILS(HANDLE, "data NULL", tartan_array_init(nullptr, TARTAN_F64, 1, shape, nullptr, &a));
    EXPECT_FAILS(ARGUMENT, "ndim is -1", tartan_array_init(data, TARTAN_F64, -1, shape, nullptr, &a));
    EXPECT_FAILS(ARGUMENT, "ndim is 9", tartan_array_init(data, TARTAN_F64, 9, shape, nullptr, &a));
    EXPECT_FAILS(DTYPE, "dtype 0", tartan_array_init(data, 0, 1, shape, nullptr, &a));
    EXPECT_FAILS(DTYPE, "dtype 10", tartan_array_init(data, 10, 1, shape, nullptr, &a));
    EXPECT_FAILS(SHAPE, "[2, -1]", tartan_array_init(data, TARTAN_F64, 2, negative, nullptr, &a));
    EXPECT_FAILS(OVERFLOW, "addressed", tartan_array_init(data, TARTAN_F64, 2, wide, nullptr, &a));
    EXPECT_FAILS(OVERFLOW, "addressed", tartan_array_init(data, TARTAN_F64, 2, shape, strides, &a));
    EXPECT_FAILS(ARGUMENT, "aligned", tartan_array_init((char *)data + 4, TARTAN_F64, 1, shape, nullptr, &a));
    EXPECT_EQ(0, memcmp(&a, &before, sizeof a));
    EXPECT_EQ(0u, std::string(tartan_last_error()).find("tartan_array_init: ")) << tartan_last_error();
}

// Sizes and strides whose products, sums or addresses leave 64 bits, one by one.
TEST(Array, OverflowOfTheExtent) {
    double data[1];
    const struct {
        std::vector<int64_t> shape, strides;
    } cases[] = {
        {{huge / 8 + 1}, {1}},
        {{2, 2}, {huge / 2, huge / 2 + 2}},
        {{2}, {huge / 8}},
        {{2}, {-huge}},
        {{2}, {-(1ll << 50)}},
        {{3, 3}, {std::numeric_limits<int64_t>::min(), 1}},
        {{1ll << 32, 1ll << 32}, {0, 0}},
        {{0, huge, 3}, {0, 0, 0}},
    };
    for (auto &c : cases) {
        tartan_array a;
        EXPECT_FAILS(OVERFLOW, "addressed",
                     tartan_array_init(data, TARTAN_F64, (int32_t)c.shape.size(), c.shape.data(),
                                       c.strides.data(), &a));
    }
    // Repeated data may have as many elements as int64 counts.
    EXPECT_EQ(huge, array_of(data, TARTAN_F64, {huge}, {0}).shape[0]);
}

tartan_status check_output(const tartan_array &a) {
    return tartan_i_array_check("test", "c", &a, true);
}

TEST(Array, OutputsMayNotHaveElementsInOnePlace) {
    double data[64];
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {3, 4}, {4, 1})));
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {3, 4}, {1, 3})));
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {3, 4}, {-4, 1})));
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {3, 4}, {-1, -5})));
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {1, 4}, {0, 1})));
    EXPECT_OK(check_output(array_of(data + 32, TARTAN_F64, {2, 1, 3}, {1, 1, 2})));
    EXPECT_OK(check_output(array_of(data, TARTAN_F64, {0, 4}, {0, 0})));
    EXPECT_OK(check_output(array_of(data, TARTAN_F64, {}, {})));
    EXPECT_FAILS(ARGUMENT, "test: c of shape [3, 4]",
                 check_output(array_of(data, TARTAN_F64, {3, 4}, {0, 1})));
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", check_output(array_of(data, TARTAN_F64, {3, 4}, {1, 1})));
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", check_output(array_of(data, TARTAN_F64, {3, 4}, {3, 1})));
    EXPECT_FAILS(ARGUMENT, "repeat or interleave",
                 check_output(array_of(data + 32, TARTAN_F64, {3, 4}, {-1, 1})));
    tartan_array repeated = array_of(data, TARTAN_F64, {3, 4}, {0, 1});
    EXPECT_OK(tartan_i_array_check("test", "b", &repeated, false));
}

// Whatever passes has no two elements in one place: all small shapes and strides by brute force.
TEST(Array, OutputCheckIsSafe) {
    std::vector<double> data(256);
    int passed = 0;
    for (int64_t s0 = -6; s0 <= 6; s0++) {
        for (int64_t s1 = -6; s1 <= 6; s1++) {
            for (int64_t n0 = 1; n0 <= 4; n0++) {
                for (int64_t n1 = 1; n1 <= 4; n1++) {
                    tartan_array a = array_of(data.data() + 128, TARTAN_F64, {n0, n1, 2}, {s0, s1, 7});
                    std::vector<int> hits(256);
                    bool apart = true;
                    for (int64_t i = 0; i < n0 * n1 * 2; i++)
                        apart =
                            apart && !hits[(size_t)(128 + i / 2 % n0 * s0 + i / 2 / n0 * s1 + i % 2 * 7)]++;
                    bool ok = check_output(a) == TARTAN_OK;
                    EXPECT_TRUE(apart || !ok) << s0 << " " << s1 << " " << n0 << " " << n1;
                    passed += ok;
                }
            }
        }
    }
    EXPECT_GT(passed, 500);
}

TEST(Array, ChecksOfHandMadeDescriptors) {
    double data[4];
    const tartan_array good = array_of(data, TARTAN_F64, {4}, {});
    auto check = [](const tartan_array *a) { return tartan_i_array_check("test", "b", a, false); };
    EXPECT_OK(check(&good));
    EXPECT_FAILS(HANDLE, "test: b is NULL", check(nullptr));
    tartan_array bad = good;
    bad.ndim = 9;
    EXPECT_FAILS(ARGUMENT, "b has ndim 9", check(&bad));
    bad.ndim = -1;
    EXPECT_FAILS(ARGUMENT, "b has ndim -1", check(&bad));
    bad = good, bad.dtype = 7;
    EXPECT_FAILS(DTYPE, "b has dtype 7", check(&bad));
    bad = good, bad.device_type = 10;
    EXPECT_FAILS(UNSUPPORTED, "device type 10", check(&bad));
    bad = good, bad.device_type = TARTAN_CUDA, bad.device_id = 3;
    EXPECT_FAILS(UNSUPPORTED, "CUDA device 3", check(&bad));
    EXPECT_OK(tartan_i_array_check_any("test", "b", &bad, false));
    bad = good, bad.data = nullptr;
    EXPECT_FAILS(HANDLE, "data NULL", check(&bad));
    bad.strides[0] = -1;
    EXPECT_FAILS(HANDLE, "data NULL", check(&bad));
    bad.shape[0] = 0;
    EXPECT_OK(check(&bad));
}

TEST(Array, ExtentAndOverlap) {
    float data[100];
    auto a = array_of(data + 50, TARTAN_F32, {3, 4}, {-10, 2});
    const char *begin, *end;
    tartan_i_array_extent(&a, &begin, &end);
    EXPECT_EQ((char *)(data + 30), begin);
    EXPECT_EQ((char *)(data + 57), end);
    auto before = array_of(data, TARTAN_F32, {30}, {}), touching = array_of(data, TARTAN_F32, {31}, {});
    auto after = array_of(data + 57, TARTAN_F32, {2}, {}), inside = array_of(data + 40, TARTAN_F32, {}, {});
    auto empty = array_of(data + 40, TARTAN_F32, {5, 0}, {});
    EXPECT_FALSE(tartan_i_array_overlap(&a, &before));
    EXPECT_TRUE(tartan_i_array_overlap(&a, &touching));
    EXPECT_TRUE(tartan_i_array_overlap(&touching, &a));
    EXPECT_FALSE(tartan_i_array_overlap(&a, &after));
    EXPECT_TRUE(tartan_i_array_overlap(&a, &inside));
    EXPECT_FALSE(tartan_i_array_overlap(&a, &empty));
    EXPECT_FALSE(tartan_i_array_overlap(&empty, &empty));

    // Equal addresses on two devices are two places; the host has one memory, whatever the device id says.
    auto elsewhere = a, second = a;
    elsewhere.device_type = second.device_type = TARTAN_CUDA;
    second.device_id = 1;
    EXPECT_TRUE(tartan_i_array_overlap(&elsewhere, &elsewhere));
    EXPECT_FALSE(tartan_i_array_overlap(&elsewhere, &second));
    EXPECT_FALSE(tartan_i_array_overlap(&a, &elsewhere));
    EXPECT_FALSE(tartan_i_array_overlap(&elsewhere, &a));
    auto host = a;
    host.device_id = 1;
    EXPECT_TRUE(tartan_i_array_overlap(&a, &host));
    tartan_i_array_extent(&empty, &begin, &end);
    EXPECT_EQ(nullptr, begin);
    EXPECT_EQ(nullptr, end);
}

TEST(Array, ElementsBetweenEachOtherDoNotOverlap) {
    // q, k and v of one product [tokens, 3, heads, d], as [heads, tokens, d].
    std::vector<float> data(5 * 24 + 1);
    auto part = [&](int64_t at) { return array_of(data.data() + at, TARTAN_F32, {2, 5, 4}, {4, 24, 1}); };
    auto q = part(0), k = part(8), v = part(16), shifted = part(7);
    EXPECT_FALSE(tartan_i_array_overlap(&q, &k));
    EXPECT_FALSE(tartan_i_array_overlap(&v, &q));
    EXPECT_FALSE(tartan_i_array_overlap(&k, &v));
    EXPECT_TRUE(tartan_i_array_overlap(&q, &shifted));
    EXPECT_TRUE(tartan_i_array_overlap(&shifted, &q));
    EXPECT_FALSE(tartan_i_array_overlap(&shifted, &v));
    // Even and odd elements, one side backwards; of other sizes, or half an element off, nothing is known.
    auto even = array_of(data.data(), TARTAN_F32, {20}, {2}),
         odd = array_of(data.data() + 39, TARTAN_F32, {20}, {-2});
    auto narrow = array_of(data.data() + 1, TARTAN_F16, {20}, {4});
    auto off = even;
    off.data = (char *)data.data() + 2;
    EXPECT_FALSE(tartan_i_array_overlap(&even, &odd));
    EXPECT_TRUE(tartan_i_array_overlap(&even, &narrow));
    EXPECT_TRUE(tartan_i_array_overlap(&even, &off));
}

// Any shape and strides: a shared element is always found, and few arrays that share none are said to.
TEST(Array, OverlapOfAnyStrides) {
    std::vector<float> data(2000);
    std::mt19937 random(1);
    auto upto = [&](int64_t low, int64_t high) {
        return low + (int64_t)(random() % (uint64_t)(high - low + 1));
    };
    auto any = [&](std::set<int64_t> *at) {
        int64_t n[3], s[3], origin = upto(900, 1100);
        for (int d = 0; d < 3; d++) n[d] = upto(1, 4), s[d] = upto(-12, 12);
        for (int64_t x = 0; x < n[0] * n[1] * n[2]; x++)
            at->insert(origin + x % n[0] * s[0] + x / n[0] % n[1] * s[1] + x / n[0] / n[1] * s[2]);
        return array_of(data.data() + origin, TARTAN_F32, {n[0], n[1], n[2]}, {s[0], s[1], s[2]});
    };
    int apart = 0, wrong = 0;
    for (int round = 0; round < 20000; round++) {
        std::set<int64_t> of_a, of_b;
        auto a = any(&of_a), b = any(&of_b);
        bool shared = std::any_of(of_a.begin(), of_a.end(), [&](int64_t x) { return of_b.count(x) > 0; });
        bool found = tartan_i_array_overlap(&a, &b);
        ASSERT_EQ(found, tartan_i_array_overlap(&b, &a));
        if (shared) {
            ASSERT_TRUE(found) << "round " << round;
        } else {
            apart++, wrong += found;
        }
    }
    EXPECT_LT(wrong, apart / 20);
}

/* ---- DLPack ---- */

TEST(DLPack, StructureHasTheKnownSize) {
    EXPECT_EQ(48u, sizeof(DLTensor));
    EXPECT_EQ(24u, offsetof(DLTensor, shape));
}

TEST(DLPack, RoundTrip) {
    std::mt19937_64 random(3);
    std::vector<double> data(4096);
    for (int n = 0; n < 1000; n++) {
        int32_t dtype = (int32_t)(1 + random() % 9), ndim = (int32_t)(random() % 9);
        std::vector<int64_t> shape, strides;
        for (int32_t d = 0; d < ndim; d++) {
            shape.push_back((int64_t)(random() % 3));
            strides.push_back((int64_t)(random() % 101) - 50);
        }
        tartan_array a = array_of(data.data() + 2048, dtype, shape, strides), back;
        DLTensor t;
        ASSERT_OK(tartan_array_to_dlpack(&a, &t));
        EXPECT_EQ(8 * tartan_dtype_bytes(dtype), t.bits);
        const int codes[] = {0, 2, 2, 2, 4, 10, 12, 1, 0, 0};
        EXPECT_EQ(codes[dtype], t.code);
        EXPECT_EQ(1, t.lanes);
        EXPECT_EQ(a.shape, t.shape);
        EXPECT_EQ(a.strides, t.strides);
        EXPECT_EQ(0u, t.byte_offset);
        ASSERT_OK(tartan_array_from_dlpack(&t, &back));
        EXPECT_EQ(0, memcmp(&a, &back, sizeof a));
    }
}

TEST(DLPack, ByteOffsetAndNullStrides) {
    float data[40];
    int64_t shape[] = {4, 5};
    DLTensor t = {data, TARTAN_CPU, 0, 2, 2, 32, 1, shape, nullptr, 20 * sizeof(float)};
    tartan_array a;
    ASSERT_OK(tartan_array_from_dlpack(&t, &a));
    EXPECT_EQ(data + 20, a.data);
    EXPECT_EQ(5, a.strides[0]);
    EXPECT_EQ(1, a.strides[1]);
    t.data = nullptr;
    shape[0] = 0;
    ASSERT_OK(tartan_array_from_dlpack(&t, &a));
    EXPECT_EQ(nullptr, a.data);
}

TEST(DLPack, Devices) {
    float data[4];
    int64_t shape[] = {4};
    DLTensor t = {data, 2, 3, 1, 2, 32, 1, shape, nullptr, 0};
    tartan_array a;
    ASSERT_OK(tartan_array_from_dlpack(&t, &a));
    EXPECT_EQ(TARTAN_CUDA, a.device_type);
    EXPECT_EQ(3, a.device_id);
    DLTensor back;
    ASSERT_OK(tartan_array_to_dlpack(&a, &back));
    EXPECT_EQ(2, back.device_type);
    EXPECT_EQ(3, back.device_id);
    t.device_type = 3; // pinned host memory
    ASSERT_OK(tartan_array_from_dlpack(&t, &a));
    EXPECT_EQ(TARTAN_CPU, a.device_type);
    EXPECT_EQ(0, a.device_id);
    t.device_type = 10;
    EXPECT_FAILS(UNSUPPORTED, "device type 10", tartan_array_from_dlpack(&t, &a));
}

TEST(DLPack, Refuses) {
    double data[4];
    int64_t shape[9] = {4, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-4}, wide[] = {huge};
    const DLTensor good = {data, 1, 0, 1, 2, 64, 1, shape, nullptr, 0};
    tartan_array a, before;
    memset(&a, 0x5a, sizeof a);
    before = a;
    auto refused = [&](DLTensor t) { return tartan_array_from_dlpack(&t, &a); };
    DLTensor t = good;
    EXPECT_FAILS(HANDLE, "tensor is NULL", tartan_array_from_dlpack(nullptr, &a));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_array_from_dlpack(&good, nullptr));
    for (auto type : {std::pair<int, int>{0, 16},
                      {1, 32},
                      {5, 64},
                      {2, 8},
                      {4, 32},
                      {2, 128},
                      {10, 16},
                      {11, 8},
                      {12, 4}}) {
        t = good, t.code = (uint8_t)type.first, t.bits = (uint8_t)type.second;
        EXPECT_FAILS(DTYPE, "type code", refused(t));
    }
    t = good, t.lanes = 4;
    EXPECT_FAILS(DTYPE, "4 lanes", refused(t));
    t = good, t.ndim = 9;
    EXPECT_FAILS(SHAPE, "ndim 9", refused(t));
    t = good, t.ndim = -1;
    EXPECT_FAILS(SHAPE, "ndim -1", refused(t));
    t = good, t.shape = negative;
    EXPECT_FAILS(SHAPE, "[-4]", refused(t));
    t = good, t.shape = wide;
    EXPECT_FAILS(OVERFLOW, "addressed", refused(t));
    t = good, t.shape = nullptr;
    EXPECT_FAILS(HANDLE, "shape is NULL", refused(t));
    t = good, t.data = nullptr;
    EXPECT_FAILS(HANDLE, "data NULL", refused(t));
    t = good, t.byte_offset = 3;
    EXPECT_FAILS(ARGUMENT, "aligned", refused(t));
    EXPECT_EQ(0, memcmp(&a, &before, sizeof a));

    tartan_array fine = array_of(data, TARTAN_F64, {4}, {}), bad = fine;
    memset((void *)&t, 0x5a, sizeof t);
    DLTensor untouched;
    memcpy((void *)&untouched, &t, sizeof t);
    EXPECT_FAILS(HANDLE, "array is NULL", tartan_array_to_dlpack(nullptr, &t));
    EXPECT_FAILS(HANDLE, "out_tensor is NULL", tartan_array_to_dlpack(&fine, nullptr));
    bad.dtype = 10;
    EXPECT_FAILS(DTYPE, "dtype 10", tartan_array_to_dlpack(&bad, &t));
    bad = fine, bad.ndim = 12;
    EXPECT_FAILS(SHAPE, "ndim 12", tartan_array_to_dlpack(&bad, &t));
    EXPECT_EQ(0, memcmp(&t, &untouched, sizeof t));
}

} // namespace
