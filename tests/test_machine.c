/* This machine: rates between measured shapes, the cache, what the system says. Expected values: exact arithmetic on made-up
 * machines; files of /proc and /sys written as proc(5), cgroups(7) and the kernel's Documentation/admin-guide/cgroup-v2.rst
 * show them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hw/machine_system.h"
#include "kernel/peak.h"
#include "kernel/table.h"
#include "tally/machine.h"

static void add(tl_machine *machine, tl_dtype dtype, int64_t m, int64_t n, int64_t k, double rate) {
    machine->shape[machine->n_shapes++] = (tl_machine_shape){dtype, m, n, k, rate};
}

static tl_machine made_up(void) {
    tl_machine machine = {.cpu = "made up",
                          .kernels = "portable",
                          .threads = 2,
                          .peak_fp32 = 100e9,
                          .peak_bf16 = 200e9,
                          .measured_at = 7,
                          .disturbed = 0.25};
    machine.n_levels = 2;
    snprintf(machine.level[0].name, sizeof machine.level[0].name, "L1");
    machine.level[0].bytes = 16384;
    machine.level[0].bytes_per_s = 300.25e9;
    snprintf(machine.level[1].name, sizeof machine.level[1].name, "memory");
    machine.level[1].bytes = 1 << 27;
    machine.level[1].bytes_per_s = 20e9;
    const int64_t sizes[] = {64, 256, 1024, 4096};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 4; l++)
                if ((i + j + l) % 3 == 0) /* twenty-two: scattered, as measured ones are */
                    add(&machine, TL_F32, sizes[i], sizes[j], sizes[l], 10e9 + 9e9 * (i + j + l));
    add(&machine, TL_BF16, 128, 128, 128, 1.0 / 3 * 1e11);
    return machine;
}

static void test_peak(void **state) {
    (void)state;
    tl_machine machine = made_up();
    assert_true(tl_machine_peak(&machine, TL_F32) == 100e9);
    assert_true(tl_machine_peak(&machine, TL_BF16) == 200e9);
    assert_true(tl_machine_peak(&machine, TL_F64) == 0);
    assert_true(tl_machine_peak(&machine, TL_F16) == 0);
    assert_true(tl_machine_peak(&machine, TL_I64) == 0);
    assert_true(tl_machine_peak(NULL, TL_F32) == 0);
}

static void test_rates_at_measured_shapes(void **state) {
    (void)state;
    tl_machine machine = made_up();
    for (int i = 0; i < machine.n_shapes; i++) {
        const tl_machine_shape *s = &machine.shape[i];
        assert_true(tl_machine_product_rate(&machine, s->dtype, s->m, s->n, s->k) == s->flop_per_s);
    }
    /* Never beyond the peak, whatever the file said. */
    machine.peak_fp32 = 20e9;
    assert_true(tl_machine_product_rate(&machine, TL_F32, 4096, 4096, 4096) == 20e9);
}

static void test_rates_between(void **state) {
    (void)state;
    /* Two shapes 2^4 apart on one axis. One octave from the first and three from the second the squared distances are 1
     * and 9, the weights 1 and 1/81: time per FLOP (1/10 + 1/81/30)/(1 + 1/81) gives 82/(8.1 + 1/30) GFLOP/s. In the
     * middle the mean of the times: 2/(1/10 + 1/30) = 15. */
    tl_machine machine = {.peak_fp32 = 100e9};
    add(&machine, TL_F32, 64, 64, 64, 10e9);
    add(&machine, TL_F32, 1024, 64, 64, 30e9);
    assert_float_equal(tl_machine_product_rate(&machine, TL_F32, 128, 64, 64) / 1e9, 82 / (8.1 + 1.0 / 30), 1e-4);
    assert_float_equal(tl_machine_product_rate(&machine, TL_F32, 256, 64, 64) / 1e9, 15, 1e-4);
    /* Beyond the largest: as there. Below the smallest: the time of the smallest. */
    assert_true(tl_machine_product_rate(&machine, TL_F32, 1 << 30, 64, 64) == 30e9);
    assert_true(tl_machine_product_rate(&machine, TL_F32, INT64_MAX, INT64_MAX, INT64_MAX) == 30e9);
    assert_true(tl_machine_product_rate(&machine, TL_F32, 64, 16, 32) == 10e9 / 8);
    assert_true(tl_machine_product_rate(&machine, TL_F32, 1, 1, 1) == 10e9 / 64 / 64 / 64);
}

