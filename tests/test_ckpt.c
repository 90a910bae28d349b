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

#include "ckpt_world.h"

#include "tally/plan.h"

static char folder[64], path[96];

static const ckpt_kind adamw = {.name = "adamw", .optimizer = {.kind = TL_OPTIM_ADAMW}, .dropout = 0.1};

static tl_status save(const ckpt_world *w, tl_error *error) {
    tl_ckpt_contents contents = ckpt_contents(w);
    tl_ckpt_state state = ckpt_state(w);
    return tl_ckpt_save(path, &contents, &state, error);
}

static tl_status load(const ckpt_world *w, tl_ckpt_state *state, tl_error *error) {
    tl_ckpt_contents contents = ckpt_contents(w);
    tl_error_clear(error);
    return tl_ckpt_load(path, &contents, state, error);
}

static const tl_parameter_group groups[] = {{.pattern = "h.0.*", .lr_factor = 0.5, .weight_decay = 0.2},
                                            {.pattern = "wpe.weight", .frozen = true}};

/* One row each: what a run may be made of, whole against saved and resumed in the middle. */
static const ckpt_kind kinds[] = {
    {.name = "sgd", .optimizer = {.kind = TL_OPTIM_SGD}},
    {.name = "sgd with decay, accumulation",
     .optimizer = {.kind = TL_OPTIM_SGD, .weight_decay = 0.1},
     .accumulation = 2},
    {.name = "momentum, dropout, accumulation",
     .optimizer = {.kind = TL_OPTIM_SGD, .momentum = 0.9},
     .dropout = 0.1,
     .accumulation = 3},
    {.name = "nesterov", .optimizer = {.kind = TL_OPTIM_SGD, .momentum = 0.9, .nesterov = true}, .dropout = 0.1},
    {.name = "adamw", .optimizer = {.kind = TL_OPTIM_ADAMW}},
    {.name = "adamw, dropout, accumulation", .optimizer = {.kind = TL_OPTIM_ADAMW}, .dropout = 0.1, .accumulation = 3},
    {.name = "adamw in CS336's order", .optimizer = {.kind = TL_OPTIM_ADAMW, .cs336_order = true}, .dropout = 0.1},
    {.name = "adagrad", .optimizer = {.kind = TL_OPTIM_ADAGRAD}, .dropout = 0.1},
    {.name = "adamw, bf16 with a master copy",
     .optimizer = {.kind = TL_OPTIM_ADAMW, .master = true, .state_f32 = true},
     .dropout = 0.1,
     .dtype = TL_BF16},
    {.name = "adamw, bf16 throughout", .optimizer = {.kind = TL_OPTIM_ADAMW}, .dropout = 0.1, .dtype = TL_BF16},
    {.name = "adam", .optimizer = {.kind = TL_OPTIM_ADAM, .weight_decay = 0.1}, .dropout = 0.1},
    {.name = "rmsprop", .optimizer = {.kind = TL_OPTIM_RMSPROP}, .dropout = 0.1},
    {.name = "rmsprop, centered, with momentum",
     .optimizer = {.kind = TL_OPTIM_RMSPROP, .centered = true, .momentum = 0.9},
     .accumulation = 2},
    {.name = "adamw8bit", .optimizer = {.kind = TL_OPTIM_ADAMW8BIT}, .dropout = 0.1, .width = 64},
    {.name = "adamw, states in bf16", .optimizer = {.kind = TL_OPTIM_ADAMW, .states = TL_STATES_BF16}, .dropout = 0.1},
    {.name = "adagrad as PyTorch's", .optimizer = {.kind = TL_OPTIM_ADAGRAD, .epsilon_outside = true}},
    {.name = "groups, one of them frozen",
     .optimizer = {.kind = TL_OPTIM_ADAMW, .groups = groups, .n_groups = 2},
     .dropout = 0.1},
    {.name = "bf16-mixed by autocast",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .dropout = 0.1,
     .accumulation = 2,
     .autocast = true,
     .low = TL_BF16},
    {.name = "fp16-mixed with loss scaling",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .dropout = 0.1,
     .autocast = true,
     .low = TL_F16,
     .loss_scaling = true},
    {.name = "fp16-mixed, the first steps skipped",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .dropout = 0.1,
     .autocast = true,
     .low = TL_F16,
     .loss_scaling = true,
     .scale = 0x1p40},
    {.name = "fp16-mixed, some of the first steps skipped",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .autocast = true,
     .low = TL_F16,
     .loss_scaling = true,
     .scale = 0x1p20},
    {.name = "emulated fp8", .optimizer = {.kind = TL_OPTIM_ADAMW}, .autocast = true, .low = TL_BF16, .fp8 = true},
    {.name = "llama", .optimizer = {.kind = TL_OPTIM_ADAMW}, .dropout = 0.1, .accumulation = 2, .llama = true},
    {.name = "one thread, then two",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .dropout = 0.1,
     .accumulation = 2,
     .threads_after = 2},
    {.name = "two threads, then one",
     .optimizer = {.kind = TL_OPTIM_ADAMW},
     .dropout = 0.1,
     .llama = true,
     .threads = 2,
     .threads_after = 1},
};

