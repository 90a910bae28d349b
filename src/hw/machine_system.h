/* hw/machine_system.h: what the operating system says of this machine. Paths begin at `root`, "" for the real ones: tests
 * bring their own.
 */
#ifndef TL_HW_MACHINE_SYSTEM_H
#define TL_HW_MACHINE_SYSTEM_H

#include "tally/base.h"

typedef struct tl_caches {
    int n; /* levels found, L1 first */
    struct {
        int level;
        int64_t bytes;
        int shared_by; /* processors that share one */
    } at[4];
} tl_caches;

/* Of one processor: hwloc's word where it is built in and `root` is "", else sysfs. None found is n = 0. */
void tl_caches_read(const char *root, tl_caches *caches);
/* "AMD EPYC"; without one in /proc/cpuinfo the kind of processor, as uname names it. */
void tl_cpu_name(const char *root, char *name, size_t size);
tl_status tl_memory_read(const char *root, int64_t *total, int64_t *available, tl_error *error) TL_MUST_CHECK;
/* Processors a cgroup's quota pays for, rounded up; 0: no quota. */
int tl_cpu_quota(const char *root);

#endif