static void test_rates_rise_and_do_not_jump(void **state) {
    (void)state;
    tl_machine machine = {.peak_fp32 = 100e9};
    const int64_t sizes[] = {64, 128, 256, 512, 1024, 2048};
    for (int i = 0; i < 6; i++)
        add(&machine, TL_F32, sizes[i], sizes[i], sizes[i], 10e9 + 15e9 * i);
    double before = 0;
    for (int64_t n = 1; n <= 4096; n++) {
        double rate = tl_machine_product_rate(&machine, TL_F32, n, n, n);
        assert_true(rate > 0 && rate <= 85e9);
        if (n >= 64 && before > 0)
            assert_true(rate / before < 1.1 && rate / before > 0.97); /* no jump where neighbours change */
        for (int i = 1; i < 6; i++)
            if (n == sizes[i])
                assert_true(rate > tl_machine_product_rate(&machine, TL_F32, sizes[i - 1], sizes[i - 1], sizes[i - 1]));
        before = rate;
    }
    /* Never outside what its surroundings reached. */
    machine = made_up();
    for (int64_t m = 64; m <= 4096; m += 61)
        for (int64_t n = 64; n <= 4096; n += 997) {
            double rate = tl_machine_product_rate(&machine, TL_F32, m, n, 300);
            assert_true(rate >= 10e9 && rate <= 91e9);
        }
}

static void test_rates_of_nothing(void **state) {
    (void)state;
    tl_machine machine = made_up();
    assert_true(tl_machine_product_rate(&machine, TL_F64, 64, 64, 64) == 0);
    assert_true(tl_machine_product_rate(&machine, TL_F32, 0, 64, 64) == 0);
    assert_true(tl_machine_product_rate(&machine, TL_F32, 64, -1, 64) == 0);
    assert_true(tl_machine_product_rate(NULL, TL_F32, 64, 64, 64) == 0);
    machine.n_shapes = 1 << 20; /* more than there is room for is not read */
    assert_true(tl_machine_product_rate(&machine, TL_F32, 64, 64, 64) > 0);
    machine.n_shapes = -1;
    assert_true(tl_machine_product_rate(&machine, TL_F32, 64, 64, 64) == 0);
}

/* ---- the cache ------------------------------------------------------------------------------------------------ */

typedef struct place {
    char folder[64], path[128];
} place;

static int new_place(void **state) {
    static place here;
    snprintf(here.folder, sizeof here.folder, "/tmp/tally-test-XXXXXX");
    if (!mkdtemp(here.folder) || setenv("XDG_CACHE_HOME", here.folder, 1) != 0)
        return -1;
    snprintf(here.path, sizeof here.path, "%s/tally/machine.json", here.folder);
    *state = &here;
    return 0;
}

static int drop_place(void **state) {
    place *here = *state;
    char folder[128];
    unsetenv("XDG_CACHE_HOME");
    unlink(here->path);
    rmdir(here->path);
    snprintf(folder, sizeof folder, "%s/tally", here->folder);
    rmdir(folder);
    return rmdir(here->folder); /* fails where a temporary file was left behind */
}

static tl_machine mine(void) {
    tl_machine machine = made_up();
    tl_error error = {TL_OK, ""};
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &error);
    assert_non_null(kernels);
    snprintf(machine.kernels, sizeof machine.kernels, "%s", kernels->name);
    tl_cpu_name("", machine.cpu, sizeof machine.cpu);
    return machine;
}

static char *read_back(const char *path, size_t *length) {
    char *text = malloc(65536);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(text);
    *length = fread(text, 1, 65535, file);
    text[*length] = '\0';
    fclose(file);
    return text;
}

