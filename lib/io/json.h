/* SPDX-License-Identifier: Apache-2.0
 * Whether a text is JSON. */
#ifndef TARTAN_IO_JSON_H
#define TARTAN_IO_JSON_H

#include <stdbool.h>

/* One value of any kind (RFC 8259), nested at most 256 deep. */
bool tartan_i_json_valid(const char *text);

#endif
