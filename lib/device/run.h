/* SPDX-License-Identifier: Apache-2.0
 * How operations reach a backend. */
#ifndef TARTAN_DEVICE_RUN_H
#define TARTAN_DEVICE_RUN_H

#include "device/resource.h"

/* Enters the context and runs the operation after the work of other queues that it depends on. Between
 * tartan_explain_begin and tartan_explain_end it describes the operation instead. */
tartan_status tartan_i_run(tartan_context *context, const tartan_op *op);

/* Runs it as part of a call that has entered the context. */
tartan_status tartan_i_call_run(tartan_i_call *call, const tartan_op *op);

#endif
