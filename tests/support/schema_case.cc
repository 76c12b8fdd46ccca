// SPDX-License-Identifier: Apache-2.0
#include "schema_extras.h"

namespace tartan_test {

static int names_of(const tartan_i_schema &schema) {
    int names = 0;
    for (int32_t i = 0; i < schema.narguments; i++)
        for (int32_t a = 0; a < schema.arguments[i].rule.alternatives; a++)
            for (int32_t d = 0; d < schema.arguments[i].rule.alternative[a].count; d++) {
                const tartan_i_dim &dim = schema.arguments[i].rule.alternative[a].dims[d];
                if (dim.kind == TARTAN_I_DIM_NAME || dim.kind == TARTAN_I_DIM_REST)
                    names = std::max(names, dim.index + 1);
            }
    return names;
}

int empties(const tartan_i_schema &schema) {
    bool has_layout = false;
    for (int32_t i = 0; i < schema.narguments; i++)
        has_layout = has_layout || !is_array_kind(schema.arguments[i].kind);
    return names_of(schema) + (has_layout ? 2 : 0);
}

double Case::density() const {
    return wish.empty >= 0 && wish.empty == names_of(schema) ? 0 : 0.6;
}

void Case::choose_sizes() {
    const bool any = wish.random && !wish.plain_sizes;
    static const int64_t plain[] = {3, 4, 2, 5, 6, 7, 8, 9};
    each_dim([&](const tartan_i_dim &dim) {
        if (dim.kind != TARTAN_I_DIM_NAME && dim.kind != TARTAN_I_DIM_REST) return;
        std::vector<int64_t> &sizes = sizes_[dim.index];
        if (!sizes.empty()) return;
        if (dim.kind == TARTAN_I_DIM_NAME) {
            sizes = {any ? pick<int64_t>(random_, {1, 2, 3, 5, 7, 17}) : plain[dim.index]};
        } else if (any) {
            for (size_t n = below(random_, 4); n > 0; n--)
                sizes.push_back(pick<int64_t>(random_, {1, 2, 3, 5}));
        } else {
            sizes = {2, plain[dim.index]};
        }
        for (int64_t &size : sizes) size *= dim.index < 2 ? wish.scale : 1;
        if (wish.empty == dim.index) sizes.resize(std::max<size_t>(sizes.size(), 1)), sizes.back() = 0;
    });
    // What is broadcast: the second run is the end of the first, with ones.
    each_dim([&](const tartan_i_dim &dim) {
        if (dim.kind != TARTAN_I_DIM_BROADCAST) return;
        std::vector<int64_t> &a = sizes_[dim.index], &b = sizes_[dim.other];
        const bool empty = wish.empty == dim.other;
        b = a;
        if (empty && !b.empty()) a.back() = b.back() = 0;
        if (wish.one_shape) return;
        const size_t dropped = any ? below(random_, b.size() + 1) : b.empty() ? 0 : 1;
        b.erase(b.begin(), b.begin() + (std::ptrdiff_t)dropped);
        for (size_t d = 0; any && d < a.size(); d++)
            if (random_() % 4 == 0) a[d] = 1;
        for (int64_t &size : b)
            if (any && random_() % 4 == 0) size = 1;
    });
}

int32_t Case::pick_dtype(tartan_i_dtype_rule of) {
    const int32_t t = wish.dtype, sums = tartan_i_sum_dtype(t);
    const bool half = t == TARTAN_F16 || t == TARTAN_BF16;
    switch (of) {
    case TARTAN_I_DTYPE_O:
        if (tartan_i_is_f8(t)) return pick<int32_t>(random_, {TARTAN_F32, TARTAN_F16, TARTAN_BF16});
        return wish.random && half && random_() % 2 ? TARTAN_F32 : t;
    case TARTAN_I_DTYPE_S:
        return sums;
    case TARTAN_I_DTYPE_L:
        return !wish.random || t == TARTAN_F64
                   ? t
                   : pick<int32_t>(random_, {TARTAN_F32, TARTAN_F16, TARTAN_BF16});
    case TARTAN_I_DTYPE_R:
        return !wish.random ? sums : random_() % 2 ? TARTAN_F32 : TARTAN_F64;
    case TARTAN_I_DTYPE_F64:
        return TARTAN_F64;
    case TARTAN_I_DTYPE_U8:
        return TARTAN_U8;
    case TARTAN_I_DTYPE_I:
        return wish.random ? pick<int32_t>(random_, {TARTAN_I64, TARTAN_I32, TARTAN_U8}) : TARTAN_I64;
    default:
        return t;
    }
}

tartan_layout *Case::layout_of_argument(int i) {
    if (rule(i).kind == TARTAN_OPERAND_CONV) return conv->layout;
    return rule(i).kind == TARTAN_OPERAND_MATRIX ? matrix(i)->layout : (tartan_layout *)given[(size_t)i];
}

void Case::list_elements(int i) {
    const tartan_matrix *m = matrix(i);
    const tartan_layout *l = m->layout;
    std::vector<int64_t> &all = elements_[(size_t)i];
    all.clear();
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t r = 0; r < tartan_i_rows_of(l, l->block_rows[id]); r++)
            for (int64_t c = 0; c < tartan_i_cols_of(l, l->block_cols[id]); c++)
                all.push_back(id * tartan_i_block_elements(m) + r * tartan_i_block_row_stride(m) +
                              c * tartan_i_block_col_stride(m));
}

