/* SPDX-License-Identifier: Apache-2.0
 * Control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max) and
 * https://docs.kernel.org/scheduler/sched-bwc.html (cpu.cfs_quota_us). */
#include "core/quota.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = PATH_MAX + 64 };

/* The first line of root/folder/name; false if there is none. */
static bool read_line(const char *root, const char *folder, const char *name, char line[LINE]) {
    char path[2 * LINE];
    if (snprintf(path, sizeof path, "%s%s/%s", root, folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    const bool read = fgets(line, LINE, file) != NULL;
    fclose(file);
    return read;
}

/* "QUOTA PERIOD", in microseconds of processor time per period; "max PERIOD" or "-1 PERIOD" without a limit. */
static double processors_in(const char *text) {
    char *end;
    const double quota = strtod(text, &end);
    if (end == text) return 0;
    const double period = strtod(end, NULL);
    return quota > 0 && period > 0 ? quota / period : 0;
}

static double quota_of(const char *root, const char *folder, bool unified) {
    char quota[2 * LINE], period[LINE];
    if (unified) return read_line(root, folder, "cpu.max", quota) ? processors_in(quota) : 0;
    if (!read_line(root, folder, "cpu.cfs_quota_us", quota) ||
        !read_line(root, folder, "cpu.cfs_period_us", period))
        return 0;
    quota[strcspn(quota, "\n")] = ' ';
    strcat(quota, period);
    return processors_in(quota);
}

/* The smallest quota of a group and of those around it. `folder` is cut. */
static double least_quota(const char *root, char *folder, bool unified) {
    double least = 0;
    for (;;) {
        const double quota = quota_of(root, folder, unified);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
        char *slash = strrchr(folder, '/');
        if (slash == NULL) return least;
        *slash = '\0';
    }
}

/* Whether "cpu" is in the list "cpu,cpuacct". */
static bool has_cpu(char *controllers) {
    char *rest;
    for (char *name = strtok_r(controllers, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, "cpu") == 0) return true;
    return false;
}

double tartan_i_processor_quota(const char *groups, const char *root) {
    FILE *file = fopen(groups, "re");
    if (file == NULL) return 0;
    double least = 0;
    char line[LINE], mount[LINE];
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        /* "number:controllers:folder"; no controllers in the unified hierarchy */
        char *controllers = strchr(line, ':');
        char *folder = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (folder == NULL) continue;
        *controllers++ = *folder++ = '\0';
        if (strcmp(folder, "/") == 0) *folder = '\0';
        const bool unified = *controllers == '\0';
        if (snprintf(mount, sizeof mount, "%s%s%s", root, unified ? "" : "/", controllers) >=
                (int)sizeof mount ||
            (!unified && !has_cpu(controllers)))
            continue;
        const double quota = least_quota(mount, folder, unified);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
    }
    fclose(file);
    return least;
}
