// SPDX-License-Identifier: Apache-2.0
// The launch functions of the tables, without a GPU: they only note that they were called.
#ifndef TARTAN_TESTS_CUDA_LAUNCHES_H
#define TARTAN_TESTS_CUDA_LAUNCHES_H

#include <string>

namespace tartan_test {

// The kernel that was launched last.
std::string last_launch();

} // namespace tartan_test

#endif