// Layouts, matrices, masks and convolutions.
void Case::make_handle(int i) {
    const int names = names_of(schema);
    const double density = wish.empty == names ? 0 : wish.random ? pick(random_, {0.0, 0.3, 0.7, 1.0}) : 0.6;
    const auto new_layout = [&] {
        tartan_shape shape = {11, 9, 4, 3, 2};
        if (wish.random && !wish.plain_sizes)
            shape = pick<tartan_shape>(
                random_, {{11, 9, 4, 3, 2}, {5, 7, 1, 1, 1}, {16, 24, 8, 8, 3}, {3, 40, 16, 32, 1}});
        shape.rows *= wish.scale, shape.cols *= wish.scale;
        if (wish.empty == names + 1) shape.rows = 0;
        Layout made = random_layout(shape, density, wish.seed);
        tartan_layout *raw = made.get();
        (layout == nullptr ? layout : others_.emplace_back()) = std::move(made);
        return raw;
    };
    const int like = rule(i).rule.like;
    const auto on = [&]() -> tartan_layout * {
        if (like >= 0 && given[(size_t)like] != nullptr) return layout_of_argument(like);
        return rule(i).kind == TARTAN_OPERAND_MASK && layout != nullptr ? layout.get() : new_layout();
    };
    switch (rule(i).kind) {
    case TARTAN_OPERAND_CONV: {
        const Layout channels = random_layout({6, 4, 2, 2, 1}, density, wish.seed);
        conv = make_conv(channels, wish.random && random_() % 2 ? "kernel=3 padding=1 transposed=1"
                                                                : "kernel=3 padding=1");
        given[(size_t)i] = conv.get();
        break;
    }
    case TARTAN_OPERAND_LAYOUT:
        given[(size_t)i] = new_layout();
        break;
    case TARTAN_OPERAND_MASK: {
        tartan_block_mask *mask = nullptr;
        const auto keep = [](void *, int64_t head, int64_t row, int64_t col) -> int32_t {
            return (head + row * 5 + col * 3) % 4 != 0;
        };
        EXPECT_OK(tartan_block_mask_from_rule(on(), keep, nullptr, &mask));
        masks_[(size_t)i].reset(mask);
        given[(size_t)i] = mask;
        break;
    }
    case TARTAN_OPERAND_MATRIX: {
        const int32_t order = wish.random ? (int32_t)below(random_, 2) : TARTAN_ROW_MAJOR;
        give_matrix(i, new_matrix(on(), pick_dtype(rule(i).dtype), order));
        break;
    }
    default:
        break;
    }
}

