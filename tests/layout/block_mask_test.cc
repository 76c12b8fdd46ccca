// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "layouts.h"

extern "C" {
#include "core/dtype.h"
#include "layout/block_mask.h"
#include "matrix/matrix.h"
}

using namespace tartan_test;

namespace {

struct FreeMask {
    void operator()(tartan_block_mask *p) const { tartan_block_mask_free(p); }
};
using BlockMask = std::unique_ptr<tartan_block_mask, FreeMask>;

using Rule = std::function<bool(int64_t, int64_t, int64_t)>;
int32_t keep(void *user, int64_t head, int64_t row, int64_t col) {
    return (*(const Rule *)user)(head, row, col) ? 7 : 0; // any non-zero counts
}
BlockMask from_rule(const Layout &layout, Rule rule) {
    tartan_block_mask *out = nullptr;
    EXPECT_OK(tartan_block_mask_from_rule(layout.get(), keep, &rule, &out));
    return BlockMask(out);
}

// The bits of all blocks.
Mask bits_of(const tartan_block_mask *mask) {
    const tartan_shape &s = mask->layout->shape;
    Mask bytes((size_t)(mask->layout->blocks * s.block_rows * ((s.block_cols + 31) / 32) * 4));
    EXPECT_OK(tartan_block_mask_get_bits(mask, bytes.data(), (int64_t)bytes.size()));
    return bytes;
}

// What a mask stores.
struct Stored {
    Indices index;
    Mask bits;
    explicit Stored(const tartan_block_mask *mask)
        : index((size_t)mask->layout->blocks),
          bits((size_t)(tartan_block_mask_stored(mask) * mask->layout->shape.block_rows * mask->row_words *
                        4)) {
        EXPECT_OK(tartan_block_mask_get_index(mask, index.data(), (int64_t)index.size(), bits.data(),
                                              (int64_t)bits.size()));
    }
    tartan_status make(tartan_layout *layout, tartan_block_mask **out) const {
        return tartan_block_mask_from_index(layout, index.data(), (int64_t)index.size(), bits.data(),
                                            (int64_t)bits.size(), out);
    }
};

// Every bit against the rule; bits of padding and of the rest of a word are 0.
void expect_bits(const tartan_block_mask *mask, const Rule &rule) {
    const tartan_layout *l = mask->layout;
    const tartan_shape &s = l->shape;
    const int64_t words = (s.block_cols + 31) / 32;
    int64_t kept = 0;
    const Mask bytes = bits_of(mask);
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < s.block_rows; i++)
            for (int64_t j = 0; j < words * 32; j++) {
                const int64_t row = l->block_rows[id] * s.block_rows + i,
                              col = l->block_cols[id] * s.block_cols + j;
                const bool inside = j < s.block_cols && row < s.rows && col < s.cols;
                const bool wanted = inside && rule(tartan_i_layout_head(l, id), row, col);
                const uint8_t byte = bytes[(size_t)((id * s.block_rows + i) * words * 4 + j / 8)];
                ASSERT_EQ(wanted, byte >> (j % 8) & 1) << "block " << id << " (" << i << ", " << j << ")";
                if (j < s.block_cols) {
                    ASSERT_EQ(wanted, tartan_i_block_mask_keeps(mask, id, i, j));
                }
                kept += wanted;
            }
    EXPECT_EQ(kept, tartan_block_mask_kept(mask));
}

const tartan_shape kShapes[] = {{20, 70, 8, 33, 2}, {64, 64, 32, 32, 1}, {5, 3, 8, 8, 1}, {0, 4, 1, 1, 3}};

} // namespace

TEST(BlockMask, FollowsARule) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = random_layout(s, 0.7, 5);
        for (const Rule &rule :
             {Rule([](int64_t, int64_t i, int64_t j) { return j <= i; }),
              Rule([](int64_t h, int64_t i, int64_t j) { return (h + i * 3 + j) % 5 == 0; }),
              Rule([](int64_t, int64_t, int64_t) { return false; })})
            expect_bits(from_rule(layout, rule).get(), rule);
    }
}

