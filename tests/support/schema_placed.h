// SPDX-License-Identifier: Apache-2.0
// The operands of a Case on the device of a backend under test.
#ifndef TARTAN_TESTS_SCHEMA_PLACED_H
#define TARTAN_TESTS_SCHEMA_PLACED_H

#include "placed.h"
#include "schema_case.h"

namespace tartan_test {

// On the CPU these are the operands themselves.
class PlacedCase {
  public:
    std::vector<void *> given;

    PlacedCase(tartan_context *context, Case &c, bool on_host) : c_(c), context_(context) {
        given = c.given;
        if (on_host) return;
        arrays_.resize(given.size()), matrices_.resize(given.size());
        for (int i = 0; i < c.count(); i++) {
            const size_t at = (size_t)i;
            if (c.is_array(i)) {
                arrays_[at] = std::make_unique<Placed>(context, c.dense(i));
                given[at] = &arrays_[at]->array;
            } else if (c.is_matrix(i)) {
                tartan_matrix *raw = nullptr;
                EXPECT_OK(tartan_matrix_to_device(context, c.matrix(i), &raw));
                matrices_[at].reset(raw);
                given[at] = raw;
            }
        }
    }
    tartan_status run() {
        return tartan_op_run(context_, c_.op, given.data(), c_.count(), c_.text().c_str());
    }
    // Copies outputs back to the operands of the case.
    void fetch() {
        for (int i = 0; i < c_.count(); i++) {
            if (!c_.is_output(i) || arrays_.empty()) continue;
            const size_t at = (size_t)i;
            if (arrays_[at] != nullptr) arrays_[at]->fetch(c_.dense(i));
            if (matrices_[at] != nullptr) c_.give_matrix(i, fetched(context_, matrices_[at]));
        }
    }

  private:
    Case &c_;
    tartan_context *context_;
    std::vector<std::unique_ptr<Placed>> arrays_;
    std::vector<Matrix> matrices_;
};

} // namespace tartan_test

#endif
