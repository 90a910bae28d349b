/* Adapters over frozen weights: 20 steps beside PyTorch's (tests/fixtures/make_lora_losses.py), and what must not change: the
 * base's bits, a resumed run's bits, the logits of a merged net. What it takes beside the second instrument is
 * tests/test_planned_measured.c's. */
#include "layers.h"

#include <sys/stat.h>
#include <unistd.h>

#include "fixtures/lora_losses.h"
#include "instrument.h"
#include "small_models.h"
#include "family_models.h"
#include "tally/ckpt.h"
#include "tally/explain.h"
#include "tally/init.h"
#include "tally/plan.h"
#include "tally/weights.h"

enum { STEPS = 20 };

static const char *const bases[] = {"plain", "int8", "nf4", "nf4-dq"};

/* ---- the script's weights and batches ---- */

static uint32_t fnv1a(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

static double uniform(uint32_t seed, int64_t i) {
    uint32_t x = (uint32_t)((uint64_t)i * 2654435761u) + seed;
    x ^= x >> 16;
    x *= 0x45D9F3Bu;
    x ^= x >> 16;
    return x / 4294967296.0 - 0.5;
}

static float value_of(const char *family, const char *name, int64_t k) {
    char whole[200];
    snprintf(whole, sizeof whole, "%s/%s", family, name);
    double u = uniform(fnv1a(whole), k);
    size_t length = strlen(name);
    bool norm = strstr(name, "ln_") || strstr(name, "norm"), bias = strcmp(name + length - 4, "bias") == 0;
    return (float)(bias ? u * 0.1 : norm ? 1.0 + u * 0.2 : u * 0.3);
}

static void set_parameters(tl_net *net, const char *family) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++) {
        tl_ctx *ctx = tl_tensor_ctx(list[i].tensor);
        if (strstr(list[i].name, "lora_B"))
            continue; /* zeros */
        tl_scope_begin(ctx);
        tl_tensor *t = list[i].full ? tl_empty(ctx, TL_F32, *list[i].full, TL_WORK) : list[i].tensor;
        for (int64_t k = 0; k < tl_tensor_count(t); k++)
            ((float *)tl_tensor_data(t))[k] = value_of(family, list[i].name, k);
        if (list[i].full)
            assert_int_equal(tl_net_requantize(net, i, t), TL_OK);
        tl_scope_end(ctx);
    }
}

typedef struct source {
    const char *family;
    int64_t vocab;
    int step;
} source;

static tl_status make_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    source *s = user;
    char name[64];
    (void)micro;
    snprintf(name, sizeof name, "%s/batch/%d", s->family, s->step);
    uint32_t seed = fnv1a(name);
    snprintf(name, sizeof name, "%s/batch/%d/random", s->family, s->step);
    uint32_t random = fnv1a(name);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_empty(ctx, TL_I32, shape, TL_DATA);
    batch->target = tl_empty(ctx, TL_I32, shape, TL_DATA);
    int32_t *x = tl_tensor_data(batch->input), *y = tl_tensor_data(batch->target), id = 0;
    for (int64_t b = 0; b < o->micro_batch; b++)
        for (int64_t t = 0; t <= o->seq; t++) {
            int64_t at = b * (o->seq + 1) + t;
            if (t == 0 || uniform(random, at) + 0.5 < 0.2)
                id = (int32_t)((uniform(seed, at) + 0.5) * (double)s->vocab);
            else
                id = (int32_t)((5 * id + 3) % s->vocab);
            if (t < o->seq)
                x[b * o->seq + t] = id;
            if (t > 0)
                y[b * o->seq + t - 1] = id;
        }
    return tl_ctx_status(ctx);
}

static tl_model oracle_gpt2(void) {
    tl_model m = small_gpt2();
    m.width = 48;
    m.heads = m.kv_heads = 4;
    m.head_size = 12;
    m.ff = 160;
    m.vocab = 61;
    m.context = 24;
    return m;
}

static tl_model oracle_llama(void) {
    tl_model m = small_llama();
    m.width = 48;
    m.heads = 6;
    m.kv_heads = 2;
    m.head_size = 10;
    m.ff = 96;
    m.vocab = 67;
    return m;
}

