// SPDX-License-Identifier: Apache-2.0
// Operands for any operation of the schema, made from its rules alone: a Case is one call of an operation.
//
// What rules can't say (the functions that entries name as CHECK) has a row in `extras` (schema_extras.h). An operation
// without one gets operands that its rules allow.
#ifndef TARTAN_TESTS_SCHEMA_CASE_H
#define TARTAN_TESTS_SCHEMA_CASE_H

#include "../ops/conv_support.h"

#include <sstream>

extern "C" {
#include "backend/schema.h"
#include "ops/call.h"
}

namespace tartan_test {

struct FreeMask {
    void operator()(tartan_block_mask *p) const { tartan_block_mask_free(p); }
};
using Mask = std::unique_ptr<tartan_block_mask, FreeMask>;

// Which operands are made. Plain ones are small and contiguous, have different sizes and one dtype.
struct Wish {
    int32_t dtype = TARTAN_F32;   // T
    uint64_t seed = 1;            // of values, and of all that is random
    bool optionals = true;        // whether arguments that may be left out are given
    bool outputs = false;         // whether all results are, whatever else is chosen
    bool random = false;          // random sizes, strides, dtypes, block orders and optional arguments
    bool plain_sizes = false;     // not those
    bool repeated = true;         // inputs may have strides of 0
    bool one_shape = false;       // operands that are broadcast have the same shape
    bool extras = false;          // also what a row of `extras` adds
    int64_t scale = 1;            // factor of the first two names, and of layouts
    int empty = -1;               // what is 0: a size by the number of its name, then all blocks, all rows
    std::string options{};        // begin of the text
    double low = 0.3, high = 1.7; // values: away from zeros, poles and edges of domains
};

inline bool is_array_kind(int32_t kind) {
    return kind == TARTAN_OPERAND_ARRAY || kind == TARTAN_OPERAND_ARRAYS;
}

// The number of arrays in lists.
inline bool is_count(const tartan_i_option_rule &option) {
    return option.positional && option.kind == TARTAN_I_OPTION_WHOLE;
}

inline const tartan_i_schema &schema_of(int op) {
    return tartan_i_schemas[op];
}

class Case {
  public:
    const tartan_i_schema &schema;
    const int op;
    Wish wish;
    std::vector<void *> given; // what is passed on, for each argument
    std::string
        options; // the wish's, and what `extras` add; without numbers and lists that are arguments in C
    std::vector<double> numbers;
    std::vector<int64_t> list; // a SIZES
    std::string windows;       // a WINDOWS, without blanks
    Layout layout;             // of the first matrix; the others have it, or another
    ConvHandle conv;

    Case(int number, const Wish &wanted)
        : schema(schema_of(number)), op(number), wish(wanted), options(wanted.options), random_(wish.seed) {
        const size_t n = (size_t)count();
        given.assign(n, nullptr), arrays_.resize(n), matrices_.resize(n), elements_.resize(n),
            masks_.resize(n);
        for (int32_t i = 0; i < schema.noptions; i++)
            if (schema.options[i].positional) numbers.push_back(schema.options[i].value);
        choose_sizes();
        for (int i = 0; i < count(); i++)
            if (is_given(i)) make_handle(i);
        extra();
        for (int i = 0; i < count(); i++)
            if (is_given(i) && is_array_kind(rule(i).kind)) make_array(i);
    }

    int count() const { return schema.narguments; }
    const tartan_i_argument &rule(int i) const { return schema.arguments[i]; }
    bool is_output(int i) const { return rule(i).use != TARTAN_I_IN; }
    // A list of arrays is one array: their number is 1.
    bool is_array(int i) const { return given[(size_t)i] != nullptr && is_array_kind(rule(i).kind); }
    bool is_matrix(int i) const {
        return given[(size_t)i] != nullptr && rule(i).kind == TARTAN_OPERAND_MATRIX;
    }
    bool has_values(int i) const { return is_array(i) || is_matrix(i); }
    int find(const std::string &name) const {
        for (int i = 0; i < count(); i++)
            if (name == rule(i).name) return i;
        return -1;
    }
    Dense &dense(int i) { return arrays_[(size_t)i]; }
    tartan_array &array(int i) { return arrays_[(size_t)i].array; }
    tartan_matrix *matrix(int i) { return matrices_[(size_t)i].get(); }
    int32_t dtype_of(int i) { return is_array(i) ? array(i).dtype : matrix(i)->dtype; }