static void write_file(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void test_cache_round_trip(void **state) {
    place *here = *state;
    tl_machine machine = mine(), back;
    tl_error error = {TL_OK, ""};
    char path[256];
    struct stat info;
    assert_int_equal(tl_machine_load(2, &back, &error), TL_ERR_NOT_FOUND);
    tl_error_clear(&error);
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    assert_int_equal(tl_machine_cache_path(path, sizeof path, &error), TL_OK);
    assert_string_equal(path, here->path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(tl_machine_load(2, &back, &error), TL_OK);
    assert_string_equal(back.cpu, machine.cpu);
    assert_string_equal(back.kernels, machine.kernels);
    assert_int_equal(back.measured_at, 7);
    assert_true(back.disturbed == 0.25);
    assert_true(back.peak_fp32 == machine.peak_fp32 && back.peak_bf16 == machine.peak_bf16 && back.peak_fp64 == 0);
    assert_int_equal(back.n_levels, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(back.level[i].name, machine.level[i].name);
        assert_int_equal(back.level[i].bytes, machine.level[i].bytes);
        assert_true(back.level[i].bytes_per_s == machine.level[i].bytes_per_s);
    }
    assert_int_equal(back.n_shapes, machine.n_shapes);
    for (int i = 0; i < back.n_shapes; i++) {
        assert_int_equal(back.shape[i].dtype, machine.shape[i].dtype);
        assert_int_equal(back.shape[i].m, machine.shape[i].m);
        assert_int_equal(back.shape[i].n, machine.shape[i].n);
        assert_int_equal(back.shape[i].k, machine.shape[i].k);
        assert_true(back.shape[i].flop_per_s == machine.shape[i].flop_per_s); /* every bit */
    }
    assert_true(back.memory_bytes > 0 && back.available_bytes > 0); /* of now */
    machine.threads = 3;                                            /* written over */
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    assert_int_equal(tl_machine_load(3, &back, &error), TL_OK);
}

static void assert_refused(int threads, tl_status status, const char *say) {
    tl_machine back = {.threads = 99};
    tl_error error = {TL_OK, ""};
    assert_int_equal(tl_machine_load(threads, &back, &error), status);
    if (!strstr(error.message, say))
        fail_msg("\"%s\" does not say \"%s\"", error.message, say);
    assert_int_equal(back.threads, 99); /* nothing of it handed out */
}

static void test_cache_of_another(void **state) {
    (void)state;
    tl_machine machine = mine();
    tl_error error = {TL_OK, ""};
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    assert_refused(1, TL_ERR_NOT_FOUND, "2 threads");
    machine = mine();
    snprintf(machine.cpu, sizeof machine.cpu, "Abacus 3000");
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    assert_refused(2, TL_ERR_NOT_FOUND, "Abacus 3000");
    machine = mine();
    snprintf(machine.kernels, sizeof machine.kernels, "beads");
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    assert_refused(2, TL_ERR_NOT_FOUND, "beads");
}

/* The file with `from`, which it must have, replaced by `to`. */
static void change(const char *path, const char *from, const char *to) {
    size_t length = 0;
    char *text = read_back(path, &length), changed[65536 + 256];
    char *at = strstr(text, from);
    if (!at)
        fail_msg("the file has no %s", from);
    int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_file(path, changed, (size_t)n);
    free(text);
}

static void test_cache_of_another_version(void **state) {
    place *here = *state;
    tl_machine machine = mine();
    tl_error error = {TL_OK, ""};
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    change(here->path, "\"version\": \"" TL_VERSION "\"", "\"version\": \"0.0.9\"");
    assert_refused(2, TL_ERR_NOT_FOUND, "0.0.9");
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    change(here->path, "\"build\": \"", "\"build\": \"other");
    assert_refused(2, TL_ERR_NOT_FOUND, "other");
}

static void test_cache_truncated(void **state) {
    place *here = *state;
    tl_machine machine = mine(), back;
    tl_error error = {TL_OK, ""};
    size_t length = 0;
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    char *text = read_back(here->path, &length);
    for (size_t cut = 0; cut < length; cut += cut < 64 || length - cut < 64 ? 1 : 37) {
        write_file(here->path, text, cut);
        tl_error_clear(&error);
        assert_int_equal(tl_machine_load(2, &back, &error), TL_ERR_FORMAT);
        assert_true(strstr(error.message, here->path) != NULL);
    }
    free(text);
}

static void test_cache_hostile(void **state) {
    place *here = *state;
    static const char *const changes[][2] = {
        {"\"threads\": 2", "\"threads\": -2"},
        {"\"threads\": 2", "\"threads\": 2.0"},
        {"\"threads\": 2", "\"threads\": 99999999999999999999"},
        {"\"threads\": 2", "\"threads\": 2, \"threads\": 2"},
        {"\"schema\": \"tally/machine/1\"", "\"schema\": \"tally/machine/2\""},
        {"\"schema\": \"tally/machine/1\",", ""},
        {"\"fp32\": 100000000000", "\"fp32\": -1"},
        {"\"fp32\": 100000000000", "\"fp32\": 1e300"},
        {"\"fp32\": 100000000000", "\"fp32\": NaN"},
        {"\"fp32\": 100000000000", "\"fp32\": null"},
        {"\"peak_flop_per_s\": {", "\"peak_flop_per_s\": 3, \"x\": {"},
        {"\"m\": 64", "\"m\": 0"},
        {"\"m\": 64", "\"m\": \"64\""},
        {"\"dtype\": \"f32\"", "\"dtype\": \"i64\""},
        {"\"dtype\": \"f32\"", "\"dtype\": \"f3\\u0000\""},
        {"\"flop_per_s\": 1", "\"flop_per_s\": 0, \"x\": 1"},
        {"\"level\": \"L1\"", "\"level\": \"a level with a long name\""},
        {"\"bandwidth\": [", "\"bandwidth\": [1,2,3,4,5,"},
        {"\"products\": [", "\"products\": [null,"},
        {"\"products\": [", "\"products\": {}, \"x\": ["},
        {"\"measured_at\": 7", "\"measured_at\": -7"},
        {"\"disturbed\": 0.25", "\"disturbed\": 25"},
    };
    tl_machine machine = mine();
    tl_error error = {TL_OK, ""};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
        change(here->path, changes[i][0], changes[i][1]);
        assert_refused(2, TL_ERR_FORMAT, "--refresh");
    }
    /* More products than there is room for. */
    char many[65536];
    size_t at = 0;
    for (int i = 0; i < 65; i++)
        at += (size_t)snprintf(many + at, sizeof many - at,
                               "{\"dtype\":\"f32\",\"m\":1,\"n\":1,\"k\":1,\"flop_per_s\":1},");
    char from[] = "\"products\": [", to[65536];
    snprintf(to, sizeof to, "%s%.60000s", from, many);
    assert_int_equal(tl_machine_save(&machine, &error), TL_OK);
    change(here->path, from, to);
    assert_refused(2, TL_ERR_FORMAT, "products");
    /* A top that is no object, a nest, bytes that are no text. */
    static const char *const texts[] = {"[]", "3", "\"tally\"", "\xff\xfe", "<html>", "{}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file(here->path, texts[i], strlen(texts[i]));
        assert_refused(2, TL_ERR_FORMAT, "machine.json");
    }
    char *deep = malloc(1 << 20);
    assert_non_null(deep);
    memset(deep, '[', 1 << 20);
    write_file(here->path, deep, 1 << 20);
    assert_refused(2, TL_ERR_FORMAT, "machine.json");
    free(deep);
}

static void test_cache_no_plain_file(void **state) {
    place *here = *state;
    char folder[128];
    snprintf(folder, sizeof folder, "%s/tally", here->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkfifo(here->path, 0600), 0); /* nobody writes to it: reading must not wait */
    assert_refused(2, TL_ERR_FORMAT, "not a plain file");
    unlink(here->path);
    assert_int_equal(mkdir(here->path, 0700), 0);
    assert_refused(2, TL_ERR_FORMAT, "not a plain file");
    tl_machine machine = mine();
    tl_error error = {TL_OK, ""};
    assert_int_equal(tl_machine_save(&machine, &error), TL_ERR_IO);
    assert_true(strstr(error.message, here->path) != NULL);
}

static void test_cache_nowhere(void **state) {
    (void)state;
    tl_machine machine = mine(), back;
    tl_error error = {TL_OK, ""};
    char *home = getenv("HOME"), kept[4096] = "", path[4096];
    snprintf(kept, sizeof kept, "%s", home ? home : "");
    assert_int_equal(setenv("XDG_CACHE_HOME", "not/absolute", 1), 0);
    assert_int_equal(setenv("HOME", "/tmp/h", 1), 0);
    assert_int_equal(tl_machine_cache_path(path, sizeof path, &error), TL_OK);
    assert_string_equal(path, "/tmp/h/.cache/tally/machine.json");
    assert_int_equal(tl_machine_cache_path(path, 10, &error), TL_ERR_IO);
    tl_error_clear(&error);
    /* /proc takes no folders, whoever asks. */
    assert_int_equal(setenv("HOME", "/proc/self", 1), 0);
    assert_int_equal(tl_machine_save(&machine, &error), TL_ERR_IO);
    assert_true(strstr(error.message, "/proc/self/.cache") != NULL);
    tl_error_clear(&error);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(tl_machine_save(&machine, &error), TL_ERR_IO);
    assert_true(strstr(error.message, "HOME") != NULL);
    tl_error_clear(&error);
    assert_int_equal(tl_machine_load(2, &back, &error), TL_ERR_NOT_FOUND);
    if (home)
        setenv("HOME", kept, 1);
}

/* ---- the system ----------------------------------------------------------------------------------------------- */

static char root[64];

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    write_file(full, text, strlen(text));
}