static void five_and_five_are_ten_of(const ckpt_kind *k) {
    int threads = k->threads ? k->threads : 1, after = k->threads_after ? k->threads_after : threads;
    int64_t accumulation = k->accumulation ? k->accumulation : 1, width = k->width ? k->width : 16;
    ckpt_precision more, into;
    ckpt_world whole = ckpt_begin(k, width, 1, threads), first = ckpt_begin(k, width, 1, threads),
               second = ckpt_begin(k, width, 77, after);
    tl_error error = {TL_OK, ""};
    tl_ckpt_state s = {0};
    double loss = ckpt_steps(&whole, 10);
    ckpt_steps(&first, 5);
    ckpt_precision_of(&first, &more);
    ckpt_precision_of(&second, &into);
    if (save(&first, &error) != TL_OK)
        fail_msg("%s: %s", k->name, error.message);
    if (load(&second, &s, &error) != TL_OK)
        fail_msg("%s: %s", k->name, error.message);
    ckpt_take_scaler(&second, path);
    assert_int_equal(s.step, 5);
    assert_true(k->scale > 0 ? s.optimizer_steps < 5 : s.optimizer_steps == 5);
    assert_true(k->scale != 0x1p20 || s.optimizer_steps > 0);
    assert_int_equal(s.total_steps, 10);
    assert_int_equal(s.seed_init, 1);
    assert_int_equal(s.data_position, 5 * 2 * accumulation);
    ckpt_assert_same(&first, &second);
    tl_sums_free(second.sums);
    second.sums = tl_sums_new(NULL, s.seed_data, &error);
    tl_sums_seek(second.sums, s.data_position);
    double resumed = ckpt_steps(&second, 5);
    if (loss != resumed)
        fail_msg("%s: loss %.17g after ten steps, %.17g resumed", k->name, loss, resumed);
    ckpt_assert_same(&whole, &second);
    ckpt_end(&whole);
    ckpt_end(&first);
    ckpt_end(&second);
}

static void five_and_five_are_ten(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        five_and_five_are_ten_of(&kinds[i]);
}

/* Every optimizer in every precision, on both families, with dropout, shuffling and accumulation; the first half on one
 * thread, the second on two. Every way to recompute takes its turn. */