std::vector<int64_t> Case::shape_of(int i) {
    const tartan_i_shape_rule &of = rule(i).rule;
    if (of.like >= 0) {
        const tartan_array &other = array(of.like);
        if (given[(size_t)of.like] != nullptr) return {other.shape, other.shape + other.ndim};
    }
    if (of.computed) return shapes_.at((size_t)i);
    if (of.alternatives == 0) return {2, 3};
    const size_t which = (size_t)i < alternatives_.size() ? (size_t)alternatives_[(size_t)i] : 0;
    std::vector<int64_t> shape;
    for (int32_t d = 0; d < of.alternative[which].count; d++) {
        const tartan_i_dim &dim = of.alternative[which].dims[d];
        if (dim.kind == TARTAN_I_DIM_NAME || dim.kind == TARTAN_I_DIM_REST) {
            shape.insert(shape.end(), sizes_[dim.index].begin(), sizes_[dim.index].end());
        } else if (dim.kind == TARTAN_I_DIM_BROADCAST) {
            std::vector<int64_t> all = sizes_[dim.index];
            const std::vector<int64_t> &end = sizes_[dim.other];
            if (all.size() < end.size()) all.insert(all.begin(), end.size() - all.size(), 1);
            for (size_t b = 0; b < end.size(); b++) {
                int64_t &size = all[all.size() - end.size() + b];
                if (size == 1) size = end[b];
            }
            shape.insert(shape.end(), all.begin(), all.end());
        } else if (dim.kind == TARTAN_I_DIM_CONSTANT) {
            shape.push_back(dim.index);
        } else {
            const tartan_layout *l = layout_of_argument(dim.index);
            shape.push_back(dim.kind == TARTAN_I_DIM_BLOCKS ? l->blocks
                            : dim.kind == TARTAN_I_DIM_ROWS ? l->shape.rows
                            : dim.kind == TARTAN_I_DIM_COLS ? l->shape.cols
                                                            : l->shape.heads);
        }
    }
    return shape;
}

void Case::make_array(int i) {
    const int styles = is_output(i) || !wish.repeated || is_distinct(i)
                           ? kRepeated
                           : kStyles; // elements of outputs have memory of their own
    const Style style = wish.random ? (Style)below(random_, (size_t)styles) : kRows;
    const int like = (size_t)i < dtypes_.size() ? dtypes_[(size_t)i] : -1;
    const int32_t picked = pick_dtype(rule(i).dtype), dtype = like >= 0 ? array(like).dtype : picked;
    give_array(i, Dense(dtype, shape_of(i), style));
    if (rule(i).dtype == TARTAN_I_DTYPE_I)
        fill_indices(i);
    else if (rule(i).dtype == TARTAN_I_DTYPE_U8)
        dense(i).fill(random_, 0, 2);
    else if (rule(i).use != TARTAN_I_OUT || rule(i).old_arguments != 0 || rule(i).old_options != 0)
        dense(i).fill(random_, wish.low, wish.high);
}

// Whole numbers below the limit that a row of `extras` sets, else 0; from the base of the options on.
void Case::fill_indices(int i) {
    const int64_t limit = (size_t)i < limits_.size() ? limits_[(size_t)i] : 1;
    const int64_t base = (" " + options + " ").find(" base=1 ") == std::string::npos ? 0 : 1;
    const int64_t n = array(i).ndim > 0 ? array(i).shape[array(i).ndim - 1] : 1;
    const int64_t total = (size_t)i < totals_.size() ? totals_[(size_t)i] : -1;
    for (int64_t e = 0; total >= 0 && e < elements(i); e++)
        set(i, e, (double)(e + 1 < n ? e * e * total / (n * n) : total));
    if (total >= 0) return;
    int64_t first = 0;
    for (int64_t e = 0; e < elements(i); e++) {
        const int64_t index = limit > 0 ? (int64_t)below(random_, (size_t)limit) : 0;
        if (e % n == 0) first = index;
        set(i, e, (double)(base + (is_distinct(i) ? (first + e % n) % std::max<int64_t>(limit, 1) : index)));
    }
}

void Case::extra() {
    for (const Extra &row : extras)
        if (std::string(row.operation) == schema.name && (row.always || wish.extras)) row.make(*this);
}

} // namespace tartan_test
