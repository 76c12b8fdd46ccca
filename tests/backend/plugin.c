/* SPDX-License-Identifier: Apache-2.0
 * A plug-in for tests of the registry. TARTAN_TEST_PLUGIN says what is wrong with it; nothing if it is "right". */
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

static int32_t no_devices(const char **out_reason) {
    *out_reason = "the plug-in of the tests has none";
    return 0;
}

static tartan_backend backend = {
    .abi = TARTAN_BACKEND_ABI, .name = "test", .device_type = TARTAN_CUDA, .devices = no_devices};

__attribute__((visibility("default"))) const tartan_backend *tartan_plugin_get(const tartan_host *host);
const tartan_backend *tartan_plugin_get(const tartan_host *host) {
    if (host == NULL || host->abi != TARTAN_BACKEND_ABI || host->plan == NULL) return NULL;
    const char *fault = getenv("TARTAN_TEST_PLUGIN");
    if (fault != NULL && strcmp(fault, "null") == 0) return NULL;
    if (fault != NULL && strcmp(fault, "abi") == 0) backend.abi = 99;
    if (fault != NULL && strcmp(fault, "device") == 0) backend.device_type = TARTAN_CPU;
    return &backend;
}
