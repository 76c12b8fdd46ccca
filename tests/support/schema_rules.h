// SPDX-License-Identifier: Apache-2.0
// What the rules of an operation allow, read once more and in another way than the library reads them: which argument is the first
// that does not fit, and why.
#ifndef TARTAN_TESTS_SCHEMA_RULES_H
#define TARTAN_TESTS_SCHEMA_RULES_H

#include "schema_case.h"

namespace tartan_test {

struct Verdict {
    tartan_status status = TARTAN_OK;
    int argument = -1;
};

inline bool dtype_fits(tartan_i_dtype_rule rule, int32_t dtype, int32_t t) {
    const std::vector<int32_t> wide(std::begin(kDtypes), std::end(kDtypes));
    const auto any_of = [&](const std::vector<int32_t> &all) {
        return std::find(all.begin(), all.end(), dtype) != all.end();
    };
    switch (rule) {
    case TARTAN_I_DTYPE_T:
        return t == 0 ? any_of(wide) : dtype == t;
    case TARTAN_I_DTYPE_P:
        return t == 0 ? any_of(wide) || dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2 : dtype == t;
    case TARTAN_I_DTYPE_O:
        if (t == TARTAN_F8E4M3 || t == TARTAN_F8E5M2) return any_of({TARTAN_F32, TARTAN_F16, TARTAN_BF16});
        return t == TARTAN_F64 || t == TARTAN_F32 ? dtype == t : any_of({t, TARTAN_F32});
    case TARTAN_I_DTYPE_S:
        return dtype == (t == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32);
    case TARTAN_I_DTYPE_L:
        return t == TARTAN_F64 ? dtype == t : any_of({TARTAN_F32, TARTAN_F16, TARTAN_BF16});
    case TARTAN_I_DTYPE_M:
        return t == TARTAN_F64 ? dtype == t : any_of({TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3});
    case TARTAN_I_DTYPE_C:
        return any_of(wide) || dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
    case TARTAN_I_DTYPE_R:
        return any_of({TARTAN_F32, TARTAN_F64});
    case TARTAN_I_DTYPE_F64:
        return dtype == TARTAN_F64;
    case TARTAN_I_DTYPE_U8:
        return dtype == TARTAN_U8;
    case TARTAN_I_DTYPE_I:
        return any_of({TARTAN_U8, TARTAN_I32, TARTAN_I64});
    default:
        return true;
    }
}

class Rules {
  public:
    explicit Rules(Case &c) : c_(c) {}

    Verdict judge() {
        int32_t t = 0;
        for (int i = 0; i < c_.count(); i++) {
            const tartan_i_argument &a = c_.rule(i);
            if (c_.given[(size_t)i] == nullptr) {
                if (a.optional) continue;
                return {TARTAN_ERR_HANDLE, i};
            }
            if (!c_.has_values(i)) continue;
            if (!dtype_fits(a.dtype, c_.dtype_of(i), t)) return {TARTAN_ERR_DTYPE, i};
            if (a.dtype == TARTAN_I_DTYPE_T || a.dtype == TARTAN_I_DTYPE_P) t = c_.dtype_of(i);
            argument_ = i;
            if (c_.is_array(i) && !shape_fits(a.rule, c_.array(i)))
                return {TARTAN_ERR_SHAPE, second_ >= 0 ? second_ : i};
        }
        return {};
    }

  private:
    using Sizes = std::vector<int64_t>;

    bool shape_fits(const tartan_i_shape_rule &rule, const tartan_array &array) {
        const Sizes shape(array.shape, array.shape + array.ndim);
        if (rule.like >= 0) {
            const tartan_array &other = c_.array(rule.like);
            return shape == Sizes(other.shape, other.shape + other.ndim);
        }
        for (int32_t a = 0; a < rule.alternatives; a++) {
            const auto before = known_;
            if (alternative_fits(rule.alternative[a].dims, rule.alternative[a].count, shape)) return true;
            known_ = before;
        }
        return rule.alternatives == 0;
    }

    bool alternative_fits(const tartan_i_dim *dims, int32_t count, const Sizes &shape) {
        size_t rest = shape.size(), at = 0;
        for (int32_t d = 0; d < count; d++)
            if (dims[d].kind != TARTAN_I_DIM_REST && dims[d].kind != TARTAN_I_DIM_BROADCAST) {
                if (rest == 0) return false;
                rest--;
            }
        for (int32_t d = 0; d < count; d++) {
            Sizes wanted;
            if (dims[d].kind == TARTAN_I_DIM_NAME || dims[d].kind == TARTAN_I_DIM_REST) {
                const auto found = known_.find(dims[d].index);
                if (found != known_.end()) {
                    wanted = found->second;
                } else {
                    const size_t n = dims[d].kind == TARTAN_I_DIM_NAME ? 1 : rest;
                    if (at + n > shape.size()) return false;
                    wanted.assign(shape.begin() + (std::ptrdiff_t)at,
                                  shape.begin() + (std::ptrdiff_t)(at + n));
                    known_[dims[d].index] = wanted;
                    by_[dims[d].index] = argument_;
                }
            } else if (!expand(dims[d], wanted)) {
                return false;
            }
            if (at + wanted.size() > shape.size() ||
                !std::equal(wanted.begin(), wanted.end(), shape.begin() + (std::ptrdiff_t)at))
                return false;
            at += wanted.size();
        }
        return at == shape.size();
    }

    bool expand(const tartan_i_dim &dim, Sizes &out) {
        if (dim.kind == TARTAN_I_DIM_CONSTANT) {
            out = {dim.index};
        } else if (dim.kind == TARTAN_I_DIM_BROADCAST) {
            Sizes a = known_[dim.index], b = known_[dim.other];
            while (a.size() < b.size()) a.insert(a.begin(), 1);
            while (b.size() < a.size()) b.insert(b.begin(), 1);
            for (size_t d = 0; d < a.size(); d++) {
                if (a[d] != b[d] && a[d] != 1 && b[d] != 1) {
                    second_ = by_[dim.other];
                    return false;
                }
                out.push_back(a[d] == 1 ? b[d] : a[d]);
            }
        } else {
            const tartan_layout *l = c_.is_matrix(dim.index)
                                         ? c_.matrix(dim.index)->layout
                                         : (const tartan_layout *)c_.given[(size_t)dim.index];
            out = {dim.kind == TARTAN_I_DIM_BLOCKS ? l->blocks
                   : dim.kind == TARTAN_I_DIM_ROWS ? l->shape.rows
                   : dim.kind == TARTAN_I_DIM_COLS ? l->shape.cols
                                                   : l->shape.heads};
        }
        return true;
    }

    Case &c_;
    std::map<int32_t, Sizes> known_;
    std::map<int32_t, int> by_; // the argument that decided
    int argument_ = -1;
    int second_ = -1; // what cannot be broadcast
};

} // namespace tartan_test

#endif