TEST(BlockMask, FromDenseOfAnyStrides) {
    const tartan_shape s = kShapes[0];
    const Layout layout = random_layout(s, 0.6, 2);
    std::mt19937_64 random(3);
    std::vector<uint8_t> bytes((size_t)(2 * s.rows * s.cols));
    for (auto &b : bytes) b = random() % 3 == 0 ? (uint8_t)(1 + random() % 255) : 0;
    const int64_t plane = s.rows * s.cols;
    const struct {
        int32_t ndim;
        int64_t shape[3], strides[3];
    } cases[] = {{3, {2, s.rows, s.cols}, {plane, s.cols, 1}},
                 {3, {2, s.rows, s.cols}, {plane, 1, s.rows}},
                 {2, {s.rows, s.cols, 0}, {s.cols, 1, 0}}};
    for (const auto &one : cases) {
        tartan_array mask = {};
        ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, one.ndim, one.shape, one.strides, &mask));
        tartan_block_mask *out = nullptr;
        ASSERT_OK(tartan_block_mask_from_dense(layout.get(), &mask, &out));
        const BlockMask owner(out);
        expect_bits(out, [&](int64_t h, int64_t i, int64_t j) {
            const bool batched = one.ndim == 3;
            return bytes[(size_t)((batched ? h * plane : 0) + i * one.strides[batched] +
                                  j * one.strides[1 + batched])] != 0;
        });
    }
}

TEST(BlockMask, FromBitsAndBack) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = random_layout(s, 0.7, 5);
        const Rule rule = [](int64_t h, int64_t i, int64_t j) { return (h + i * 3 + j) % 5 < 2; };
        const BlockMask wanted = from_rule(layout, rule);
        const int64_t words = layout->blocks * s.block_rows * ((s.block_cols + 31) / 32);
        std::vector<uint8_t> bytes((size_t)(4 * words) + 1, 9);
        ASSERT_OK(tartan_block_mask_get_bits(wanted.get(), bytes.data(), 4 * words));
        EXPECT_EQ(9, bytes.back());
        tartan_block_mask *out = nullptr;
        ASSERT_OK(tartan_block_mask_from_bits(layout.get(), bytes.data(), 4 * words, &out));
        expect_bits(out, rule);
        tartan_block_mask_free(out);
        std::fill(bytes.begin(), bytes.end(), 255); // with bits of padding
        ASSERT_OK(tartan_block_mask_from_bits(layout.get(), bytes.data(), 4 * words, &out));
        expect_bits(out, [](int64_t, int64_t, int64_t) { return true; });
        tartan_block_mask_free(out);
    }
}

TEST(BlockMask, StoresBlocksKeptInPartAndEqualOnesOnce) {
    const Layout layout = random_layout({1024, 1024, 64, 64, 1}, 1, 1);
    const BlockMask causal = from_rule(layout, [](int64_t, int64_t i, int64_t j) { return j <= i; });
    EXPECT_EQ(2, tartan_block_mask_stored(causal.get())); // the diagonal and nothing
    EXPECT_EQ(1024 * 1025 / 2, tartan_block_mask_kept(causal.get()));
    for (int64_t id = 0; id < 256; id++)
        ASSERT_EQ(id / 16 > id % 16, tartan_i_block_mask_is_full(causal.get(), id));
    const BlockMask all = from_rule(layout, [](int64_t, int64_t, int64_t) { return true; });
    EXPECT_EQ(0, tartan_block_mask_stored(all.get()));
    EXPECT_EQ(1024 * 1024, tartan_block_mask_kept(all.get()));
    const BlockMask band =
        from_rule(layout, [](int64_t, int64_t i, int64_t j) { return j <= i && i - j < 70; });
    EXPECT_EQ(4, tartan_block_mask_stored(band.get())); // the diagonal, two below it, nothing
    const BlockMask each =
        from_rule(layout, [](int64_t, int64_t i, int64_t j) { return j != 64 * i && i != j; });
    EXPECT_EQ(16, tartan_block_mask_stored(each.get())); // the diagonal, and 15 of the first line
}

TEST(BlockMask, FromWhatAnotherStores) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = random_layout(s, 0.7, 5);
        for (int64_t every : {1, 2, 50}) {
            const Rule rule = [&](int64_t h, int64_t i, int64_t j) { return (h + i * 3 + j) % every == 0; };
            const BlockMask mask = from_rule(layout, rule);
            const Stored stored(mask.get());
            tartan_block_mask *out = nullptr;
            ASSERT_OK(stored.make(layout.get(), &out));
            const BlockMask again(out);
            expect_bits(out, rule);
            EXPECT_EQ(stored.index, Stored(out).index);
            EXPECT_EQ(stored.bits, Stored(out).bits);
        }
    }
    // Full blocks and equal ones are found, bits of padding ignored.
    const Layout layout = random_layout({5, 8, 4, 4, 1}, 1, 1);
    Stored stored(from_rule(layout, [](int64_t, int64_t i, int64_t j) { return i < j; }).get());
    stored.index = {0, 1, 1, 0};
    stored.bits.assign(32, 0xf);
    for (int i = 1; i < 4; i++) stored.bits[(size_t)(4 * i)] = 7; // the first row is in the matrix everywhere
    tartan_block_mask *out = nullptr;
    ASSERT_OK(stored.make(layout.get(), &out));
    EXPECT_EQ(1, tartan_block_mask_stored(out));
    EXPECT_EQ((Indices{0, -1, -1, -1}), Stored(out).index);
    tartan_block_mask_free(out);
}

