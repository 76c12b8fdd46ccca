/* SPDX-License-Identifier: Apache-2.0
 * Tartan: block-sparse computing. The one header that users include. */
#ifndef TARTAN_H
#define TARTAN_H

#include "tartan/status.h"

#include "tartan/arithmetic.h"
#include "tartan/array.h"
#include "tartan/block_mask.h"
#include "tartan/context.h"
#include "tartan/conv.h"
#include "tartan/device.h"
#include "tartan/explain.h"
#include "tartan/io.h"
#include "tartan/layout.h"
#include "tartan/layout_derived.h"
#include "tartan/matrix.h"
#include "tartan/operation.h"
#include "tartan/operations.h"
#include "tartan/reorder.h"
#include "tartan/sparsifier.h"
#include "tartan/structure.h"
#include "tartan/threads.h"
#include "tartan/windows.h"

#endif
