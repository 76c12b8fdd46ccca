/* SPDX-License-Identifier: Apache-2.0
 * The operations of the dummy device, as plain loops in f64 on memory that can be read and written. */
#ifndef TARTAN_TESTS_DUMMY_OPS_H
#define TARTAN_TESTS_DUMMY_OPS_H

#include "backend/backend.h"

extern const tartan_host *tartan_dummy_host;

int64_t tartan_dummy_bytes(int32_t dtype);

tartan_status tartan_dummy_spmm(const tartan_op *op);
tartan_status tartan_dummy_sddmm(const tartan_op *op);
tartan_status tartan_dummy_gate_gradient(const tartan_op *op);
tartan_status tartan_dummy_growth_score(const tartan_op *op);
tartan_status tartan_dummy_blocks_copy(const tartan_op *op);
tartan_status tartan_dummy_blocks_norms(const tartan_op *op);

#endif
