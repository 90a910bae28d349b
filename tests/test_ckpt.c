/* Checkpoints: five steps, save, load, five steps are ten, bit for bit; whatever befalls the file is noticed and said; the
 * old file outlives a failed write. The layout that is tampered with here is docs/checkpoint.md's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tally/account.h"
#include "tally/ckpt.h"
#include "tally/cpu.h"
#include "tally/data.h"
#include "tally/train.h"

static char folder[64], path[96];

typedef struct world {
    tl_ctx *ctx;
    tl_trainer *trainer;
    tl_sums *sums;
} world;

typedef struct kind {
    const char *name;
    tl_optimizer_kind optimizer;
    double momentum, dropout;
    int64_t accumulation;
    tl_dtype dtype;
    bool master, llama;
} kind;

static const kind adamw = {"adamw", TL_OPTIM_ADAMW, 0, 0.1, 1, TL_F32, false, false};

static world begin(const kind *k, int64_t width, uint64_t seed) {
    world w = {0};
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {
        .kernels = tl_kernels_portable(), .seed_init = seed, .seed_data = seed, .seed_dropout = seed};
    tl_model model = {.name = "small",
                      .family = k->llama ? TL_FAMILY_LLAMA : TL_FAMILY_GPT2,
                      .layers = 2,
                      .width = width,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_size = width / 2,
                      .ff = 2 * width,
                      .vocab = 13,
                      .context = 12,
                      .tied = true,
                      .gated = k->llama,
                      .learned_positions = !k->llama,
                      .activation = k->llama ? TL_SILU : TL_GELU_TANH,
                      .norm_epsilon = 1e-5,
                      .init_std = 0.02,
                      .rope_theta = 10000,
                      .dropout_embedding = k->dropout,
                      .dropout_attention = k->dropout,
                      .dropout_residual = k->dropout};
    tl_train_options train = {.micro_batch = 2,
                              .seq = 11,
                              .accumulation = k->accumulation,
                              .ranks = 1,
                              .dtype = k->dtype,
                              .optimizer = tl_optimizer_defaults(k->optimizer),
                              .clip = 1};
    if (k->llama)
        model.dropout_embedding = model.dropout_residual = 0;
    train.optimizer.momentum = k->momentum;
    train.optimizer.master = train.optimizer.state_f32 = k->master;
    w.ctx = tl_ctx_new(&options, &error);
    assert_non_null(w.ctx);
    w.sums = tl_sums_new(NULL, seed, &error);
    assert_non_null(w.sums);
    w.trainer = tl_trainer_new(w.ctx, &model, &train);
    if (!w.trainer)
        fail_msg("%s", tl_ctx_error(w.ctx)->message);
    return w;
}

static void end(world *w) {
    tl_trainer_free(w->trainer);
    tl_ctx_free(w->ctx);
    tl_sums_free(w->sums);
}

static tl_status source(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    (void)micro;
    return tl_sums_batch(user, ctx, o->micro_batch, o->seq, &batch->input, &batch->target);
}

static double steps(world *w, int count) {
    tl_step_result result = {0};
    for (int i = 0; i < count; i++)
        assert_int_equal(tl_trainer_step(w->trainer, source, w->sums, 1e-2, &result), TL_OK);
    return result.loss;
}

static tl_status save(world *w, tl_error *error) {
    tl_ckpt_state state = {.total_steps = 10, .data_position = tl_sums_position(w->sums)};
    return tl_ckpt_save(path, w->ctx, tl_trainer_net(w->trainer), tl_trainer_optimizer(w->trainer), &state, error);
}

static tl_status load(world *w, tl_ckpt_state *state, tl_error *error) {
    tl_error_clear(error);
    return tl_ckpt_load(path, w->ctx, tl_trainer_net(w->trainer), tl_trainer_optimizer(w->trainer), state, error);
}

static void assert_same(world *x, world *y) {
    const tl_parameter *a, *b;
    int n = tl_net_parameters(tl_trainer_net(x->trainer), &a);
    assert_int_equal(tl_net_parameters(tl_trainer_net(y->trainer), &b), n);
    const tl_optimizer *p = tl_trainer_optimizer(x->trainer), *q = tl_trainer_optimizer(y->trainer);
    for (int i = 0; i < n; i++) {
        const tl_tensor *left[] = {a[i].tensor, tl_optimizer_master(p, i), tl_optimizer_state(p, i, 0),
                                   tl_optimizer_state(p, i, 1)};
        const tl_tensor *right[] = {b[i].tensor, tl_optimizer_master(q, i), tl_optimizer_state(q, i, 0),
                                    tl_optimizer_state(q, i, 1)};
        for (int k = 0; k < 4; k++) {
            assert_int_equal(left[k] != NULL, right[k] != NULL);
            if (left[k])
                assert_memory_equal(tl_tensor_storage_data(left[k]), tl_tensor_storage_data(right[k]),
                                    (size_t)tl_tensor_storage_bytes(left[k]));
        }
    }
}

static void five_and_five_are_ten(void **state) {
    static const kind kinds[] = {
        {"sgd", TL_OPTIM_SGD, 0, 0, 1, TL_F32, false, false},
        {"momentum, dropout, accumulation", TL_OPTIM_SGD, 0.9, 0.1, 3, TL_F32, false, false},
        {"adamw", TL_OPTIM_ADAMW, 0, 0, 1, TL_F32, false, false},
        {"adamw, dropout, accumulation", TL_OPTIM_ADAMW, 0, 0.1, 3, TL_F32, false, false},
        {"adagrad", TL_OPTIM_ADAGRAD, 0, 0, 1, TL_F32, false, false},
        {"adamw with a master copy", TL_OPTIM_ADAMW, 0, 0.1, 1, TL_BF16, true, false},
        {"llama", TL_OPTIM_ADAMW, 0, 0.1, 2, TL_F32, false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        world whole = begin(&kinds[i], 16, 1), first = begin(&kinds[i], 16, 1), second = begin(&kinds[i], 16, 77);
        tl_error error = {TL_OK, ""};
        tl_ckpt_state s = {0};
        double loss = steps(&whole, 10);
        steps(&first, 5);
        assert_int_equal(save(&first, &error), TL_OK);
        assert_int_equal(load(&second, &s, &error), TL_OK);
        assert_int_equal(s.step, 5);
        assert_int_equal(s.total_steps, 10);
        assert_int_equal(s.seed_init, 1);
        assert_int_equal(s.data_position, 5 * 2 * kinds[i].accumulation);
        assert_same(&first, &second);
        tl_sums_free(second.sums);
        second.sums = tl_sums_new(NULL, s.seed_data, &error);
        tl_sums_seek(second.sums, s.data_position);
        double resumed = steps(&second, 5);
        if (loss != resumed)
            fail_msg("%s: loss %.17g after ten steps, %.17g resumed", kinds[i].name, loss, resumed);
        assert_same(&whole, &second);
        end(&whole);
        end(&first);
        end(&second);
    }
}

/* ---- files that are not what they should be ---- */