static void follow(const char *name, bool llama, tl_lora_options lora, const double *want) {
    tl_model model = llama ? oracle_llama() : oracle_gpt2();
    tl_train_options o = {.micro_batch = llama ? 3 : 4, .seq = llama ? 13 : 16, .accumulation = 1, .ranks = 1};
    o.dtype = TL_F32;
    o.clip = 1;
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    o.lora = lora;
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++) {
        tl_ctx *ctx = new_ctx(*kernels, false);
        tl_trainer *trainer = tl_trainer_new(ctx, &model, &o);
        check_ok(ctx);
        set_parameters(tl_trainer_net(trainer), llama ? "llama" : "gpt2");
        source s = {.family = llama ? "llama" : "gpt2", .vocab = model.vocab};
        double worst = 0;
        for (s.step = 0; s.step < STEPS; s.step++) {
            tl_step_result result;
            if (tl_trainer_step(trainer, make_batch, &s, 1e-2, &result) != TL_OK)
                fail_msg("%s, step %d: %s", name, s.step, tl_ctx_error(ctx)->message);
            worst = fmax(worst, fabs(result.loss - want[s.step]) / want[s.step]);
        }
        print_message("%s, %s: at most %.1e from PyTorch\n", name, (*kernels)->name, worst);
        assert_true(worst < 2e-5);
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
    }
}

static void test_pytorch(void **state) {
    (void)state;
    follow("gpt2", false, (tl_lora_options){.rank = 4}, lora_gpt2_plain);
    follow("gpt2, all layers", false, (tl_lora_options){.rank = 3, .alpha = 4.5, .targets = "all-linear"},
           lora_gpt2_all);
    follow("gpt2 over nf4", false, (tl_lora_options){.rank = 4, .alpha = 8, .base = TL_LORA_NF4}, lora_gpt2_nf4);
    follow("llama", true, (tl_lora_options){.rank = 4, .alpha = 8, .targets = "q_proj,v_proj"}, lora_llama_plain);
    follow("llama over int8", true, (tl_lora_options){.rank = 4, .base = TL_LORA_INT8}, lora_llama_int8);
    follow("llama over nf4", true,
           (tl_lora_options){.rank = 4, .alpha = 8, .targets = "attention", .base = TL_LORA_NF4}, lora_llama_nf4);
    follow("llama over nf4-dq", true,
           (tl_lora_options){.rank = 4, .alpha = 8, .targets = "attention", .base = TL_LORA_NF4_TWICE},
           lora_llama_twice);
}

/* ---- a run ---- */

typedef struct world {
    tl_ctx *ctx;
    tl_model model;
    tl_trainer *trainer;
    random_batch batch;
} world;

static world begin(bool llama, tl_lora_base base, bool bf16, uint64_t seed) {
    world w = {.model = llama ? small_llama() : small_gpt2()};
    tl_error error = {0};
    tl_train_options o = {.micro_batch = 2, .seq = 11, .accumulation = 2, .ranks = 1, .clip = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    if (bf16)
        assert_int_equal(tl_precision_apply(TL_PRECISION_BF16_MIXED, &o, &error), TL_OK);
    o.lora = (tl_lora_options){.rank = 3, .alpha = 5, .dropout = 0.1, .targets = "all-linear", .base = base};
    w.ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .seed_init = seed, .seed_dropout = seed},
                       &error);
    assert_non_null(w.ctx);
    w.trainer = tl_trainer_new(w.ctx, &w.model, &o);
    check_ok(w.ctx);
    w.batch = (random_batch){NULL, NULL, 5};
    return w;
}

static double steps(world *w, int n) {
    tl_step_result result = {0};
    w->batch.model = &w->model;
    for (int i = 0; i < n; i++)
        if (tl_trainer_step(w->trainer, random_batch_source, &w->batch, 3e-3, &result) != TL_OK)
            fail_msg("%s", tl_ctx_error(w->ctx)->message);
    return result.loss;
}

static void end(world *w) {
    tl_trainer_free(w->trainer);
    tl_ctx_free(w->ctx);
}

static bool same_tensor(const tl_tensor *a, const tl_tensor *b) {
    int64_t bytes = tl_tensor_storage_bytes(a);
    return bytes == tl_tensor_storage_bytes(b) &&
           memcmp(tl_tensor_storage_data(a), tl_tensor_storage_data(b), (size_t)bytes) == 0;
}

