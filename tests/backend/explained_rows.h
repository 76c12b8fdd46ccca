// SPDX-License-Identifier: Apache-2.0
// What the CPU says of the rows of an operation: the one that it chooses, and why not the others.
#ifndef TARTAN_TESTS_EXPLAINED_ROWS_H
#define TARTAN_TESTS_EXPLAINED_ROWS_H

#include "explained.h"

extern "C" {
#include "backend/cpu.h"
}

namespace tartan_test {

struct Refusal {
    const char *row, *why;
};

// All rows of the operation are the chosen one and these.
inline void expect_row(tartan_op_kind op, const std::string &text, const char *chosen,
                       const std::vector<Refusal> &others) {
    EXPECT_NE(std::string::npos, text.find(", \"kernel\": \"" + std::string(chosen) + "\", ")) << text;
    for (const Refusal &r : others)
        EXPECT_NE(std::string::npos,
                  text.find("{\"kernel\": \"" + std::string(r.row) + "\", \"why\": \"" + r.why + "\"}"))
            << r.row << ": " << r.why << "\n"
            << text;
    EXPECT_EQ((size_t)tartan_i_cpu_table[op].count, others.size() + 1);
}

inline const char *const kSlower = "slower with these operands";

} // namespace tartan_test

#endif