static void every_optimizer_in_every_precision(void **state) {
    (void)state;
    static const tl_optimizer_options optimizers[] = {
        {.kind = TL_OPTIM_SGD},
        {.kind = TL_OPTIM_SGD, .momentum = 0.9},
        {.kind = TL_OPTIM_ADAGRAD},
        {.kind = TL_OPTIM_RMSPROP},
        {.kind = TL_OPTIM_ADAM},
        {.kind = TL_OPTIM_ADAMW},
        {.kind = TL_OPTIM_ADAMW, .cs336_order = true},
        {.kind = TL_OPTIM_ADAMW8BIT},
    };
    static const tl_recompute again[] = {
        {TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}, {TL_RECOMPUTE_EVERY, 2}};
    enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0], AGAIN = sizeof again / sizeof again[0] };
    int turn = 0;
    for (int p = TL_PRECISION_FP32; p <= TL_PRECISION_FP8_MIXED; p++)
        for (int o = 0; o < OPTIMIZERS; o++)
            for (int llama = 0; llama < 2; llama++) {
                char name[96], how[16];
                tl_error error = {TL_OK, ""};
                tl_train_options as = {.optimizer = optimizers[o]};
                assert_int_equal(tl_precision_apply((tl_precision)p, &as, &error), TL_OK);
                ckpt_kind k = {.name = name,
                               .optimizer = as.optimizer,
                               .dropout = 0.1,
                               .accumulation = 2,
                               .dtype = as.dtype,
                               .llama = llama,
                               .autocast = as.autocast,
                               .low = as.low,
                               .loss_scaling = as.loss_scaling,
                               .fp8 = as.fp8,
                               .recompute = again[turn++ % AGAIN],
                               .width = optimizers[o].kind == TL_OPTIM_ADAMW8BIT ? 64 : 16,
                               .threads_after = 2};
                snprintf(name, sizeof name, "%s, %s%s, %s, recompute %s", tl_precision_name((tl_precision)p),
                         tl_optimizer_name(optimizers[o].kind), optimizers[o].cs336_order ? " (CS336)" : "",
                         llama ? "llama" : "gpt2", tl_recompute_text(k.recompute, how, sizeof how));
                five_and_five_are_ten_of(&k);
            }
}

/* ---- files that are not what they should be ---- */

/* The header's JSON starts at byte 8; its length is the first 8 bytes. */
static size_t header_end(const unsigned char *data) {
    size_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | data[i];
    return 8 + length;
}

typedef struct saved {
    ckpt_world w; /* what is loaded into */
    unsigned char *data;
    size_t length, header;
} saved;

static saved make_saved(void) {
    saved s = {.w = ckpt_begin(&adamw, 4, 1, 1)};
    tl_error error = {TL_OK, ""};
    ckpt_steps(&s.w, 1);
    assert_int_equal(save(&s.w, &error), TL_OK);
    s.data = ckpt_read_file(path, &s.length);
    s.header = header_end(s.data);
    assert_true(s.header % 8 == 0 && s.header < s.length);
    return s;
}

static void drop_saved(saved *s) {
    free(s->data);
    ckpt_end(&s->w);
}