/* What a net holds, frozen or not, is the same to the bit as another's: `frozen` of those alone, and then the rest is not. */
static void compare_nets(const tl_net *a, const tl_net *b, bool frozen) {
    const tl_parameter *left, *right;
    int count = tl_net_parameters(a, &left), n = 0;
    assert_int_equal(tl_net_parameters(b, &right), count);
    for (int i = 0; i < count; i++) {
        if (same_tensor(left[i].tensor, right[i].tensor) != (!frozen || left[i].frozen))
            fail_msg("%s is %s", left[i].name, frozen && !left[i].frozen ? "as it was" : "another");
        n += left[i].frozen;
        for (int k = 0; tl_net_quantization(a, i, k, NULL); k++)
            assert_true(same_tensor(tl_net_quantization(a, i, k, NULL), tl_net_quantization(b, i, k, NULL)));
    }
    assert_true(n > 0 && n < count);
}

/* Steps change the adapters and nothing else; what is frozen has no gradient, no state and no master copy. */
static void test_frozen(void **state) {
    (void)state;
    for (int kind = 0; kind < 16; kind++) {
        bool llama = kind & 1, bf16 = kind & 2;
        tl_lora_base base = (tl_lora_base)(kind >> 2);
        world w = begin(llama, base, bf16, 3), still = begin(llama, base, bf16, 3);
        compare_nets(tl_trainer_net(w.trainer), tl_trainer_net(still.trainer), false);
        steps(&w, 3);
        compare_nets(tl_trainer_net(w.trainer), tl_trainer_net(still.trainer), true);
        const tl_parameter *list;
        int count = tl_net_parameters(tl_trainer_net(w.trainer), &list);
        const tl_optimizer *opt = tl_trainer_optimizer(w.trainer);
        for (int i = 0; i < count; i++) {
            assert_int_equal(tl_optimizer_states(opt, i), list[i].frozen ? 0 : 2);
            assert_int_equal(tl_optimizer_state(opt, i, 0) != NULL, !list[i].frozen);
            assert_int_equal(tl_optimizer_master(opt, i) != NULL, bf16 && !list[i].frozen);
            assert_int_equal(tl_tensor_needs_grad(list[i].tensor), !list[i].frozen);
            assert_int_equal(list[i].frozen, !list[i].adapter);
        }
        end(&w);
        end(&still);
    }
}

static void test_resume(void **state) {
    (void)state;
    char path[] = "/tmp/test_lora_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (int kind = 0; kind < 8; kind++) {
        bool llama = kind & 1;
        tl_lora_base base = (tl_lora_base)(kind >> 1);
        world whole = begin(llama, base, llama, 3), first = begin(llama, base, llama, 3),
              second = begin(llama, base, llama, 99);
        tl_ckpt_state s = {0};
        tl_error error = {0};
        double loss = steps(&whole, 8);
        steps(&first, 4);
        tl_ckpt_contents from = {first.ctx, tl_trainer_net(first.trainer), tl_trainer_optimizer(first.trainer), NULL,
                                 0};
        tl_ckpt_contents to = {second.ctx, tl_trainer_net(second.trainer), tl_trainer_optimizer(second.trainer), NULL,
                               0};
        if (tl_ckpt_save(path, &from, &s, &error) != TL_OK || tl_ckpt_load(path, &to, &s, &error) != TL_OK)
            fail_msg("%s", error.message);
        second.batch.seed = first.batch.seed;
        compare_nets(tl_trainer_net(first.trainer), tl_trainer_net(second.trainer), false);
        double resumed = steps(&second, 4);
        if (loss != resumed)
            fail_msg("%s: %.17g whole, %.17g resumed", bases[base], loss, resumed);
        compare_nets(tl_trainer_net(whole.trainer), tl_trainer_net(second.trainer), false);
        /* a checkpoint of another base is another run's */
        world other = begin(llama, base == TL_LORA_PLAIN ? TL_LORA_NF4 : TL_LORA_PLAIN, llama, 1);
        tl_ckpt_contents wrong = {other.ctx, tl_trainer_net(other.trainer), tl_trainer_optimizer(other.trainer), NULL,
                                  0};
        assert_int_not_equal(tl_ckpt_load(path, &wrong, &s, &error), TL_OK);
        assert_non_null(strstr(error.message, "weight"));
        end(&other);
        end(&whole);
        end(&first);
        end(&second);
    }
    unlink(path);
}

