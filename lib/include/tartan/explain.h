/* SPDX-License-Identifier: Apache-2.0
 * Describes what operations would run, and how, without running them. */
#ifndef TARTAN_EXPLAIN_H
#define TARTAN_EXPLAIN_H

#include "tartan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Between tartan_explain_begin and tartan_explain_end, the operations that this thread calls (operations.h,
 * windows.h) describe themselves instead of running. They check their operands, return the errors of these checks,
 * and write nothing. An operation that the backend does not support is described as such and returns OK.
 * tartan_explain_end returns a JSON array with one object for each operation called:
 *   operation, backend, device     "spmm", "cpu", "cuda:0"
 *   operands                       name, dtype, shape, strides or block, blocks, heads and block order of each
 *   flops, bytes                   useful floating-point operations; the least number of bytes that must move
 *   supported, kernel, why         whether it would run, the kernel, and why this kernel
 *   refused                        every kernel that was not chosen, and why
 *   expected_tflops                from the backend's model, or null
 *   measured_tflops                the rate of the last such call on the context, or null (CPU only)
 * and whatever else the backend reports. For products, the CPU reports instruction_set, threads, column_ranges (into
 * which the threads divide the columns), panels (which are packed one after the other) and faster: sentences that
 * name what would run faster, for instance another dtype, block order, block size or number of columns. Functions of
 * matrix.h and device.h run as usual. A thread that has begun must end before it exits, or the text leaks.
 * Errors: ARGUMENT (already begun; not begun), MEMORY, HANDLE. Free the text with tartan_text_free. */
TARTAN_API tartan_status tartan_explain_begin(void);
TARTAN_API tartan_status tartan_explain_end(char **out_text);

#ifdef __cplusplus
}
#endif
#endif