TEST(BlockMask, KeepsItsLayout) {
    Layout layout = random_layout(kShapes[1], 1, 1);
    const Rule diagonal = [](int64_t, int64_t i, int64_t j) { return i == j; };
    const BlockMask mask = from_rule(layout, diagonal);
    layout.reset();
    expect_bits(mask.get(), diagonal);
}

TEST(BlockMask, ClearsTheOthersInAMatrix) {
    for (const tartan_shape &s : kShapes)
        for (int32_t dtype : {TARTAN_F64, TARTAN_BF16, TARTAN_F8E5M2})
            for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                const Layout layout = random_layout(s, 0.7, 9);
                const Rule rule = [](int64_t h, int64_t i, int64_t j) { return (h + i + 2 * j) % 3 != 0; };
                const BlockMask mask = from_rule(layout, rule);
                tartan_matrix *raw = nullptr;
                ASSERT_OK(tartan_matrix_create(layout.get(), dtype, order, &raw));
                const Matrix matrix(raw);
                const int64_t all = layout->blocks * s.block_rows * s.block_cols;
                for (int64_t e = 0; e < all; e++)
                    tartan_i_store(raw->values, dtype, e, e % 7 == 0 ? NAN : 1 + (double)(e % 3));
                ASSERT_OK(tartan_matrix_apply_mask(raw, mask.get()));
                for (int64_t e = 0; e < all; e++) {
                    const int64_t block = s.block_rows * s.block_cols, id = e / block, at = e % block;
                    const int64_t i = order == TARTAN_ROW_MAJOR ? at / s.block_cols : at % s.block_rows,
                                  j = order == TARTAN_ROW_MAJOR ? at % s.block_cols : at / s.block_rows;
                    const double got = tartan_i_load(raw->values, dtype, e);
                    if (!tartan_i_block_mask_keeps(mask.get(), id, i, j))
                        ASSERT_EQ(0, got);
                    else if (e % 7 == 0)
                        ASSERT_TRUE(std::isnan(got));
                    else
                        ASSERT_EQ(1 + (double)(e % 3), got);
                }
            }
}