static void assert_refused(saved *s, const unsigned char *data, size_t length, const char *words) {
    tl_error error;
    tl_ckpt_state state = {0};
    ckpt_write_file(path, data, length);
    assert_int_not_equal(load(&s->w, &state, &error), TL_OK);
    assert_int_not_equal(error.status, TL_OK);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void cut_short_anywhere_is_refused(void **state) {
    saved s = make_saved();
    (void)state;
    for (size_t n = 1; n < s.header; n += 1 + s.header / 300)
        assert_refused(&s, s.data, n, "");
    for (size_t n = s.header; n < s.length; n += 1 + (s.length - s.header) / 50)
        assert_refused(&s, s.data, n, "its end is missing");
    assert_refused(&s, s.data, s.length - 1, "its end is missing");
    assert_refused(&s, s.data, 0, "empty");
    unsigned char *more = malloc(s.length + 1);
    assert_non_null(more);
    memcpy(more, s.data, s.length);
    more[s.length] = 0;
    assert_refused(&s, more, s.length + 1, "follow the last tensor");
    free(more);
    drop_saved(&s);
}

/* Every byte of the file is under a checksum: no changed one loads. */
static void any_changed_byte_is_noticed(void **state) {
    saved s = make_saved();
    (void)state;
    for (size_t i = 0; i < s.header; i += 3) {
        s.data[i] ^= 0x01;
        assert_refused(&s, s.data, s.length, "");
        s.data[i] ^= 0x01;
    }
    for (size_t i = s.header; i < s.length; i += 61) {
        s.data[i] ^= 0x10;
        assert_refused(&s, s.data, s.length, "checksum");
        s.data[i] ^= 0x10;
    }
    drop_saved(&s);
}

/* What someone else's program would make of it: the same header with one thing replaced by another of the same length. */
static void a_changed_header_is_refused(void **state) {
    static const struct {
        const char *from, *to, *words;
    } changes[] = {
        {"checkpoint 2", "checkpoint 9", "this build reads \"checkpoint 2\""},
        {"tally.format", "tally.farmat", "no checkpoint of tally"},
        {"\"tally.step\":\"1\"", "\"tally.step\":\"2\"", "its header does not match its checksum"},
        {"\"tally.step\":\"1\"", "\"tally.stop\":\"1\"", "its header does not match its checksum"},
        {"model.wpe.weight", "model.wpf.weight", "its header does not match its checksum"},
        {"\"shape\":[13,4]", "\"shape\":[4,13]", "its header does not match its checksum"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"I32\"", "its header does not match its checksum"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F16\"", "bytes between its offsets"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F99\"", "which the format does not have"},
        {"\"shape\":[13,4]", "\"shape\":[13,5]", "bytes between its offsets"},
    };
    saved s = make_saved();
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        size_t n = strlen(changes[i].from);
        unsigned char *at = memmem(s.data, s.header, changes[i].from, n);
        assert_int_equal(n, strlen(changes[i].to));
        if (!at)
            fail_msg("the header does not hold %s", changes[i].from);
        memcpy(at, changes[i].to, n);
        assert_refused(&s, s.data, s.length, changes[i].words);
        memcpy(at, changes[i].from, n);
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
    ckpt_kind sgd = adamw, bf16 = adamw, llama = adamw, master = adamw, states = adamw;
    ckpt_world other[6];
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    (void)state;
    sgd.optimizer.kind = TL_OPTIM_SGD;
    bf16.dtype = TL_BF16;
    llama.llama = true;
    master.dtype = TL_BF16;
    master.optimizer.master = master.optimizer.state_f32 = true;
    states.optimizer.states = TL_STATES_BF16;
    other[0] = ckpt_begin(&adamw, 8, 1, 1);
    other[1] = ckpt_begin(&sgd, 4, 1, 1);
    other[2] = ckpt_begin(&bf16, 4, 1, 1);
    other[3] = ckpt_begin(&llama, 4, 1, 1);
    other[4] = ckpt_begin(&master, 4, 1, 1);
    other[5] = ckpt_begin(&states, 4, 1, 1); /* states are never cast, to the parameter's format or any other */
    static const struct {
        tl_status status;
        const char *words;
    } expected[] = {{TL_ERR_SHAPE, "model.wte.weight as [13, 4], this run has it as [13, 8]"},
                    {TL_ERR_SHAPE, "optim.exp_avg.wte.weight, which this run has not"},
                    {TL_ERR_DTYPE, "model.wte.weight in F32, this run has it in BF16"},
                    {TL_ERR_SHAPE, "it has no model.model.embed_tokens.weight"},
                    {TL_ERR_SHAPE, "it has no master.wte.weight"},
                    {TL_ERR_DTYPE, "optim.exp_avg.wte.weight in F32, this run has it in BF16"}};
    saved s = make_saved();
    for (int i = 0; i < 6; i++) {
        assert_int_equal(load(&other[i], &got, &error), expected[i].status);
        if (!strstr(error.message, expected[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.message, expected[i].words);
        ckpt_end(&other[i]);
    }
    drop_saved(&s);
}

/* Lists of the caller's own: filled again, and neither lost nor made up in silence. */
static void parts_come_back(void **state) {
    static const float values[] = {65536, 0.5F, -3};
    static const unsigned char codes[] = {7, 0, 255};
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1), v = ckpt_begin(&adamw, 4, 2, 1);
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    float back[3];
    (void)state;
    tl_tensor *a = tl_from_data(w.ctx, TL_F32, TL_SHAPE(w.ctx, tl_dim_of(3)), TL_DATA, values, 3),
              *b = tl_from_data(w.ctx, TL_U8, TL_SHAPE(w.ctx, tl_dim_of(3), tl_dim_of(1)), TL_DATA, codes, 3),
              *c = tl_empty(v.ctx, TL_F32, TL_SHAPE(v.ctx, tl_dim_of(3)), TL_DATA),
              *d = tl_empty(v.ctx, TL_U8, TL_SHAPE(v.ctx, tl_dim_of(3), tl_dim_of(1)), TL_DATA);
    assert_true(a && b && c && d);
    tl_ckpt_tensor saved_tensors[] = {{"scales", a}, {"codes", b}}, loaded_tensors[] = {{"scales", c}, {"codes", d}};
    tl_safetensors_text text = {"loss_scale", "65536"};
    tl_ckpt_part part = {"precision", saved_tensors, 2, &text, 1}, into = {"precision", loaded_tensors, 2, NULL, 0},
                 wrong = {"model", NULL, 0, NULL, 0};
    ckpt_steps(&w, 1);
    w.parts = &part;
    w.n_parts = 1;
    assert_int_equal(save(&w, &error), TL_OK);
    assert_int_equal(load(&v, &got, &error), TL_ERR_SHAPE); /* without its list */
    assert_non_null(strstr(error.message, "precision.scales, which this run has not"));
    v.parts = &into;
    v.n_parts = 1;
    assert_int_equal(load(&v, &got, &error), TL_OK);
    assert_int_equal(tl_tensor_read(c, back, sizeof back), TL_OK);
    assert_memory_equal(back, values, sizeof values);
    assert_int_equal(((unsigned char *)tl_tensor_data(d))[2], 255);
    tl_ckpt *file = tl_ckpt_open(path, &error);
    assert_non_null(file);
    assert_string_equal(tl_ckpt_text(file, "precision.loss_scale"), "65536");
    assert_null(tl_ckpt_text(file, "precision.other"));
    assert_int_equal(tl_ckpt_verify(file, &error), TL_OK);
    tl_ckpt_close(file);
    w.parts = &wrong;
    assert_int_equal(save(&w, &error), TL_ERR_ARGUMENT);
    ckpt_end(&w);
    ckpt_end(&v);
}

/* To evaluate or sample: parameters alone, states and seeds left out. */
static void a_net_takes_the_parameters_alone(void **state) {
    saved s = make_saved();
    ckpt_world w = ckpt_begin(&adamw, 4, 9, 1);
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got = {0};
    const tl_parameter *a, *b;
    (void)state;
    tl_ckpt_contents contents = {.ctx = w.ctx, .net = tl_trainer_net(w.trainer)};
    assert_int_equal(tl_ckpt_load(path, &contents, &got, &error), TL_OK);
    assert_int_equal(got.step, 1);
    int n = tl_net_parameters(tl_trainer_net(s.w.trainer), &a);
    tl_net_parameters(contents.net, &b);
    for (int i = 0; i < n; i++)
        assert_memory_equal(tl_tensor_storage_data(a[i].tensor), tl_tensor_storage_data(b[i].tensor),
                            (size_t)tl_tensor_storage_bytes(a[i].tensor));
    assert_null(tl_optimizer_state(tl_trainer_optimizer(w.trainer), 0, 0));
    ckpt_end(&w);
    drop_saved(&s);
}

static void what_is_not_there_or_no_file(void **state) {
    ckpt_world w = ckpt_begin(&adamw, 4, 1, 1);
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
    ckpt_end(&w);
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
        unsigned char *now = ckpt_read_file(path, &length);
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
    tl_ckpt_contents contents = ckpt_contents(&s.w);
    assert_int_equal(tl_ckpt_save("/nonexistent/folder/x.safetensors", &contents, &none, &error), TL_ERR_IO);
    tl_error_clear(&error);
    assert_int_equal(load(&s.w, &got, &error), TL_OK); /* the old one */
    drop_saved(&s);
}

/* ---- memory ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Not getrusage's: that one remembers the program before the exec. */
static long peak_kilobytes(void) {
    char line[256];
    long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes;
}

static const ckpt_kind plain = {.name = "adamw", .optimizer = {.kind = TL_OPTIM_ADAMW}};
enum { WIDTH = 256 }; /* 19 MB of parameters and states */

static int memory_of_saving(void) {
    tl_error error = {TL_OK, ""};
    ckpt_world w = ckpt_begin(&plain, WIDTH, 1, 1);
    ckpt_steps(&w, 1);
    long before = peak_kilobytes();
    bool ok = save(&w, &error) == TL_OK && peak_kilobytes() - before < 1024;
    ckpt_end(&w);
    return !ok;
}

static int memory_of_loading(void) {
    tl_error error = {TL_OK, ""};
    tl_ckpt_state got;
    int64_t parameters = 0, largest = 0;
    const tl_parameter *list;
    ckpt_world w = ckpt_begin(&plain, WIDTH, 2, 1);
    int n = tl_net_parameters(tl_trainer_net(w.trainer), &list);
    for (int i = 0; i < n; i++) {
        int64_t bytes = tl_tensor_storage_bytes(list[i].tensor);
        parameters += bytes;
        largest = bytes > largest ? bytes : largest;
    }
    long before = peak_kilobytes();
    bool ok = load(&w, &got, &error) == TL_OK;
    long more = peak_kilobytes() - before, most = (long)((2 * parameters + largest) / 1024) + 1024;
    ckpt_end(&w);
    return !ok ? 2 : more > most ? 3 : more < (long)(parameters / 1024) ? 4 : 0; /* 4: nothing was measured at all */
}

static void assert_exit_0(const char *what) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "test_ckpt", what, path, (char *)NULL); /* a process with no past of its own */
        _exit(9);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* What the system counts, not the ledger: the state is saved with less than 1 MB more, and loaded into a new run with its
 * states, the largest tensor and 1 MB more. */
static void nothing_is_held_twice(void **state) {
    (void)state;
#ifdef SANITIZED
    print_message("a sanitizer keeps memory of its own: not measured\n");
    skip();
#endif
    assert_exit_0("save");
    assert_exit_0("load");
}

static int make_folder(void **state) {
    (void)state;
    struct stat st; /* in memory where there is such a place: flushing to a busy disk takes long */
    bool memory = stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) && access("/dev/shm", W_OK) == 0;
    snprintf(folder, sizeof folder, "%s/tally-ckpt-XXXXXX", memory ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/one.safetensors", folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where something was left behind */
}

int main(int argc, char **argv) {
    if (argc == 3) {
        snprintf(path, sizeof path, "%s", argv[2]);
        return strcmp(argv[1], "save") == 0 ? memory_of_saving() : memory_of_loading();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_and_five_are_ten),
        cmocka_unit_test(every_optimizer_in_every_precision),
        cmocka_unit_test(cut_short_anywhere_is_refused),
        cmocka_unit_test(any_changed_byte_is_noticed),
        cmocka_unit_test(a_changed_header_is_refused),
        cmocka_unit_test(says_what_the_file_is),
        cmocka_unit_test(another_run_is_refused_by_name),
        cmocka_unit_test(what_is_not_there_or_no_file),
        cmocka_unit_test(a_full_disk_leaves_the_old_one),
        cmocka_unit_test(a_kill_leaves_a_whole_one),
        cmocka_unit_test(a_folder_that_cannot_be_written),
        cmocka_unit_test(nothing_is_held_twice),
        cmocka_unit_test(parts_come_back),
        cmocka_unit_test(a_net_takes_the_parameters_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