static unsigned char *read_file(size_t *length) {
    struct stat st;
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && fstat(file, &st) == 0);
    *length = (size_t)st.st_size;
    unsigned char *data = malloc(*length);
    assert_non_null(data);
    assert_int_equal(read(file, data, *length), (ssize_t)*length);
    close(file);
    return data;
}

static void write_file(const void *data, size_t length) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    assert_int_equal(write(file, data, length), (ssize_t)length);
    close(file);
}

static uint64_t number_at(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static void put_number(unsigned char *at, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

typedef struct saved {
    world w; /* what is loaded into */
    unsigned char *data;
    size_t length, header;
} saved;

static saved make_saved(void) {
    saved s = {.w = begin(&adamw, 4, 1)};
    tl_error error = {TL_OK, ""};
    steps(&s.w, 1);
    assert_int_equal(save(&s.w, &error), TL_OK);
    s.data = read_file(&s.length);
    s.header = (size_t)number_at(s.data + 16, 8);
    assert_int_equal(number_at(s.data + 24, 8), s.length);
    assert_true(s.header % 64 == 0 && s.header < s.length);
    return s;
}

static void drop_saved(saved *s) {
    free(s->data);
    end(&s->w);
}

static void assert_refused(saved *s, const unsigned char *data, size_t length, const char *words) {
    tl_error error;
    tl_ckpt_state state = {0};
    write_file(data, length);
    assert_int_not_equal(load(&s->w, &state, &error), TL_OK);
    assert_int_not_equal(error.status, TL_OK);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void cut_short_anywhere_is_refused(void **state) {
    saved s = make_saved();
    (void)state;
    for (size_t n = 0; n < s.header; n++)
        assert_refused(&s, s.data, n, "");
    for (size_t n = s.header; n < s.length; n += 1 + (s.length - s.header) / 50)
        assert_refused(&s, s.data, n, "cut short");
    assert_refused(&s, s.data, s.length - 1, "cut short");
    assert_refused(&s, s.data, 0, "empty");
    unsigned char *more = malloc(s.length + 1);
    assert_non_null(more);
    memcpy(more, s.data, s.length);
    more[s.length] = 0;
    assert_refused(&s, more, s.length + 1, "added");
    free(more);
    drop_saved(&s);
}

static void any_changed_byte_is_noticed(void **state) {
    saved s = make_saved();
    (void)state;
    size_t table = 112;
    for (uint64_t i = 0; i < number_at(s.data + 12, 4); i++)
        table += 112 + (size_t)number_at(s.data + table + 4, 4);
    for (size_t i = 0; i < table + 8; i++) { /* up to the checksum's end: zeros follow */
        s.data[i] ^= 0x41;
        assert_refused(&s, s.data, s.length, "");
        s.data[i] ^= 0x41;
    }
    for (size_t i = s.header; i < s.length; i += 1024 + 4) {
        s.data[i] ^= 1;
        tl_error error;
        tl_ckpt_state got = {0};
        write_file(s.data, s.length);
        if (load(&s.w, &got, &error) == TL_OK) { /* a zero between two tensors; nothing else may pass */
            s.data[i] ^= 1;
            assert_int_equal(s.data[i], 0);
            continue;
        }
        assert_non_null(strstr(error.message, "checksum"));
        s.data[i] ^= 1;
    }
    drop_saved(&s);
}

static void hostile_numbers_are_refused(void **state) {
    static const uint64_t hostile[] = {0, 1, 63, 111, 0x7FFFFFFF, 0xFFFFFFFF, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX};
    static const struct {
        size_t at;
        int bytes;
    } fields[] = {{8, 4},       {12, 4},      {16, 8},       {24, 8},       {36, 4},      {40, 8},
                  {112 + 4, 4}, {112 + 8, 8}, {112 + 16, 8}, {112 + 72, 8}, {112 + 80, 8}};
    saved s = make_saved();
    (void)state;
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t h = 0; h < sizeof hostile / sizeof hostile[0]; h++) {
            uint64_t before = number_at(s.data + fields[f].at, fields[f].bytes);
            put_number(s.data + fields[f].at, fields[f].bytes, hostile[h]);
            if (number_at(s.data + fields[f].at, fields[f].bytes) != before)
                assert_refused(&s, s.data, s.length, "");
            put_number(s.data + fields[f].at, fields[f].bytes, before);
        }
    drop_saved(&s);
}

static void says_what_the_file_is(void **state) {
    static const struct {
        const char *start, *words;
    } files[] = {{"PK\003\004........................", "zip"},
                 {"<!DOCTYPE html><html>..........", "HTML"},
                 {"version https://git-lfs.github.com/spec/v1\n", "git-LFS"},
                 {"{\"a\": 1}                       ", "JSON"},
                 {"\200\002ccollections\nOrderedDict\n", "pickle"},
                 {"GGUF\003\000\000\000", "GGUF"}};
    saved s = make_saved();
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        assert_refused(&s, (const unsigned char *)files[i].start, strlen(files[i].start), files[i].words);
    drop_saved(&s);
}

static void another_run_is_refused_by_name(void **state) {
    kind sgd = adamw, bf16 = adamw;
    world other[4];
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    (void)state;
    sgd.optimizer = TL_OPTIM_SGD;
    bf16.dtype = TL_BF16;
    kind llama = adamw;
    llama.llama = true;
    other[0] = begin(&adamw, 8, 1);
    other[1] = begin(&sgd, 4, 1);
    other[2] = begin(&bf16, 4, 1);
    other[3] = begin(&llama, 4, 1);
    static const char *const words[] = {"this model has it as [13, 8]", "--optim", "bf16", "where this model has"};
    saved s = make_saved();
    for (int i = 0; i < 4; i++) {
        assert_int_not_equal(load(&other[i], &got, &error), TL_OK);
        if (!strstr(error.message, words[i]))
            fail_msg("\"%s\" does not say \"%s\"", error.message, words[i]);
        end(&other[i]);
    }
    drop_saved(&s);
}

static void what_is_not_there_or_no_file(void **state) {
    world w = begin(&adamw, 4, 1);
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    (void)state;
    unlink(path);
    assert_int_equal(load(&w, &got, &error), TL_ERR_NOT_FOUND);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_not_equal(load(&w, &got, &error), TL_OK);
    assert_int_not_equal(save(&w, &error), TL_OK);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0666), 0); /* must not wait for a writer */
    assert_int_not_equal(load(&w, &got, &error), TL_OK);
    unlink(path);
    end(&w);
}