    // The text for tartan_op_run, which takes all options by name.
    std::string text() const {
        std::string all = words();
        for (int32_t i = 0, at = 0; i < schema.noptions; i++) {
            const tartan_i_option_rule &o = schema.options[i];
            if (!o.positional) continue;
            const double value = numbers[(size_t)at++];
            std::string word;
            if (o.kind == TARTAN_I_OPTION_WINDOWS) continue;
            if (o.kind == TARTAN_I_OPTION_SIZES)
                for (const int64_t size : list) word += (word.empty() ? "" : "x") + std::to_string(size);
            else if (value != o.value)
                word = in_full(value);
            if (!word.empty()) all += std::string(" ") + o.name + "=" + word;
        }
        return all;
    }
    static std::string in_full(double value) {
        char text[40];
        std::snprintf(text, sizeof text, "%.17g", value);
        return text;
    }
    // Whether what an output holds before the call counts.
    bool has_old_values(int i) const {
        const tartan_i_argument &a = rule(i);
        bool old = a.use == TARTAN_I_UPDATE;
        for (int j = 0; j < count(); j++)
            old = old || ((a.old_arguments >> j & 1) != 0 && given[(size_t)j] != nullptr);
        for (int32_t j = 0, at = 0; j < schema.noptions; j++) {
            const tartan_i_option_rule &o = schema.options[j];
            const bool not_zero = o.positional
                                      ? numbers[(size_t)at] != 0
                                      : options.find(std::string(o.name) + "=1") != std::string::npos;
            at += o.positional;
            old = old || ((a.old_options >> j & 1) != 0 && not_zero);
        }
        return old;
    }
    // Other options, beside those of this case that they don't name.
    std::string beside(const std::string &others) const {
        std::string all = others;
        std::istringstream own(words());
        for (std::string word; own >> word;)
            if ((" " + others).find(" " + word.substr(0, word.find('=') + 1)) == std::string::npos)
                all += " " + word;
        return all;
    }
    bool has_option(const std::string &name) const {
        return (" " + options).find(" " + name + "=") != std::string::npos;
    }
    tartan_status run(tartan_context *context) {
        return tartan_op_run(context, op, given.data(), count(), text().c_str());
    }
    tartan_status infer(std::vector<tartan_op_result> &results) {
        int64_t found = 0;
        results.resize((size_t)count());
        const tartan_status status =
            tartan_op_infer(op, given.data(), count(), text().c_str(), results.data(), count(), &found);
        results.resize((size_t)found);
        return status;
    }

    // ---- Elements: of an array in row-major order, of a matrix block by block without padding. ----
    int64_t elements(int i) {
        return is_array(i) ? dense(i).elements() : (int64_t)elements_[(size_t)i].size();
    }
    double get(int i, int64_t e) {
        if (is_array(i)) return dense(i).get(e);
        return tartan_i_load(matrix(i)->values, matrix(i)->dtype, elements_[(size_t)i][(size_t)e]);
    }
    void set(int i, int64_t e, double value) {
        if (is_array(i)) return dense(i).set(e, value);
        tartan_i_store(matrix(i)->values, matrix(i)->dtype, elements_[(size_t)i][(size_t)e], value);
    }
    void fill(int i, double value) {
        for (int64_t e = 0; e < elements(i); e++) set(i, e, value);
    }
    std::vector<double> values(int i) {
        std::vector<double> all;
        for (int64_t e = 0; e < elements(i); e++) all.push_back(get(i, e));
        return all;
    }
    // All that the call may write, padding and gaps included.
    std::vector<std::string> memory_of_outputs() {
        std::vector<std::string> all;
        for (int i = 0; i < count(); i++)
            if (is_output(i) && has_values(i)) all.push_back(memory(i));
        return all;
    }
    std::string memory(int i) {
        if (is_array(i)) return std::string(dense(i).memory().data(), dense(i).memory().size());
        const tartan_array view = tartan_i_matrix_view(matrix(i));
        return std::string((const char *)view.data,
                           (size_t)(tartan_i_array_elements(&view) * tartan_dtype_bytes(view.dtype)));
    }

    // ---- For what a test changes. ----
    void give_array(int i, const Dense &made) {
        dense(i) = made;
        given[(size_t)i] = &array(i);
    }
    void give_matrix(int i, Matrix made) {
        matrices_[(size_t)i] = std::move(made);
        given[(size_t)i] = matrix(i);
        list_elements(i);
    }
    Matrix new_matrix(tartan_layout *on, int32_t dtype, int32_t order) {
        const Layout held(tartan_layout_retain(on));
        return random_matrix(held, dtype, order, random_, wish.low, wish.high);
    }
    // For schema_extras.h: the sizes of the name at a place of an argument's shape, a shape that is computed, and which alternative the
    // shape is.
    void set_sizes(int argument, int place, const std::vector<int64_t> &sizes, int alternative = 0) {
        sizes_[rule(argument).rule.alternative[alternative].dims[place].index] = sizes;
    }
    void set_shape(int argument, const std::vector<int64_t> &shape) {
        shapes_.resize((size_t)count());
        shapes_[(size_t)argument] = shape;
    }
    void set_alternative(int argument, int which) {
        alternatives_.resize((size_t)count());
        alternatives_[(size_t)argument] = which;
    }
    const std::vector<int64_t> &sizes(int argument, int place) {
        return sizes_[rule(argument).rule.alternative[0].dims[place].index];
    }
    void set_dtype_of(int argument, int like) {
        dtypes_.resize((size_t)count(), -1);
        dtypes_[(size_t)argument] = like;
    }
    // For whole numbers: they are below.
    void set_limit(int argument, int64_t limit) {
        limits_.resize((size_t)count(), 1);
        limits_[(size_t)argument] = limit;
    }
    // The same, none twice in a line along the last axis.
    void set_distinct(int argument, int64_t limit) {
        set_limit(argument, limit);
        distinct_.resize((size_t)count());
        distinct_[(size_t)argument] = true;
    }
    // For whole numbers: they count up to a total, the last one.
    void set_counts(int argument, int64_t total) {
        totals_.resize((size_t)count(), -1);
        totals_[(size_t)argument] = total;
    }
    void choose(int argument, bool is) {
        (void)is_given(argument);
        if (!chosen_.empty()) chosen_[(size_t)argument] = is;
    }
    bool is_given(int i) {
        if (!rule(i).optional || (wish.outputs && rule(i).use == TARTAN_I_OUT)) return true;
        if (chosen_.empty())
            for (int a = 0; a < count(); a++)
                chosen_.push_back(wish.random ? random_() % 2 == 0 : wish.optionals);
        return chosen_[(size_t)i];
    }
    std::mt19937_64 &random() { return random_; }

