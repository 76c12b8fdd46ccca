/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TARTAN_CORE_QUOTA_H
#define TARTAN_CORE_QUOTA_H

/* The processor time per time that the control groups of a process allow it: 1.5 for one and a half processors, 0
 * without a limit. Containers set it (docker --cpus=4, limits in Kubernetes) and leave the number of visible processors
 * as it is; more threads than it has room for are stopped for most of each period, all at once. `groups` is the list of
 * groups, /proc/self/cgroup; `root` is where the hierarchies are mounted, /sys/fs/cgroup. */
double tartan_i_processor_quota(const char *groups, const char *root);

#endif