/* ---- writing that fails ---- */

static bool temporary_left(void) {
    char name[128];
    struct stat st;
    snprintf(name, sizeof name, "%s.tmp", path);
    return stat(name, &st) == 0;
}

static void a_full_disk_leaves_the_old_one(void **state) {
    saved s = make_saved();
    (void)state;
    for (size_t limit = 0; limit < s.length; limit += 1 + s.length / 12) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) { /* a limit on file sizes stands in for the full disk */
            struct rlimit r = {limit, limit};
            tl_error error = {TL_OK, ""};
            signal(SIGXFSZ, SIG_IGN);
            if (setrlimit(RLIMIT_FSIZE, &r) != 0)
                _exit(9);
            tl_status status = save(&s.w, &error);
            _exit(status == TL_ERR_IO && strstr(error.message, "cannot write") ? 0 : 1);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), 0);
        assert_false(temporary_left());
        size_t length;
        unsigned char *now = read_file(&length);
        assert_int_equal(length, s.length);
        assert_memory_equal(now, s.data, length);
        free(now);
    }
    drop_saved(&s);
}

static void a_kill_leaves_a_whole_one(void **state) {
    saved s = make_saved();
    (void)state;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            tl_error error = {TL_OK, ""};
            for (;;)
                if (save(&s.w, &error) != TL_OK)
                    _exit(1);
        }
        struct timespec wait = {0, 1000000 + 1700000L * i};
        nanosleep(&wait, NULL);
        int result;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFSIGNALED(result));
        tl_error error = {TL_OK, ""};
        tl_ckpt_state got = {0};
        if (load(&s.w, &got, &error) != TL_OK)
            fail_msg("after a kill: %s", error.message);
        assert_int_equal(got.step, 1);
    }
    tl_error error = {TL_OK, ""}; /* and what a kill left behind is no obstacle */
    assert_int_equal(save(&s.w, &error), TL_OK);
    assert_false(temporary_left());
    drop_saved(&s);
}