static int new_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/tally-root-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static int drop_root(void **state) {
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void assert_memory(int64_t total, int64_t available) {
    tl_error error = {TL_OK, ""};
    int64_t got_total = 0, got_available = 0;
    assert_int_equal(tl_memory_read(root, &got_total, &got_available, &error), TL_OK);
    assert_int_equal(got_total, total);
    assert_int_equal(got_available, available);
}

#define MEMINFO "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"

static void test_memory(void **state) {
    (void)state;
    tl_error error = {TL_OK, ""};
    int64_t total = 0, available = 0;
    assert_int_equal(tl_memory_read(root, &total, &available, &error), TL_ERR_IO);
    tl_error_clear(&error);
    put("/proc/meminfo", "MemTotal: lots\n");
    assert_int_equal(tl_memory_read(root, &total, &available, &error), TL_ERR_FORMAT);
    put("/proc/meminfo", "MemTotal: 99999999999999999999 kB\nMemAvailable: 1 kB\n");
    tl_error_clear(&error);
    assert_int_equal(tl_memory_read(root, &total, &available, &error), TL_ERR_FORMAT);
    put("/proc/meminfo", MEMINFO);
    assert_memory(16384000000, 8192000000);
    /* The second version: the group has no limit, its parent 4 GB with 3 GB used, 0.5 of it idle pages. */
    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("/sys/fs/cgroup/outer/memory.max", "4000000000\n");
    put("/sys/fs/cgroup/outer/memory.current", "3000000000\n");
    put("/sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 500000000\nactive_file 7\n");
    assert_memory(4000000000, 1500000000);
    /* A child with less takes the total; what is left is still the parent's. */
    put("/sys/fs/cgroup/outer/inner/memory.max", "2000000000\n");
    put("/sys/fs/cgroup/outer/inner/memory.current", "100000000\n");
    assert_memory(2000000000, 1500000000);
    /* The first version, its name not there as in a container: the mount point is the container's. */
    put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000000\n");
    assert_memory(1000000000, 0);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none, as it is written there */
    assert_memory(16384000000, 8192000000);
}

static void test_processors(void **state) {
    (void)state;
    char name[16];
    put("/proc/self/cgroup", "0::/a\n");
    assert_int_equal(tl_cpu_quota(root), 0);
    put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    assert_int_equal(tl_cpu_quota(root), 0);
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_int_equal(tl_cpu_quota(root), 3); /* two and a half */
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n");
    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(tl_cpu_quota(root), 1);
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t:  Abacus   \x1b[1m 3000 with a long name\n");
    tl_cpu_name(root, name, sizeof name);
    assert_string_equal(name, "Abacus [1m 3000");
    assert_true(tl_machine_cores() >= 1);
}

static void test_caches(void **state) {
    (void)state;
    tl_caches caches;
    tl_caches_read(root, &caches);
    assert_int_equal(caches.n, 0);
    static const char *const files[][2] = {
        {"index0/level", "1\n"},   {"index0/type", "Data\n"},
        {"index0/size", "32K\n"},  {"index0/shared_cpu_list", "0\n"},
        {"index1/level", "1\n"},   {"index1/type", "Instruction\n"},
        {"index1/size", "64K\n"},  {"index1/shared_cpu_list", "0\n"},
        {"index2/level", "3\n"},   {"index2/type", "Unified\n"},
        {"index2/size", "32M\n"},  {"index2/shared_cpu_list", "0-7,16-23\n"},
        {"index3/level", "2\n"},   {"index3/type", "Unified\n"},
        {"index3/size", "512K\n"}, {"index3/shared_cpu_list", "0,16\n"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/%s", files[i][0]);
        put(path, files[i][1]);
    }
    tl_caches_read(root, &caches);
    assert_int_equal(caches.n, 3);
    const int64_t bytes[] = {32768, 524288, 33554432};
    const int shared[] = {1, 2, 16};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(caches.at[i].level, i + 1);
        assert_int_equal(caches.at[i].bytes, bytes[i]);
        assert_int_equal(caches.at[i].shared_by, shared[i]);
    }
}

/* ---- measuring ------------------------------------------------------------------------------------------------ */

static void test_peak_loops(void **state) {
    (void)state;
    tl_peak_loop loops[TL_PEAK_LOOPS];
    bool fp32 = false;
    int n = tl_peak_loops(loops);
    for (int i = 0; i < n; i++) {
        double sum = loops[i].run(1000);
        fp32 = fp32 || loops[i].dtype == TL_F32;
        /* x·½ + 1 ends at 2 in each lane of twelve chains: a multiply-add is 2 FLOPs a lane. */
        if (loops[i].dtype != TL_BF16)
            assert_true(sum == loops[i].flop_per_round);
    }
    assert_true(fp32 && n <= TL_PEAK_LOOPS);
    static _Alignas(64) float a[128], b[128], c[128];
    for (int i = 0; i < 128; i++) {
        b[i] = (float)i;
        c[i] = (float)(2 * i + 2);
    }
    tl_peak_triad_best()(a, b, c, 128);
    for (int i = 0; i < 128; i++)
        assert_true(a[i] == (float)(2 * i + 1));
}

static void test_measure(void **state) {
    (void)state;
    tl_machine machine = {.threads = 99};
    tl_error error = {TL_OK, ""};
    struct timespec start, end;
    assert_int_equal(tl_machine_measure(0, true, &machine, &error), TL_ERR_ARGUMENT);
    assert_int_equal(machine.threads, 99);
    tl_error_clear(&error);
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(tl_machine_measure(2, true, &machine, &error), TL_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    /* 1.5 s when it has the machine for itself; a test has not. */
    assert_true(end.tv_sec - start.tv_sec < 20);
    assert_true(machine.peak_fp32 > 0 && machine.peak_bf16 > 0 && machine.peak_fp64 > 0);
    assert_true(machine.n_levels >= 1 && machine.n_shapes >= 2);
    for (int i = 0; i < machine.n_levels; i++) {
        assert_true(machine.level[i].bytes > 0 && machine.level[i].bytes_per_s > 0);
        if (i)
            assert_true(machine.level[i].bytes > machine.level[i - 1].bytes);
    }
    bool bf16 = false;
    for (int i = 0; i < machine.n_shapes; i++) {
        const tl_machine_shape *s = &machine.shape[i];
        bf16 = bf16 || s->dtype == TL_BF16;
        assert_true(s->flop_per_s > 0 && s->flop_per_s <= tl_machine_peak(&machine, s->dtype));
    }
    assert_true(machine.disturbed >= 0 && machine.disturbed <= 1);
    assert_true(bf16 && machine.measured_at > 0 && machine.memory_bytes >= machine.available_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_rates_at_measured_shapes),
        cmocka_unit_test(test_rates_between),
        cmocka_unit_test(test_rates_rise_and_do_not_jump),
        cmocka_unit_test(test_rates_of_nothing),
        cmocka_unit_test_setup_teardown(test_cache_round_trip, new_place, drop_place),
        cmocka_unit_test_setup_teardown(test_cache_of_another, new_place, drop_place),
        cmocka_unit_test_setup_teardown(test_cache_of_another_version, new_place, drop_place),
        cmocka_unit_test_setup_teardown(test_cache_truncated, new_place, drop_place),
        cmocka_unit_test_setup_teardown(test_cache_hostile, new_place, drop_place),
        cmocka_unit_test_setup_teardown(test_cache_no_plain_file, new_place, drop_place),
        cmocka_unit_test(test_cache_nowhere),
        cmocka_unit_test_setup_teardown(test_memory, new_root, drop_root),
        cmocka_unit_test_setup_teardown(test_processors, new_root, drop_root),
        cmocka_unit_test_setup_teardown(test_caches, new_root, drop_root),
        cmocka_unit_test(test_peak_loops),
        cmocka_unit_test(test_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
