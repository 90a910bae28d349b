/* The checkpoints of a run in their folder: which one `latest` and `best` name, which are removed, what is loaded when the
 * newest is damaged, and that a kill or a full disk never leaves a folder from which nothing loads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_world.h"

static char base[64], folder[96];

static const ckpt_kind adamw = {.name = "adamw", .optimizer = {.kind = TL_OPTIM_ADAMW}, .dropout = 0.1};

static tl_status save(const ckpt_world *w, int64_t keep, double validation_loss, tl_error *error) {
    tl_ckpt_contents contents = ckpt_contents(w);
    tl_ckpt_state state = ckpt_state(w);
    state.has_validation_loss = validation_loss > 0;
    state.validation_loss = validation_loss;
    tl_error_clear(error);
    return tl_ckpt_folder_save(folder, keep, &contents, &state, error);
}

static tl_status load(const ckpt_world *w, tl_ckpt_state *state, tl_ckpt_found *found, tl_error *error) {
    tl_ckpt_contents contents = ckpt_contents(w);
    tl_error_clear(error);
    return tl_ckpt_folder_load(folder, &contents, state, found, error);
}

static char *in_folder(const char *name, char path[512]) {
    snprintf(path, 512, "%s/%s", folder, name);
    return path;
}

static char *file_of(int step, char path[512]) {
    snprintf(path, 512, "%s/step-%08d.safetensors", folder, step);
    return path;
}

static void assert_link(const char *name, const char *target) {
    char path[512], have[256] = "";
    ssize_t n = readlink(in_folder(name, path), have, sizeof have - 1);
    have[n < 0 ? 0 : n] = '\0';
    assert_string_equal(have, target);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void assert_holds(const char *names) {
    char *found[32] = {NULL}, all[1024] = "";
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL && n < 32;)
        if (e->d_name[0] != '.')
            found[n++] = strdup(e->d_name);
    closedir(d);
    qsort(found, (size_t)n, sizeof *found, by_text);
    for (int i = 0; i < n; i++) {
        char *end = strstr(found[i], ".safetensors");
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", found[i]);
        if (end && end[12] == '\0')
            all[strlen(all) - 12] = '\0';
        free(found[i]);
    }
    assert_string_equal(all, names);
}

static void empty(void) {
    char path[512];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name, path));
    if (d)
        closedir(d);
    rmdir(folder);
}

static void newest_and_best_are_kept(void **state) {
    static const double losses[] = {5, 3, 4, 3, 6, 0};
    tl_error error = {TL_OK, ""};
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1);
    char path[512];
    (void)state;
    for (int i = 0; i < 6; i++) { /* 0: none was measured */
        ckpt_steps(&w, 1);
        if (i == 3) { /* a kill left these */
            ckpt_write_file(in_folder("step-00000002.safetensors.tmp", path), "x", 1);
            ckpt_write_file(in_folder("step-5.safetensors", path), "x", 1); /* nobody's: left alone */
        }
        if (save(&w, 2, losses[i], &error) != TL_OK)
            fail_msg("%s", error.message);
    }
    assert_holds("best latest step-00000002 step-00000005 step-00000006 step-5");
    assert_link("latest", "step-00000006.safetensors");
    assert_link("best", "step-00000002.safetensors"); /* of two equal ones the first */
    ckpt_steps(&w, 1);
    assert_int_equal(save(&w, 1, 2, &error), TL_OK);
    assert_holds("best latest step-00000007 step-5");
    assert_link("best", "step-00000007.safetensors");
    ckpt_end(&w);
    empty();
}

/* Three checkpoints, then each way in which the newest can be no good. */
static void a_damaged_latest_is_passed_over(void **state) {
    tl_error error = {TL_OK, ""};
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1), v = ckpt_begin(&adamw, 4, 2, 1);
    char path[512];
    tl_ckpt_state got;
    tl_ckpt_found found;
    size_t length;
    (void)state;
    assert_int_equal(load(&v, &got, &found, &error), TL_ERR_NOT_FOUND); /* no folder */
    for (int i = 0; i < 3; i++) {
        ckpt_steps(&w, 1);
        assert_int_equal(save(&w, 9, 0, &error), TL_OK);
    }
    assert_int_equal(load(&v, &got, &found, &error), TL_OK);
    assert_int_equal(got.step, 3);
    assert_string_equal(found.note, "");
    ckpt_assert_same(&w, &v);
    unsigned char *data = ckpt_read_file(file_of(3, path), &length);
    for (int way = 0; way < 5; way++) {
        static const char *const words[] = {"its end is missing", "is empty", "do not match their checksum",
                                            "does not match its checksum", "No such file"};
        ckpt_write_file(path, data, way == 0 ? length / 2 : way == 1 ? 0 : length);
        if (way == 2 || way == 3) {
            unsigned char byte = data[way == 2 ? length - 9 : 50];
            data[way == 2 ? length - 9 : 50] ^= 1;
            ckpt_write_file(path, data, length);
            data[way == 2 ? length - 9 : 50] = byte;
        } else if (way == 4) {
            unlink(path);
        }
        if (load(&v, &got, &found, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_int_equal(got.step, 2);
        if (!strstr(found.note, words[way]) || !strstr(found.note, "step-00000002.safetensors is whole"))
            fail_msg("\"%s\" does not say \"%s\"", found.note, words[way]);
        assert_non_null(strstr(found.path, "step-00000002"));
    }
    ckpt_write_file(path, data, length);
    ckpt_write_file(in_folder("step-00000009.safetensors.tmp", path), data, length); /* whole, but not under its name */
    assert_int_equal(load(&v, &got, &found, &error), TL_OK);
    assert_int_equal(got.step, 3);
    unlink(in_folder("latest", path)); /* where there are no links */
    assert_int_equal(load(&v, &got, &found, &error), TL_OK);
    assert_int_equal(got.step, 3);
    for (int i = 1; i <= 3; i++)
        ckpt_write_file(file_of(i, path), data, length - 1);
    assert_int_equal(load(&v, &got, &found, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "no checkpoint in the folder is whole"));
    free(data);
    ckpt_end(&w);
    ckpt_end(&v);
    empty();
}

/* `latest` counts, not the highest step: the run went back and on from there. */
static void latest_decides(void **state) {
    tl_error error = {TL_OK, ""};
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1), v = ckpt_begin(&adamw, 4, 2, 1);
    tl_ckpt_state got;
    tl_ckpt_found found;
    char path[512], newest[TL_CKPT_PATH];
    (void)state;
    ckpt_steps(&w, 2);
    assert_int_equal(save(&w, 2, 0, &error), TL_OK);
    ckpt_steps(&v, 1);
    assert_int_equal(save(&v, 2, 0, &error), TL_OK); /* later, at an earlier step */
    assert_int_equal(load(&w, &got, &found, &error), TL_OK);
    assert_int_equal(got.step, 1);
    assert_int_equal(tl_ckpt_folder_latest(folder, newest, &error), TL_OK);
    assert_string_equal(newest, file_of(1, path));
    ckpt_end(&w);
    ckpt_end(&v);
    empty();
}

