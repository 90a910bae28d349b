/* hw/machine_system.c: see machine_system.h. */
#include "hw/machine_system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tally/machine.h"

#ifdef TL_HAVE_HWLOC
#include <hwloc.h>
#endif

/* The beginning of a file of /proc or /sys as text; false when it cannot be read. */
static bool read_text(const char *root, const char *path, char *text, size_t size) {
    char full[PATH_MAX];
    size_t used = 0;
    ssize_t got = 0;
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    int file = n > 0 && (size_t)n < sizeof full ? open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0)
        return false;
    while (used + 1 < size && (got = read(file, text + used, size - 1 - used)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return got >= 0;
}

/* A whole number at `text`, with "K" or "M" behind it as sysfs writes sizes; -1 when there is none. */
static int64_t number_at(const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int64_t result = value, unit = *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1;
    return end == text || errno || value < 0 || !tl_mul_i64(value, unit, &result) ? -1 : result;
}

/* The number after `key` at the beginning of a line; -1 when there is none. */
static int64_t number_of(const char *text, const char *key) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0)
            return number_at(line + length);
    }
    return -1;
}

/* ---- cgroups -------------------------------------------------------------------------------------------------- */

/* A group's folder below the mount point of its controller, and its parents up to that point, are visited by `visit`. In a
 * container the name may be the host's and not be there: then only the mount point is, and holds the container's own. */
typedef void group_visit(const char *root, const char *folder, bool second, void *into);

static void visit_up(const char *root, const char *mount, const char *name, bool second, group_visit *visit,
                     void *into) {
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, strcmp(name, "/") == 0 ? "" : name);
    size_t least = strlen(mount);
    if (n < 0 || (size_t)n >= sizeof folder || strstr(name, "/.."))
        return visit(root, mount, second, into);
    for (;;) {
        visit(root, folder, second, into);
        char *cut = strrchr(folder, '/');
        if (!cut || (size_t)(cut - folder) < least)
            return;
        *cut = '\0';
    }
}

/* Is `controller` among the comma-separated `list`? */
static bool lists(const char *list, const char *controller) {
    size_t length = strlen(controller);
    for (;;) {
        size_t word = strcspn(list, ",");
        if (word == length && strncmp(list, controller, word) == 0)
            return true;
        if (list[word] == '\0')
            return false;
        list += word + 1;
    }
}

/* Lines of /proc/self/cgroup are "number:controllers:name"; of the second version "0::name". */
static void visit_groups(const char *root, const char *controller, group_visit *visit, void *into) {
    char text[16384], mount[256], *next;
    if (!read_text(root, "/proc/self/cgroup", text, sizeof text))
        return;
    for (char *line = text; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *controllers = strchr(line, ':'), *name = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!name)
            continue;
        *name++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            visit_up(root, "/sys/fs/cgroup", name, true, visit, into);
            visit_up(root, "/sys/fs/cgroup/unified", name, true, visit, into);
        } else if (lists(controllers, controller)) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%.200s", controllers);
            visit_up(root, mount, name, false, visit, into);
            if (strcmp(controllers, controller) != 0) { /* mounted together, and by the single name too */
                snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
                visit_up(root, mount, name, false, visit, into);
            }
        }
    }
}

static bool read_in(const char *root, const char *folder, const char *file, char *text, size_t size) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    return n > 0 && (size_t)n < sizeof path && read_text(root, path, text, size);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

typedef struct memory {
    int64_t machine, total, available;
} memory;

static void limit_memory(const char *root, const char *folder, bool second, void *into) {
    memory *found = into;
    char text[8192];
    /* "max" in the second version and about 2^63 in the first say that there is none. */
    int64_t limit = read_in(root, folder, second ? "memory.max" : "memory.limit_in_bytes", text, sizeof text)
                        ? number_at(text)
                        : -1;
    if (limit < 0 || limit >= found->machine)
        return;
    if (limit < found->total)
        found->total = limit;
    int64_t used = read_in(root, folder, second ? "memory.current" : "memory.usage_in_bytes", text, sizeof text)
                       ? number_at(text)
                       : 0;
    /* Pages of files that nobody used for long are given back before anyone is refused. */
    int64_t idle = read_in(root, folder, "memory.stat", text, sizeof text)
                       ? number_of(text, second ? "inactive_file " : "total_inactive_file ")
                       : 0;
    int64_t left = limit - (used > 0 ? used : 0) + (idle > 0 ? idle : 0);
    left = left < 0 ? 0 : left > limit ? limit : left;
    if (left < found->available)
        found->available = left;
}

tl_status tl_memory_read(const char *root, int64_t *total, int64_t *available, tl_error *error) {
    char text[8192];
    memory found = {-1, -1, -1};
    if (!read_text(root, "/proc/meminfo", text, sizeof text))
        return tl_fail(error, TL_ERR_IO, "this machine's memory: %s/proc/meminfo cannot be read: %s", root,
                       strerror(errno));
    int64_t kib = number_of(text, "MemTotal:"), free_kib = number_of(text, "MemAvailable:");
    if (free_kib < 0)
        free_kib = number_of(text, "MemFree:"); /* before Linux 3.14 */
    if (kib <= 0 || free_kib < 0 || !tl_mul_i64(kib, 1024, &found.total) ||
        !tl_mul_i64(free_kib, 1024, &found.available))
        return tl_fail(error, TL_ERR_FORMAT,
                       "this machine's memory: %s/proc/meminfo has no MemTotal and MemAvailable that make sense", root);
    found.machine = found.total;
    visit_groups(root, "memory", limit_memory, &found);
    *total = found.total;
    *available = found.available < found.total ? found.available : found.total;
    return TL_OK;
}