/* ---- nets ---- */

static tl_net *net_of(tl_ctx *ctx, bool llama, tl_dtype dtype) {
    tl_model m = llama ? small_llama() : small_gpt2();
    tl_net *net = tl_net_new(ctx, &m, dtype);
    check_ok(ctx);
    return net;
}

/* B is no longer zeros. */
static void disturb(tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++)
        if (list[i].adapter)
            assert_int_equal(tl_init_normal(list[i].tensor, 0, 0.3, list[i].name), TL_OK);
}

static double *logits_of(tl_ctx *ctx, tl_net *net, int64_t *count) {
    int32_t ids[2 * 9];
    for (int i = 0; i < 18; i++)
        ids[i] = (7 * i * i + 3) % 50;
    tl_tensor *x = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(9)), TL_DATA, ids, 18);
    tl_tensor *y = tl_cast(tl_net_forward(net, x), TL_F64);
    check_ok(ctx);
    *count = tl_tensor_count(y);
    double *values = malloc((size_t)*count * sizeof *values);
    assert_non_null(values);
    assert_int_equal(tl_tensor_read(y, values, (size_t)*count * sizeof *values), TL_OK);
    return values;
}

static double largest_difference(const double *a, const double *b, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* B = 0 computes what the base does; adapters change that; folded in, the logits stay. */
static void test_merge(void **state) {
    (void)state;
    for (int kind = 0; kind < 16; kind++) {
        bool llama = kind & 1;
        tl_dtype dtype = kind & 2 ? TL_F64 : TL_F32;
        tl_lora_options o = {.rank = 2, .targets = llama ? "q_proj,down_proj" : "all-linear"};
        o.base = (tl_lora_base)(kind >> 2);
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = net_of(ctx, llama, dtype);
        const tl_parameter *list;
        int64_t n;
        int plain = tl_net_parameters(net, &list);
        double *base = logits_of(ctx, net, &n);
        assert_int_equal(tl_net_use_lora(net, &o), TL_OK);
        assert_int_equal(tl_net_parameters(net, &list), plain + 2 * tl_net_lora_layers(net));
        assert_int_equal(tl_net_lora_layers(net), llama ? 4 : 8);
        double *start = logits_of(ctx, net, &n);
        if (o.base == TL_LORA_PLAIN)
            assert_memory_equal(base, start, (size_t)n * sizeof *base);
        else /* coarser, and the same model */
            assert_true(largest_difference(base, start, n) > 1e-6 && largest_difference(base, start, n) < 0.1);
        disturb(net);
        double *adapted = logits_of(ctx, net, &n);
        assert_true(largest_difference(base, adapted, n) > 1e-2);
        assert_int_equal(tl_net_merge_lora(net), TL_OK);
        assert_null(tl_net_lora(net));
        assert_int_equal(tl_net_parameters(net, &list), plain);
        double *merged = logits_of(ctx, net, &n), off = largest_difference(merged, adapted, n);
        /* int8's scale is f32's, and its product is rounded where it is written out */
        if (!(off <= (dtype == TL_F64 ? o.base == TL_LORA_INT8 ? 1e-6 : 1e-13 : 1e-5)))
            fail_msg("merged logits are %.3g away", off);
        for (int i = 0; i < plain; i++) {
            assert_true(tl_tensor_needs_grad(list[i].tensor));
            assert_false(list[i].frozen || list[i].adapter || list[i].full);
            assert_int_equal(tl_tensor_dtype(list[i].tensor), dtype);
        }
        assert_int_equal(tl_net_merge_lora(net), TL_ERR_STATE);
        free(base);
        free(start);
        free(adapted);
        free(merged);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

/* Names as in peft's files, shapes, counts, starts; and the defaults of targets and alpha. */
static void test_names(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = net_of(ctx, true, TL_BF16);
    tl_parameter_count before, after;
    tl_net_count(net, &before);
    assert_int_equal(tl_net_use_lora(net, &(tl_lora_options){.rank = 4, .base = TL_LORA_NF4_TWICE}), TL_OK);
    tl_net_count(net, &after);
    assert_string_equal(tl_net_lora(net)->targets, "q_proj,v_proj");
    assert_true(tl_net_lora(net)->alpha == 8);
    /* q: 32 → 32, v: 32 → 16, of rank 4, in two layers */
    assert_int_equal(tl_net_count_trainable(net), 2 * 4 * (32 + 32 + 32 + 16));
    assert_int_equal(after.unique - before.unique, tl_net_count_trainable(net));
    const tl_tensor *a = tl_net_find(net, "model.layers.1.self_attn.v_proj.lora_A.weight");
    const tl_tensor *b = tl_net_find(net, "model.layers.1.self_attn.v_proj.lora_B.weight");
    assert_true(a && b && tl_tensor_size(a, 0) == 4 && tl_tensor_size(a, 1) == 32 && tl_tensor_size(b, 0) == 16 &&
                tl_tensor_size(b, 1) == 4 && tl_tensor_dtype(a) == TL_BF16);
    tl_tensor *wide = tl_cast((tl_tensor *)(uintptr_t)a, TL_F64), *zeros = tl_cast((tl_tensor *)(uintptr_t)b, TL_F64);
    double most = 0;
    for (int i = 0; i < 128; i++)
        most = fmax(most, fabs(((double *)tl_tensor_data(wide))[i]));
    double bound = 1 / sqrt(32.0); /* torch's kaiming_uniform_(a=√5) */
    assert_true(most <= bound * 1.004 && most > 0.9 * bound);
    for (int i = 0; i < 64; i++)
        assert_true(((double *)tl_tensor_data(zeros))[i] == 0);
    /* the parameter stands for [16, 32] and takes 256 bytes, 8 codes, one scale of theirs and a mean */
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list), at = 0;
    while (at < count && strcmp(list[at].name, "model.layers.0.self_attn.v_proj.weight") != 0)
        at++;
    assert_true(at < count && list[at].full && list[at].full->dim[0].size == 16 && list[at].full->dim[1].size == 32);
    assert_int_equal(tl_tensor_storage_bytes(list[at].tensor), 256);
    const char *suffix;
    static const char *const names[] = {"absmax", "nested_absmax", "nested_mean"};
    static const int64_t bytes[] = {8, 4, 4};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(tl_tensor_storage_bytes(tl_net_quantization(net, at, k, &suffix)), bytes[k]);
        assert_string_equal(suffix, names[k]);
    }
    assert_null(tl_net_quantization(net, at, 3, &suffix));
    tl_net_free(net);
    net = net_of(ctx, false, TL_BF16);
    assert_int_equal(tl_net_use_lora(net, &(tl_lora_options){.rank = 4, .adapters_f32 = true}), TL_OK);
    assert_string_equal(tl_net_lora(net)->targets, "c_attn");
    assert_int_equal(tl_tensor_dtype(tl_net_find(net, "h.0.attn.c_attn.lora_B.weight")), TL_F32);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        tl_lora_options o;
        bool cruncher;
        const char *says;
    } cases[] = {
        {{.rank = 2, .targets = "q_proj,w_proj"},
         false,
         "adapters for \"w_proj\": small llama has no linear layer of that name"},
        {{.rank = 2, .targets = "nothing"},
         false,
         "there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"},
        {{.rank = 2, .targets = "embed_tokens"}, false, "\"embed_tokens\""},
        {{.rank = 2, .targets = "q_proj,"}, false, "adapters for \"\""},
        {{.rank = -1}, false, "rank -1"},
        {{.rank = 1, .alpha = -2}, false, "an alpha of -2"},
        {{.rank = 1, .alpha = NAN}, false, "an alpha of"},
        {{.rank = 1, .dropout = 1}, false, "p 1"},
        {{.rank = 0, .alpha = 2}, false, "have no effect"},
        {{.rank = 1, .base = (tl_lora_base)9}, false, "kind 9"},
        {{.rank = 1}, true, "adapters for small cruncher"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_ctx *ctx = tl_ctx_new(NULL, NULL);
        tl_model m = cases[i].cruncher ? small_cruncher() : small_llama();
        if (cases[i].o.rank) {
            assert_null(tl_net_new_lora(ctx, &m, TL_F32, NULL, &cases[i].o));
        } else {
            tl_net *plain = tl_net_new(ctx, &m, TL_F32);
            assert_int_equal(tl_net_use_lora(plain, &cases[i].o), TL_ERR_ARGUMENT);
            tl_net_free(plain);
        }
        if (!strstr(tl_ctx_error(ctx)->message, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", tl_ctx_error(ctx)->message, cases[i].says);
        tl_ctx_free(ctx);
    }
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = net_of(ctx, false, TL_F32);
    ((float *)tl_tensor_data(tl_net_find(net, "h.1.mlp.c_fc.weight")))[77] = NAN;
    assert_int_equal(tl_net_use_lora(net, &(tl_lora_options){.rank = 2, .base = TL_LORA_NF4}), TL_ERR_ARGUMENT);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "h.1.mlp.c_fc.weight"));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "value 77"));
    tl_net_free(net);
    tl_ctx_clear_error(ctx);
    net = net_of(ctx, false, TL_F32);
    assert_int_equal(tl_net_use_lora(net, &(tl_lora_options){.rank = 2}), TL_OK);
    assert_int_equal(tl_net_use_lora(net, &(tl_lora_options){.rank = 2}), TL_ERR_STATE);
    tl_net_free(net);
    tl_ctx_clear_error(ctx);
    tl_model m = small_llama();
    tl_train_options o = {.micro_batch = 1, .seq = 4, .accumulation = 1, .ranks = 1, .dtype = TL_BF16, .fp8 = true};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    o.lora = (tl_lora_options){.rank = 2, .base = TL_LORA_INT8};
    assert_null(tl_trainer_new(ctx, &m, &o));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "float8 layers over a base of int8"));
    tl_ctx_free(ctx);
}

