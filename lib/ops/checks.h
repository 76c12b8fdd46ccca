/* SPDX-License-Identifier: Apache-2.0
 * What rows of the schema can't say: the functions that entries name as CHECK and END. */
#ifndef TARTAN_OPS_CHECKS_H
#define TARTAN_OPS_CHECKS_H

#include "backend/operation.h"

#endif