static void another_run_is_no_damage(void **state) {
    tl_error error = {TL_OK, ""};
    ckpt_kind sgd = adamw;
    sgd.optimizer.kind = TL_OPTIM_SGD;
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1), v = ckpt_begin(&sgd, 4, 1, 1);
    tl_ckpt_state got;
    tl_ckpt_found found;
    (void)state;
    ckpt_steps(&w, 1);
    assert_int_equal(save(&w, 2, 0, &error), TL_OK);
    ckpt_steps(&w, 1);
    assert_int_equal(save(&w, 2, 0, &error), TL_OK);
    assert_int_equal(load(&v, &got, &found, &error), TL_ERR_SHAPE);
    assert_non_null(strstr(error.message, "of another run"));
    ckpt_end(&w);
    ckpt_end(&v);
    empty();
}

/* Saves that fail at every size a file may have: reported, and the folder as it was. */
static void a_failed_save_changes_nothing(void **state) {
    tl_error error = {TL_OK, ""};
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1), v = ckpt_begin(&adamw, 4, 2, 1);
    tl_ckpt_state got;
    tl_ckpt_found found;
    struct stat st;
    char path[512];
    (void)state;
    ckpt_steps(&w, 1);
    assert_int_equal(save(&w, 1, 0, &error), TL_OK);
    assert_int_equal(stat(file_of(1, path), &st), 0);
    ckpt_steps(&w, 1);
    for (rlim_t limit = 0; limit < (rlim_t)st.st_size - 64; limit += 1 + (rlim_t)st.st_size / 12) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct rlimit r = {limit, limit};
            signal(SIGXFSZ, SIG_IGN);
            _exit(setrlimit(RLIMIT_FSIZE, &r) == 0 && save(&w, 1, 0, &error) == TL_ERR_IO ? 0 : 1);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
        assert_holds("latest step-00000001");
    }
    assert_int_equal(load(&v, &got, &found, &error), TL_OK);
    assert_int_equal(got.step, 1);
    ckpt_end(&w);
    ckpt_end(&v);
    empty();
}

/* Killed anywhere in training and saving: something loads, and it is what the link says or newer. */
static void a_kill_leaves_one_that_loads(void **state) {
    const char *text = getenv("KILLS");
    uint32_t random = 1;
    int kills = text ? (int)strtol(text, NULL, 10) : 20;
    tl_error error = {TL_OK, ""};
    ckpt_world v = ckpt_begin(&adamw, 4, 2, 1);
    (void)state;
    for (int i = 0; i < kills; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            ckpt_world w = ckpt_begin(&adamw, 4, 1, 1);
            for (;;) {
                ckpt_steps(&w, 1);
                if (save(&w, 2, 1.0 / (double)(1 + w.steps * 7919 % 1000), &error) != TL_OK)
                    _exit(1);
            }
        }
        random = random * 1664525 + 1013904223; /* Numerical Recipes' */
        struct timespec wait = {0, 20000000 + (long)(random >> 15) * 240};
        nanosleep(&wait, NULL);
        int result;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFSIGNALED(result));
        tl_ckpt_state got;
        tl_ckpt_found found;
        tl_status status = load(&v, &got, &found, &error);
        if (i > 2 && status != TL_OK) /* the first may be killed before its first save */
            fail_msg("after kill %d: %s", i, error.message);
        if (status == TL_OK && found.note[0])
            fail_msg("after kill %d: %s", i, found.note);
    }
    ckpt_end(&v);
    empty();
}

static int make_folder(void **state) {
    (void)state;
    struct stat st; /* in memory where there is such a place: flushing to a busy disk takes long */
    bool memory = stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) && access("/dev/shm", W_OK) == 0;
    snprintf(base, sizeof base, "%s/tally-ckpts-XXXXXX", memory ? "/dev/shm" : "/tmp");
    if (!mkdtemp(base))
        return -1;
    snprintf(folder, sizeof folder, "%s/checkpoints", base);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    return rmdir(base); /* fails where something was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_and_best_are_kept),
        cmocka_unit_test(a_damaged_latest_is_passed_over),
        cmocka_unit_test(latest_decides),
        cmocka_unit_test(another_run_is_no_damage),
        cmocka_unit_test(a_failed_save_changes_nothing),
        cmocka_unit_test(a_kill_leaves_one_that_loads),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