    void give_layout(int i, Layout made) {
        given[(size_t)i] = made.get();
        others_.push_back(std::move(made));
    }
    void give_conv(int i, ConvHandle made) {
        given[(size_t)i] = made.get();
        convs_.push_back(std::move(made));
    }
    void leave_out(int i) {
        choose(i, false);
        given[(size_t)i] = nullptr;
    }
    // Of layouts that a row of `extras` makes.
    double density() const;

  private:
    std::string words() const { return options + (windows.empty() ? "" : " windows=(" + windows + ")"); }
    void choose_sizes();
    void make_handle(int i);
    void make_array(int i);
    void fill_indices(int i);
    bool is_distinct(int i) const { return (size_t)i < distinct_.size() && distinct_[(size_t)i]; }
    void extra();
    int32_t pick_dtype(tartan_i_dtype_rule of);
    std::vector<int64_t> shape_of(int i);
    tartan_layout *layout_of_argument(int i);
    void list_elements(int i);
    template <typename F> void each_dim(F f) const {
        for (int i = 0; i < count(); i++)
            for (int32_t a = 0; a < rule(i).rule.alternatives; a++)
                for (int32_t d = 0; d < rule(i).rule.alternative[a].count; d++)
                    f(rule(i).rule.alternative[a].dims[d]);
    }

    std::mt19937_64 random_;
    std::vector<bool> chosen_; // of the optional arguments
    std::vector<int> alternatives_, dtypes_;
    std::vector<std::vector<int64_t>> shapes_;
    std::vector<int64_t> limits_;
    std::vector<int64_t> totals_;
    std::vector<bool> distinct_;
    std::vector<int64_t> sizes_[TARTAN_I_MAX_NAMES];
    std::vector<Dense> arrays_;
    std::vector<Matrix> matrices_;
    std::vector<std::vector<int64_t>> elements_;
    std::vector<Mask> masks_;
    std::vector<Layout> others_;
    std::vector<ConvHandle> convs_;
};

// The C function's arguments that are no operands.
inline std::vector<tartan_i_positional> positional(const Case &c) {
    std::vector<tartan_i_positional> all;
    for (int32_t i = 0; i < c.schema.noptions; i++) {
        if (!c.schema.options[i].positional) continue;
        tartan_i_positional one;
        if (c.schema.options[i].kind == TARTAN_I_OPTION_SIZES)
            one.sizes = {c.list.empty() ? nullptr : c.list.data(), (int64_t)c.list.size()};
        else if (c.schema.options[i].kind == TARTAN_I_OPTION_WINDOWS)
            one.text = c.windows.empty() ? nullptr : c.windows.c_str();
        else if (is_count(c.schema.options[i]))
            one.whole = (int64_t)c.numbers[all.size()];
        else
            one.number = c.numbers[all.size()];
        all.push_back(one);
    }
    return all;
}

// The number of things of an operation that `Wish::empty` can make 0.
int empties(const tartan_i_schema &schema);

// A few cases of an operation with random operands, the first of each dtype.
inline Wish random_wish(uint64_t seed) {
    Wish wish;
    wish.dtype = kDtypes[seed % 4], wish.seed = seed, wish.random = true;
    return wish;
}

// What T may be, of a product also types of 8 bits.
inline std::vector<int32_t> dtypes_of(const tartan_i_schema &schema) {
    std::vector<int32_t> all(std::begin(kDtypes), std::end(kDtypes));
    if (schema.arguments[0].dtype == TARTAN_I_DTYPE_P) all.insert(all.end(), {TARTAN_F8E4M3, TARTAN_F8E5M2});
    return all;
}

// The operations by name, for tests with a parameter.
inline std::string operation_name(const ::testing::TestParamInfo<int> &info) {
    return schema_of(info.param).name;
}
class ForOperation : public ::testing::TestWithParam<int> {
  protected:
    const int op = GetParam();
    const tartan_i_schema &schema = schema_of(op);
    const Context own = open_context(2);
    tartan_context *context = own.get();
};
#define FOR_EACH_OPERATION(Suite)                                                                            \
    INSTANTIATE_TEST_SUITE_P(Each, Suite, ::testing::Range(0, (int)tartan_i_schema_count), operation_name)

} // namespace tartan_test

#endif