static void a_folder_that_cannot_be_written(void **state) {
    saved s = make_saved();
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    (void)state;
    if (geteuid() == 0) {
        print_message("running as root, whom no permission stops: the read-only folder is not tried\n");
    } else {
        assert_int_equal(chmod(folder, 0555), 0);
        assert_int_equal(save(&s.w, &error), TL_ERR_IO);
        assert_non_null(strstr(error.message, "cannot create"));
        chmod(folder, 0777);
    }
    tl_error_clear(&error);
    tl_ckpt_state none = {0};
    assert_int_equal(tl_ckpt_save("/nonexistent/folder/x.tally", s.w.ctx, tl_trainer_net(s.w.trainer),
                                  tl_trainer_optimizer(s.w.trainer), &none, &error),
                     TL_ERR_IO);
    assert_int_equal(load(&s.w, &got, &error), TL_OK); /* the old one */
    drop_saved(&s);
}

static void peek_reads_the_state_alone(void **state) {
    saved s = make_saved();
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    (void)state;
    assert_int_equal(tl_ckpt_peek(path, &got, &error), TL_OK);
    assert_int_equal(got.step, 1);
    assert_int_equal(got.total_steps, 10);
    assert_int_equal(got.data_position, 2);
    write_file(s.data, s.length - 5);
    assert_int_equal(tl_ckpt_peek(path, &got, &error), TL_ERR_FORMAT);
    drop_saved(&s);
}

static int make_folder(void **state) {
    (void)state;
    struct stat st; /* in memory where there is such a place: flushing to a busy disk takes long */
    bool memory = stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) && access("/dev/shm", W_OK) == 0;
    snprintf(folder, sizeof folder, "%s/tally-ckpt-XXXXXX", memory ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/checkpoint.tally", folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where something was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_and_five_are_ten),        cmocka_unit_test(cut_short_anywhere_is_refused),
        cmocka_unit_test(any_changed_byte_is_noticed),  cmocka_unit_test(hostile_numbers_are_refused),
        cmocka_unit_test(says_what_the_file_is),        cmocka_unit_test(another_run_is_refused_by_name),
        cmocka_unit_test(what_is_not_there_or_no_file), cmocka_unit_test(a_full_disk_leaves_the_old_one),
        cmocka_unit_test(a_kill_leaves_a_whole_one),    cmocka_unit_test(a_folder_that_cannot_be_written),
        cmocka_unit_test(peek_reads_the_state_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