tl_status tl_machine_memory(int64_t *total, int64_t *available, tl_error *error) {
    return tl_memory_read("", total, available, error);
}

/* ---- processors ----------------------------------------------------------------------------------------------- */

static void limit_cpu(const char *root, const char *folder, bool second, void *into) {
    int *found = into;
    char text[128];
    int64_t quota = -1, period = -1;
    if (second && read_in(root, folder, "cpu.max", text, sizeof text)) { /* "200000 100000" or "max 100000" */
        const char *space = strchr(text, ' ');
        quota = number_at(text);
        period = space ? number_at(space + 1) : -1;
    } else if (!second && read_in(root, folder, "cpu.cfs_quota_us", text, sizeof text)) {
        quota = number_at(text);
        period = read_in(root, folder, "cpu.cfs_period_us", text, sizeof text) ? number_at(text) : -1;
    }
    if (quota <= 0 || period <= 0)
        return;
    int64_t whole = quota / period + (quota % period != 0);
    if (whole < 1 << 20 && (*found == 0 || whole < *found))
        *found = (int)whole;
}

int tl_cpu_quota(const char *root) {
    int found = 0;
    visit_groups(root, "cpu", limit_cpu, &found);
    return found;
}

void tl_cpu_name(const char *root, char *name, size_t size) {
    char text[8192];
    struct utsname system;
    const char *at = read_text(root, "/proc/cpuinfo", text, sizeof text) ? strstr(text, "model name") : NULL;
    size_t used = 0;
    at = at ? strchr(at, ':') : NULL;
    if (!at)
        at = uname(&system) == 0 ? system.machine : "unknown";
    else
        at++;
    for (; *at && *at != '\n' && used + 1 < size; at++) {
        bool space = *at == ' ' || *at == '\t';
        if ((unsigned char)*at < ' ' && !space)
            continue;
        if (space && (used == 0 || name[used - 1] == ' '))
            continue;
        name[used++] = space ? ' ' : *at;
    }
    while (used && name[used - 1] == ' ')
        used--;
    name[used] = '\0';
}

int tl_machine_cores(void) {
    cpu_set_t *set = NULL;
    int cores = 0;
    /* A machine may have more processors than a cpu_set_t: the kernel says so and a larger set is tried. */
    for (int room = 1024; room <= 1 << 18 && cores == 0; room *= 4) {
        set = CPU_ALLOC((size_t)room);
        if (!set)
            break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)room), set) == 0)
            cores = CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)room), set);
        CPU_FREE(set);
    }
    if (cores < 1) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        cores = online > 0 && online < INT_MAX ? (int)online : 1;
    }
    /* Two threads of one core share its units: a thread for each core is what products want. */
    char text[64];
    if (cores > 1 && read_text("", "/sys/devices/system/cpu/smt/active", text, sizeof text) && number_at(text) == 1)
        cores = (cores + 1) / 2;
    int quota = tl_cpu_quota("");
    return quota > 0 && quota < cores ? quota : cores;
}

/* ---- caches --------------------------------------------------------------------------------------------------- */

static void add_cache(tl_caches *caches, int level, int64_t bytes, int shared_by) {
    for (int i = 0; i < caches->n; i++)
        if (caches->at[i].level == level)
            return;
    if (caches->n >= 4 || level < 1 || level > 3 || bytes <= 0)
        return;
    int at = caches->n++;
    for (; at > 0 && caches->at[at - 1].level > level; at--)
        caches->at[at] = caches->at[at - 1];
    caches->at[at].level = level;
    caches->at[at].bytes = bytes;
    caches->at[at].shared_by = shared_by > 0 ? shared_by : 1;
}

/* Processors in a list such as "0-3,8". */
static int count_list(const char *text) {
    int count = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (last < first || last - first > 1 << 18)
            return 1;
        count += (int)(last - first + 1);
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void caches_of_sysfs(const char *root, tl_caches *caches) {
    char folder[96], text[4096];
    for (int i = 0; i < 8; i++) {
        snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (!read_in(root, folder, "type", text, sizeof text) || strncmp(text, "Instruction", 11) == 0)
            continue;
        int64_t level = read_in(root, folder, "level", text, sizeof text) ? number_at(text) : -1;
        int64_t bytes = read_in(root, folder, "size", text, sizeof text) ? number_at(text) : -1;
        int shared = read_in(root, folder, "shared_cpu_list", text, sizeof text) ? count_list(text) : 1;
        if (level >= 1 && level <= 3)
            add_cache(caches, (int)level, bytes, shared);
    }
}

#ifdef TL_HAVE_HWLOC
static void caches_of_hwloc(tl_caches *caches) {
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) == 0)
        for (int i = 0; i < 3; i++) {
            hwloc_obj_t cache = hwloc_get_obj_by_type(topology, types[i], 0);
            if (cache && cache->attr->cache.size <= INT64_MAX)
                add_cache(caches, i + 1, (int64_t)cache->attr->cache.size, hwloc_bitmap_weight(cache->cpuset));
        }
    hwloc_topology_destroy(topology);
}
#endif

void tl_caches_read(const char *root, tl_caches *caches) {
    *caches = (tl_caches){0};
#ifdef TL_HAVE_HWLOC
    if (*root == '\0')
        caches_of_hwloc(caches);
#endif
    if (caches->n == 0)
        caches_of_sysfs(root, caches);
}