/* A net made quantised, one quantised afterwards, and one that read its weights from a file after it was: the same bits. The
 * first never held more than one weight in full. */
static void test_three_ways(void **state) {
    (void)state;
    char folder[] = "/tmp/test_lora_XXXXXX", file[80];
    assert_non_null(mkdtemp(folder));
    for (int kind = 0; kind < 8; kind++) {
        bool llama = kind & 1;
        tl_lora_options o = {.rank = 2, .base = (tl_lora_base)(kind >> 1)};
        tl_error error = {0};
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_model m = llama ? small_llama() : small_gpt2();
        tl_net *after = tl_net_new(ctx, &m, TL_F32);
        if (tl_weights_save(folder, after, NULL, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_int_equal(tl_net_use_lora(after, &o), TL_OK);
        tl_net *made = tl_net_new_lora(ctx, &m, TL_F32, NULL, &o);
        tl_net *read = tl_net_new_lora(ctx, &m, TL_F32, "zeros", &o);
        check_ok(ctx);
        if (tl_weights_load(folder, read, NULL, &error) != TL_OK)
            fail_msg("%s", error.message);
        compare_nets(made, after, false);
        compare_nets(read, after, false);
        assert_int_equal(tl_weights_save(folder, read, NULL, &error), TL_ERR_UNSUPPORTED);
        tl_net_free(read);
        tl_net_free(made);
        tl_net_free(after);
        tl_ctx_free(ctx);
    }
    static const char *const files[] = {"model.safetensors", "config.json"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        unlink(file);
    }
    rmdir(folder);
    tl_ctx *ctx = tl_ctx_new(NULL, NULL);
    tl_model m = small_llama();
    m.layers = 40;
    tl_net *net = tl_net_new_lora(ctx, &m, TL_BF16, NULL, &(tl_lora_options){.rank = 1, .base = TL_LORA_NF4});
    tl_peak peak;
    tl_ledger_phase_peak(ctx, TL_PHASE_INIT, &peak);
    assert_true(net && peak.bytes < tl_ledger_live_total(ctx) + 2 * 72 * 32 * 2);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* What a step keeps with adapters on the last layer's last product alone, by hand: the product's input [B,T,F], A's result
 * [B,T,r], the final norm's input [B,T,D] with its 1/rms, and the loss's logits and statistics. Nothing of all that lies before,
 * and nothing for the frozen weights' sake. */
static void test_saved(void **state) {
    (void)state;
    enum { B = 2, T = 7, D = 32, F = 72, V = 61, R = 3 };
    for (int base = 0; base < 4; base++) {
        tl_ctx *ctx = tl_ctx_new(NULL, NULL);
        tl_model m = small_llama();
        m.layers = 1;
        tl_lora_options o = {.rank = R, .targets = "down_proj", .base = (tl_lora_base)base};
        tl_net *net = tl_net_new_lora(ctx, &m, TL_F32, NULL, &o);
        tl_net_train(net, true);
        assert_int_equal(tl_record(ctx, true), TL_OK);
        tl_shape shape = TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T));
        tl_tensor *x = tl_empty(ctx, TL_I32, shape, TL_DATA), *y = tl_empty(ctx, TL_I32, shape, TL_DATA);
        assert_non_null(tl_net_loss(net, x, y));
        int64_t rows = B * T, norm = D + 1, loss = V + 1, expected = 4 * (rows * (F + R + norm + loss) + 1);
        assert_int_equal(tl_ledger_live(ctx, TL_SAVED), expected);
        tl_tape_clear(ctx);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

/* Parameters, a step's FLOPs and its peak as formulas, in the symbol r among others: each is checked against the ledger where it
 * is made. Without the first layer's inputs, which nothing wants a gradient of, the layers are not all alike. */
static void test_formulas(void **state) {
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        tl_plan_options o = {.micro_batch = 2, .seq = 16, .precision = TL_PRECISION_BF16_MIXED};
        o.model = kind & 1 ? small_llama() : small_gpt2();
        o.devices.count = 1;
        o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
        o.lora = (tl_lora_options){.rank = 5, .targets = "all-linear", .base = (tl_lora_base)(kind >> 1)};
        tl_plan_run run;
        tl_error error = {0};
        tl_explain_sum sum;
        if (tl_plan_run_make(&o, true, &run, &error) != TL_OK)
            fail_msg("%s", error.message);
        if (tl_explain_params(&run, &sum, &error) != TL_OK)
            fail_msg("%s", error.message);
        tl_parameter_count count;
        tl_net_count(tl_trainer_net(run.trainer), &count);
        assert_true(sum.value == (tl_u128)count.unique);
        tl_explain_free(&sum);
        if (tl_explain_flops(&run, TL_PHASE_ALL, TL_EXPLAIN_MATMUL, &sum, &error) != TL_OK)
            fail_msg("%s", error.message);
        tl_explain_free(&sum);
        if (tl_explain_memory(&run, TL_PHASE_ALL, &sum, &error) != TL_OK)
            fail_msg("base %d: %s", kind >> 1, error.message);
        tl_peak peak;
        tl_ledger_peak(run.ctx, &peak);
        assert_true(sum.value == (tl_u128)peak.bytes);
        tl_explain_free(&sum);
        tl_plan_run_free(&run);
    }
}

/* Each allocation of making, changing and merging a net fails in turn: an error, and nothing is left behind. */
static void test_no_memory(void **state) {
    (void)state;
    tl_model m = small_gpt2();
    m.layers = 1;
    for (int base = 0; base < 4; base++)
        for (int64_t fails = 0, done = 0; !done; fails += fails < 40 ? 1 : 7) {
            instrument *in = instrument_new(NULL);
            tl_allocator allocator = instrument_allocator(in);
            tl_ctx_options options = {.kernels = tl_kernels_portable(), .allocator = &allocator};
            tl_error error = {0};
            tl_lora_options o = {.rank = 2, .targets = "all-linear", .base = (tl_lora_base)base};
            tl_ctx *ctx = tl_ctx_new(&options, &error);
            assert_non_null(ctx);
            instrument_fail_after(in, fails);
            tl_net *net = tl_net_new_lora(ctx, &m, TL_F32, NULL, &o);
            if (net && tl_net_merge_lora(net) == TL_OK)
                done = tl_net_use_lora(net, &o) == TL_OK;
            assert_true(done || tl_ctx_status(ctx) == TL_ERR_MEMORY);
            instrument_fail_after(in, -1);
            tl_net_free(net);
            tl_ctx_free(ctx);
            assert_int_equal(instrument_free(in), 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),   cmocka_unit_test(test_frozen),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_merge),     cmocka_unit_test(test_names),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_saved),     cmocka_unit_test(test_three_ways), cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