TEST(BlockMask, RefusesWhatDoesNotFit) {
    const Layout layout = random_layout(kShapes[0], 0.5, 1), other = random_layout(kShapes[0], 0.5, 2);
    std::vector<uint8_t> bytes(20 * 70);
    const int64_t right[] = {20, 70}, wrong[] = {70, 20}, heads[] = {1, 20, 70};
    tartan_array mask = {};
    tartan_block_mask *out = nullptr;
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, wrong, nullptr, &mask));
    EXPECT_FAILS(SHAPE, "mask has shape [70, 20], expected [20, 70]",
                 tartan_block_mask_from_dense(layout.get(), &mask, &out));
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 3, heads, nullptr, &mask));
    EXPECT_FAILS(SHAPE, "[2, 20, 70] with one mask for each head",
                 tartan_block_mask_from_dense(layout.get(), &mask, &out));
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_F8E4M3, 2, right, nullptr, &mask));
    EXPECT_FAILS(DTYPE, "mask", tartan_block_mask_from_dense(layout.get(), &mask, &out));
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, right, nullptr, &mask));
    mask.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "expected CPU memory", tartan_block_mask_from_dense(layout.get(), &mask, &out));
    mask.device_type = TARTAN_CPU;
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_block_mask_from_dense(nullptr, &mask, &out));
    EXPECT_FAILS(HANDLE, "mask is NULL", tartan_block_mask_from_dense(layout.get(), nullptr, &out));
    EXPECT_FAILS(HANDLE, "keep is NULL", tartan_block_mask_from_rule(layout.get(), nullptr, nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_block_mask_from_dense(layout.get(), &mask, nullptr));
    EXPECT_FAILS(SHAPE, "mask has 7 entries, expected",
                 tartan_block_mask_from_bits(layout.get(), bytes.data(), 7, &out));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_block_mask_from_bits(nullptr, bytes.data(), 7, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_block_mask_from_bits(layout.get(), bytes.data(), 7, nullptr));
    EXPECT_FAILS(HANDLE, "block_mask is NULL", tartan_block_mask_get_bits(nullptr, bytes.data(), 7));
    EXPECT_EQ(nullptr, out);
    tartan_block_mask_free(nullptr);
    EXPECT_EQ(-1, tartan_block_mask_kept(nullptr));
    EXPECT_EQ(-1, tartan_block_mask_stored(nullptr));

    const BlockMask own = from_rule(other, [](int64_t, int64_t, int64_t) { return true; });
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &raw));
    const Matrix matrix(raw);
    EXPECT_FAILS(SHAPE, "out_mask has 7 entries, expected",
                 tartan_block_mask_get_bits(own.get(), bytes.data(), 7));
    const int64_t block = 8 * 2 * 4;
    Indices index((size_t)layout->blocks, 1);
    const int64_t n = layout->blocks;
    const auto from_index = [&](int64_t nindex, int64_t nmask) {
        return tartan_block_mask_from_index(layout.get(), index.data(), nindex, bytes.data(), nmask, &out);
    };
    EXPECT_FAILS(SHAPE, "index has 1 entries, expected", from_index(1, 2 * block));
    EXPECT_FAILS(SHAPE, "mask has 70 entries, expected 64 (a multiple of", from_index(n, 70));
    EXPECT_FAILS(SHAPE, "mask has -64 entries, expected 0", from_index(n, -64));
    EXPECT_FAILS(LAYOUT, "index[0] is 1, expected -1, or one of the 1 blocks of mask", from_index(n, block));
    index.assign((size_t)n, -1);
    index[2] = -2;
    EXPECT_FAILS(LAYOUT, "index[2] is -2, expected -1", from_index(n, block));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_block_mask_from_index(nullptr, index.data(), n, bytes.data(), block, &out));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_block_mask_from_index(layout.get(), index.data(), n, bytes.data(), block, nullptr));
    EXPECT_FAILS(HANDLE, "block_mask is NULL",
                 tartan_block_mask_get_index(nullptr, index.data(), n, bytes.data(), 0));
    EXPECT_FAILS(SHAPE, "out_index has 0 entries, expected",
                 tartan_block_mask_get_index(own.get(), index.data(), 0, bytes.data(), 0));
    EXPECT_FAILS(SHAPE, "out_mask has 64 entries, expected 0",
                 tartan_block_mask_get_index(own.get(), index.data(), other->blocks, bytes.data(), block));
    tartan_layout large = *layout;
    large.blocks = INT64_C(1) << 31;
    EXPECT_FAILS(OVERFLOW, "layout has 2147483648 blocks, expected fewer than 2^31",
                 tartan_block_mask_from_rule(&large, keep, nullptr, &out));
    EXPECT_EQ(nullptr, out);
    EXPECT_FAILS(LAYOUT, "block_mask has another layout", tartan_matrix_apply_mask(raw, own.get()));
    EXPECT_FAILS(HANDLE, "block_mask is NULL", tartan_matrix_apply_mask(raw, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_apply_mask(nullptr, own.get()));
}

TEST(BlockMask, SurvivesFullMemory) {
    const Layout layout = random_layout(kShapes[0], 0.5, 1);
    std::vector<uint8_t> bytes(20 * 70, 1);
    const int64_t shape[] = {20, 70};
    tartan_array mask = {};
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, shape, nullptr, &mask));
    tartan_block_mask *out = nullptr;
    BRUTAL(tartan_block_mask_from_dense(layout.get(), &mask, &out), tartan_block_mask_free(out));
    Rule rule = [](int64_t, int64_t i, int64_t j) { return i * j % 7 == 3; }; // makes room more than once
    BRUTAL(tartan_block_mask_from_rule(layout.get(), keep, &rule, &out), tartan_block_mask_free(out));
    std::vector<uint8_t> bits((size_t)(layout->blocks * 8 * 2 * 4));
    BRUTAL(tartan_block_mask_from_bits(layout.get(), bits.data(), (int64_t)bits.size(), &out),
           tartan_block_mask_free(out));
    const Stored stored(from_rule(layout, rule).get());
    EXPECT_LT(4, tartan_block_mask_stored(from_rule(layout, rule).get()));
    const int64_t bytes_stored = (int64_t)stored.bits.size();
    BRUTAL(tartan_block_mask_from_index(layout.get(), stored.index.data(), layout->blocks, stored.bits.data(),
                                        bytes_stored, &out),
           tartan_block_mask_free(out));
}
