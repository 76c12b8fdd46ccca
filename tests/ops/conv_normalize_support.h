// SPDX-License-Identifier: Apache-2.0
// Random problems of weight normalisation.
#ifndef TARTAN_TESTS_CONV_NORMALIZE_SUPPORT_H
#define TARTAN_TESTS_CONV_NORMALIZE_SUPPORT_H

#include "conv_support.h"

namespace tartan_test {

// A convolution, and for each weight of the list of its sets (tartan_conv_filter_to_sets) the set and the output channel.
struct Normal {
    ConvHandle conv;
    Layout layout;
    std::vector<int64_t> set_of, channel_of;
    int64_t sets = 0, outputs = 0;

    Matrix matrix(int32_t dtype, std::mt19937_64 &random, int32_t order = 0) const {
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_create(layout.get(), dtype, order, &raw));
        Matrix m(raw);
        Dense all(dtype, {(int64_t)set_of.size()});
        all.fill(random, -2, 2);
        EXPECT_OK(tartan_conv_filter_from_sets(conv.get(), &all.array, raw));
        return m;
    }
    Dense list(const Matrix &m) const {
        Dense all(m->dtype, {(int64_t)set_of.size()});
        EXPECT_OK(tartan_conv_filter_to_sets(conv.get(), m.get(), &all.array));
        return all;
    }
};

// Blocks of a layout of channels, or sets that overlap.
inline Normal make_normal(uint64_t seed) {
    std::mt19937_64 random(seed);
    Normal p;
    const bool turned = seed % 3 == 0, layouts = seed % 2;
    const std::string options =
        std::string(seed % 5 == 0 ? "kernel=3x2" : "kernel=3") + (turned ? " transposed=1" : "");
    const int64_t taps = seed % 5 == 0 ? 6 : 3, rows = 1 + (int64_t)below(random, 40),
                  cols = 1 + (int64_t)below(random, 40);
    std::vector<std::vector<int64_t>> row_sets, col_sets;
    if (layouts) {
        const int64_t br = pick<int64_t>(random, {1, 3, 8}), bc = pick<int64_t>(random, {1, 4, 16});
        const Layout channels = random_layout({rows, cols, br, bc, 1}, 0.6, seed);
        p.conv = make_conv(channels, options);
        for (int64_t id = 0; id < channels->blocks; id++) {
            std::vector<int64_t> r, c;
            for (int64_t i = channels->block_rows[id] * br;
                 i < std::min(rows, (channels->block_rows[id] + 1) * br); i++)
                r.push_back(i);
            for (int64_t i = channels->block_cols[id] * bc;
                 i < std::min(cols, (channels->block_cols[id] + 1) * bc); i++)
                c.push_back(i);
            row_sets.push_back(r), col_sets.push_back(c);
        }
    } else {
        std::vector<int64_t> in_offsets{0}, out_offsets{0}, in_ids, out_ids;
        for (int b = 0; b < 4; b++) {
            std::vector<int64_t> in, out;
            const int64_t ins = cols, outs = rows;
            for (int64_t i = 0; i < ins; i++)
                if (random() % 2) in.push_back(i);
            for (int64_t i = 0; i < outs; i++)
                if (random() % 2) out.push_back(i);
            std::shuffle(in.begin(), in.end(), random);
            in_ids.insert(in_ids.end(), in.begin(), in.end()),
                out_ids.insert(out_ids.end(), out.begin(), out.end());
            in_offsets.push_back((int64_t)in_ids.size()), out_offsets.push_back((int64_t)out_ids.size());
            row_sets.push_back(out), col_sets.push_back(in);
        }
        tartan_conv *raw = nullptr;
        EXPECT_OK(tartan_conv_from_sets(sets_of(cols, in_offsets, in_ids),
                                        sets_of(rows, out_offsets, out_ids), options.c_str(), &raw));
        p.conv.reset(raw);
    }
    p.layout = layout_of(p.conv);
    p.sets = (int64_t)row_sets.size();
    p.outputs = tartan_conv_out_channels(p.conv.get());
    for (size_t b = 0; b < row_sets.size(); b++) // each block is [rows, columns, kernel]
        for (const int64_t r : row_sets[b])
            for (const int64_t c : col_sets[b])
                for (int64_t t = 0; t < taps; t++)
                    p.set_of.push_back((int64_t)b), p.channel_of.push_back(turned ? c : r);
    return p;
}

} // namespace tartan_test

#endif
