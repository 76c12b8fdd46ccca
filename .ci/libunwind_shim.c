// SPDX-License-Identifier: Apache-2.0
// Julia 1.5.3 of Debian 11 registers compiled frames with libunwind in a table that Debian 12's libunwind 1.6
// cannot search: the first exception crashes. Julia finds its frames without the table, so registering is a no-op.
// Preloaded by build/bin/julia only where setup-julia.sh saw the crash.
void _U_dyn_register(void *table);
void _U_dyn_cancel(void *table);

void _U_dyn_register(void *table) {
    (void)table;
}

void _U_dyn_cancel(void *table) {
    (void)table;
}
