/* What our model code keeps for backward under the choices of torch-eager is what PyTorch 1.13 was seen to keep
 * (fixtures/saved_bytes_fixtures.h, docs/torch-saves.md): tensor by tensor, as multisets of (width, elements), and by bytes of
 * storages. Parameters, the block's input, masks, rotary tables and labels stand apart on both sides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/saved_bytes_fixtures.h"
#include "grad/tape.h"
#include "nn/net.h"
#include "tally/account.h"
#include "tally/engine.h"
#include "tally/ops.h"

#define MIB ((int64_t)1 << 20)

typedef struct kept {
    const char *op;
    int64_t width, elements, storage_bytes;
    const void *storage; /* entries of one share memory */
    bool input;          /* made outside of what is looked at */
    bool used;
} kept;
typedef struct kept_list {
    kept at[4096];
    int count;
} kept_list;

/* ---- ours ---- */

static bool within(const char *module, const char *const prefix[], int n) {
    for (int i = 0; i < n; i++)
        if (strncmp(module, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

/* What the nodes in these modules keep. */
static void gather(tl_ctx *ctx, const char *const prefix[], int n, kept_list *list) {
    list->count = 0;
    const struct tl_tape *tape = ctx->tape;
    for (int64_t i = 0; i < tape->count; i++) {
        const tl_node *node = tape->nodes[i];
        if (!within(tl_module_path(ctx, node->module), prefix, n))
            continue;
        for (int k = 0; k < node->n_kept; k++) {
            const tl_tensor *t = node->kept[k].tensor;
            const tl_storage *s = t->storage;
            const char *made = tl_module_path(ctx, s->module);
            if (s->category == TL_PARAM || s->category == TL_DATA || t->shape.ndim == 0 ||
                strncmp(made, "rotary", 6) == 0 || strncmp(made, "mask", 4) == 0)
                continue;
            assert_true(list->count < 4096);
            list->at[list->count++] = (kept){.op = node->op->name,
                                             .width = tl_dtype_bytes(t->dtype),
                                             .elements = tl_tensor_count(t),
                                             .storage_bytes = s->bytes,
                                             .storage = s,
                                             .input = !within(made, prefix, n)};
        }
    }
}

static void sums(const kept_list *list, bool input, int64_t *unique, int64_t *summed) {
    *unique = *summed = 0;
    for (int i = 0; i < list->count; i++) {
        const kept *e = &list->at[i];
        if (e->input != input)
            continue;
        *summed += e->width * e->elements;
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || list->at[j].storage == e->storage;
        *unique += seen ? 0 : e->storage_bytes;
    }
}

/* ---- theirs ---- */

static int64_t width_of(const char *dtype) {
    return strcmp(dtype, "f32") == 0 ? 4 : strcmp(dtype, "bf16") == 0 ? 2 : strcmp(dtype, "bool") == 0 ? 1 : 8;
}

static void theirs(const saved_case *c, kept_list *list) {
    list->count = 0;
    for (int i = 0; i < c->count; i++) {
        const saved_entry *e = &c->entries[i];
        if (e->kind != SAVED_KEPT && e->kind != SAVED_INPUT)
            continue;
        kept *k = &list->at[list->count++];
        *k = (kept){.op = e->op, .width = width_of(e->dtype), .elements = 1, .storage_bytes = e->storage_bytes};
        for (int d = 0; d < e->ndim; d++)
            k->elements *= e->dim[d];
        k->storage = (const char *)c + e->storage; /* a name */
        k->input = e->kind == SAVED_INPUT;
    }
}

static bool take(kept_list *list, const kept *e) {
    for (int i = 0; i < list->count; i++) {
        kept *k = &list->at[i];
        if (!k->used && k->width == e->width && k->elements == e->elements && k->input == e->input) {
            k->used = true;
            return true;
        }
    }
    return false;
}

/* ---- the blocks ---- */

typedef struct block_form {
    const char *name, *model, *choices; /* beside torch-eager's */
    bool head;                          /* last norm, output projection and loss instead of the block */
    bool sliced; /* the loss leaves each sequence's last position out, where ours has targets for all */
} block_form;

#define EAGER_1_13 "mean-input=on"
#define CS336                                                                                                          \
    "norm=wide,silu=composed,softmax=composed,softmax-fp32=off,repeat-kv=off,mask-tensor=off,attention-copies="        \
    "on," EAGER_1_13
static const block_form forms[] = {
    {"gpt2", "gpt2", "gelu=composed", false, false},
    {"gpt2_gelu", "gpt2", "gelu=fused", false, false}, /* nanoGPT's */
    {"gpt2_sdpa", "gpt2", "gelu=fused,attention=math", false, false},
    {"llama", "llama-2-7b", EAGER_1_13, false, false},
    {"llama_sdpa", "llama-2-7b", EAGER_1_13 ",attention=math", false, false},
    {"cs336", "llama-2-7b", CS336, false, false},
    {"head_float", "llama-2-7b", EAGER_1_13, true, true},
    {"head_float_pad", "llama-2-7b", EAGER_1_13, true, false},
    {"head", "llama-2-7b", EAGER_1_13 ",loss=log-softmax", true, true},
};
enum { FORMS = sizeof forms / sizeof forms[0], CASES = sizeof saved_cases / sizeof saved_cases[0] };

static tl_model model_of(const block_form *f, const saved_case *c) {
    tl_model m;
    tl_error error = {0};
    assert_int_equal(tl_catalogue_model(f->model, &m, &error), TL_OK);
    m.layers = 1;
    m.width = c->D;
    m.heads = f->head ? 1 : c->H;
    m.kv_heads = f->head ? 1 : c->G;
    m.head_size = f->head ? c->D : c->K;
    m.ff = f->head ? 4 : c->F;
    m.vocab = f->head ? c->V : 11;
    m.context = c->T;
    m.rope_interleaved = strcmp(f->name, "cs336") == 0;
    m.dropout_attention = m.dropout_embedding = m.dropout_residual = 0;
    if (tl_model_check(&m, &error) != TL_OK)
        fail_msg("%s: %s", f->name, error.message);
    return m;
}

static void choose(const tl_engine *engine, const tl_model *m, const char *text, tl_choices *choices) {
    tl_error error = {0};
    char list[400], *rest = NULL;
    tl_engine_choose(engine, m, choices);
    snprintf(list, sizeof list, "%s", text);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(one, '=');
        *value++ = '\0';
        if (tl_choice_set(choices, one, value, &error) != TL_OK)
            fail_msg("%s", error.message);
    }
}

static const tl_engine *engine_of(const char *name) {
    const tl_engine *engine = NULL;
    assert_int_equal(tl_engine_find(name, &engine, NULL), TL_OK);
    return engine;
}

/* What one forward keeps in these modules. */
static void run(const tl_model *m, tl_dtype dtype, int64_t B, int64_t T, const tl_choices *choices, tl_recompute again,
                const char *const prefix[], int n, kept_list *list) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_net *net = tl_net_new(ctx, m, dtype);
    tl_net_train(net, true);
    if (!net || tl_net_choose(net, choices) != TL_OK || tl_net_recompute(net, again) != TL_OK)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *tokens = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T)), TL_DATA);
    if (!tl_net_loss(net, tokens, tokens))
        fail_msg("%s", tl_ctx_error(ctx)->message);
    gather(ctx, prefix, n, list);
    tl_tape_clear(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static const char *const block_prefix[] = {"h.0", "layers.0"};
static const char *const head_prefix[] = {"norm", "lm_head", "loss"};
static const tl_recompute none = {TL_RECOMPUTE_NONE, 0};

/* A position without a loss has no row of log-softmax. */
static void slice(const saved_case *c, kept_list *ours) {
    for (int i = 0; i < ours->count; i++)
        if (strcmp(ours->at[i].op, "log_softmax") == 0 || strcmp(ours->at[i].op, "nll_loss") == 0) {
            assert_int_equal(ours->at[i].elements, c->B * c->T * c->V);
            ours->at[i].elements = c->B * (c->T - 1) * c->V;
            ours->at[i].storage_bytes = ours->at[i].elements * ours->at[i].width;
        }
}

static void compare(const block_form *f, const saved_case *c, const kept_list *ours, kept_list *torch) {
    int64_t a[2], b[2];
    for (int i = 0; i < ours->count; i++) {
        const kept *e = &ours->at[i];
        if (take(torch, e))
            continue;
        fail_msg("%s %s B %lld T %lld: PyTorch keeps no %" PRId64 " of width %" PRId64 " as our %s does%s", f->name,
                 c->dtype, c->B, c->T, e->elements, e->width, e->op, e->input ? " (an input)" : "");
    }
    for (int i = 0; i < torch->count; i++)
        if (!torch->at[i].used)
            fail_msg("%s %s B %lld T %lld: PyTorch's %s keeps %" PRId64 " of width %" PRId64 " more%s", f->name,
                     c->dtype, c->B, c->T, torch->at[i].op, torch->at[i].elements, torch->at[i].width,
                     torch->at[i].input ? " (an input)" : "");
    for (int input = 0; input < 2; input++) {
        sums(ours, input, &a[0], &b[0]);
        sums(torch, input, &a[1], &b[1]);
        if (a[0] != a[1] || b[0] != b[1])
            fail_msg("%s %s B %lld T %lld: unique %" PRId64 ", PyTorch's %" PRId64 "; summed %" PRId64 ", %" PRId64,
                     f->name, c->dtype, c->B, c->T, a[0], a[1], b[0], b[1]);
    }
    sums(torch, false, &a[1], &b[1]);
    assert_int_equal(a[1], c->unique); /* the fixture's own sum */
}

static void test_tensor_by_tensor(void **state) {
    (void)state;
    static kept_list ours, torch;
    const tl_engine *eager = engine_of("torch-eager");
    int compared = 0;
    for (int i = 0; i < CASES; i++) {
        const saved_case *c = &saved_cases[i];
        for (int k = 0; k < FORMS; k++) {
            if (strcmp(c->block, forms[k].name) != 0)
                continue;
            tl_model m = model_of(&forms[k], c);
            tl_choices choices;
            choose(eager, &m, forms[k].choices, &choices);
            run(&m, strcmp(c->dtype, "f32") == 0 ? TL_F32 : TL_BF16, c->B, c->T, &choices, none,
                forms[k].head ? head_prefix : block_prefix, forms[k].head ? 3 : 2, &ours);
            if (forms[k].sliced)
                slice(c, &ours);
            theirs(c, &torch);
            compare(&forms[k], c, &ours, &torch);
            compared++;
        }
    }
    assert_int_equal(compared, 5 * FORMS);
}

/* ---- CS336, assignment 2: d 2560, ff 10240, 16 heads, B 4, T 2048, float32 (docs/torch-saves.md) ---- */

static const saved_case *published(void) {
    for (int i = 0; i < CASES; i++)
        if (strcmp(saved_cases[i].block, "cs336") == 0 && saved_cases[i].D == 2560)
            return &saved_cases[i];
    fail();
    return NULL;
}

static void of_cs336(const char *engine, const char *text, int layers, kept_list *list) {
    static const char *const blocks[] = {"layers."};
    const saved_case *c = published();
    tl_model m = model_of(&forms[5], c);
    tl_choices choices;
    m.layers = layers;
    for (int i = 1; i < layers; i++)
        m.layer[i] = m.layer[0];
    choose(engine_of(engine), &m, text, &choices);
    run(&m, TL_F32, c->B, c->T, &choices, none, blocks, 1, list);
}

static void both(const kept_list *list, int64_t *unique, int64_t *summed) {
    int64_t a[2], b[2];
    sums(list, false, &a[0], &b[0]);
    sums(list, true, &a[1], &b[1]);
    *unique = a[0] + a[1];
    *summed = b[0] + b[1];
}

static void test_cs336(void **state) {
    (void)state;
    static kept_list list;
    int64_t unique, summed;
    of_cs336("torch-eager", CS336, 1, &list);
    both(&list, &unique, &summed);
    assert_true((double)unique / MIB == 4609.5625 &&
                (double)summed / MIB == 6353.625); /* published: 4609.56, 6353.63 */
    of_cs336("torch-eager", CS336 ",mean-input=off", 1, &list);
    both(&list, &unique, &summed);
    assert_true((double)unique / MIB == 4449.5625 &&
                (double)summed / MIB == 6193.625); /* recorded without mean's input */
    /* under torch.compile, published: 3651.31 for one block, 14605.25 for four. The softmax stays as the handout writes it; with
     * it come the two rotary tables, here [T,K] each. */
    const double published_compiled[2] = {3651.31, 14605.25};
    for (int four = 0; four < 2; four++) {
        of_cs336("torch-compile", "softmax=composed", four ? 4 : 1, &list);
        both(&list, &unique, &summed);
        double mib = (double)(unique + INT64_C(2) * 2048 * 160 * 4) / MIB, off = mib / published_compiled[four] - 1;
        print_message("torch-compile, %d: %.4f MiB, %+.3f %%\n", four ? 4 : 1, mib, 100 * off);
        assert_true(off > -0.01 && off < 0.01);
    }
}

/* Two blocks in one checkpoint, twice: two inputs are kept, 160 MiB, and nothing of the inside. */
typedef struct pair {
    tl_net *net;
    int64_t first;
} pair;

static tl_status two_blocks(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const pair *p = user;
    tl_module_begin(ctx, "layers", p->first);
    tl_beside alone = {0};
    tl_tensor *x = tl_decoder_block(p->net, &p->net->blocks[p->first], in[0], &alone);
    out[0] = x ? tl_decoder_block(p->net, &p->net->blocks[p->first + 1], x, &alone) : NULL;
    tl_module_end(ctx);
    return tl_ctx_status(ctx);
}

static void test_checkpoints_of_two(void **state) {
    (void)state;
    static kept_list list;
    tl_error error = {0};
    const saved_case *c = published();
    tl_model m = model_of(&forms[5], c);
    tl_choices choices;
    m.layers = 4;
    for (int i = 1; i < 4; i++)
        m.layer[i] = m.layer[0];
    choose(engine_of("torch-eager"), &m, CS336 ",rotary=computed", &choices);
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    assert_int_equal(tl_net_choose(net, &choices), TL_OK);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(c->B), tl_dim_of(c->T), tl_dim_of(c->D));
    tl_tensor *leaf = tl_empty(ctx, TL_F32, shape, TL_WORK), *x = NULL;
    tl_tensor_require_grad(leaf, true);
    int64_t before = tl_ledger_live(ctx, TL_SAVED);
    x = tl_scale(leaf, 1, 0); /* as another op hands it over */
    for (int64_t first = 0; first < 4; first += 2) {
        pair p = {net, first};
        tl_tensor *y = NULL;
        if (tl_checkpoint(ctx, two_blocks, &p, sizeof p, &x, 1, &y, 1) != TL_OK)
            fail_msg("%s", tl_ctx_error(ctx)->message);
        x = y;
    }
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED) - before, 160 * MIB);
    gather(ctx, (const char *const[]){""}, 1, &list);
    int64_t unique, summed;
    both(&list, &unique, &summed);
    assert_true(unique == 160 * MIB && summed == unique);
    tl_tape_clear(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* ---- one layer of Hugging Face's models in bf16 without recompute, in hidden states of 2·B·T·D bytes with the block's input and
 * output: measured_memory_misc.csv ---- */
typedef struct coefficient {
    const char *model;
    double measured, within; /* share that ours may be off */
} coefficient;

static double in_and_out(const char *name, const tl_model *m, const char *text, double *rows) {
    static kept_list list;
    static const char *const prefix[] = {"layers.0"};
    enum { T = 4096 };
    tl_choices choices;
    int64_t unique, summed, statistics = 0;
    choose(engine_of(name), m, text, &choices);
    run(m, TL_BF16, 1, T, &choices, none, prefix, 1, &list);
    sums(&list, false, &unique, &summed);
    for (int i = 0; i < list.count; i++) {
        const kept *e = &list.at[i];
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || list.at[j].storage == e->storage;
        if (!seen && e->width == 4 && e->elements <= T * m->heads)
            statistics += e->storage_bytes; /* a number a row, or a row and head */
    }
    double unit = 2.0 * T * (double)m->width;
    *rows = (double)statistics / unit;
    return (double)(unique - statistics) / unit + 2;
}

static void test_hugging_face(void **state) {
    (void)state;
    /* SmolLM2-360M (960 wide, 15 heads of 64, 5 of keys, 2560): 8 of norms, 4 of attention, 4·2560/960 of the MLP and 2 are 24.67.
     * The published 24.0 is 2.7 % less, Qwen3-4B's 38.0 is 1.1 % more than ours. All that is published of this kind is even, as a
     * count of whole f32 hidden states is: each is the even number nearest ours, which is asserted too. */
    static const coefficient list[] = {{"llama-3.1-8b", 28, 0},    {"mistral-7b-v0.1", 28, 0},
                                       {"mistral-7b-v0.3", 28, 0}, {"gemma-2b", 48, 0},
                                       {"qwen3-4b", 38, 0.011},    {"smollm2-135m", 24, 0.028}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        tl_model m;
        tl_error error = {0};
        double rows;
        assert_int_equal(tl_catalogue_model(list[i].model, &m, &error), TL_OK);
        m.layers = 1;
        if (strcmp(list[i].model, "smollm2-135m") == 0) /* SmolLM2-360M's config.json */
            snprintf(m.name, sizeof m.name, "smollm2-360m"), m.width = 960, m.heads = 15, m.kv_heads = 5,
                                                             m.head_size = 64, m.ff = 2560;
        double ours = in_and_out("hf-trainer", &m, "", &rows), off = ours / list[i].measured - 1;
        print_message("%s: %.4f and %.4f of rows; measured %.1f\n", m.name, ours, rows, list[i].measured);
        assert_true((double)(2 * (int64_t)((ours + rows) / 2 + 0.5)) == list[i].measured);
        if (off > list[i].within || -off > list[i].within)
            fail_msg("%s: %.4f where %.1f was measured", m.name, ours, list[i].measured);
    }
}

/* FlashAttention's block term by term (formulas.md, "Modern block, FlashAttention, no dropout"), fused norms: per norm its input and
 * its output, q, attention's result, k and v g/a each, 4f/h of the MLP (3f/h fused); 4·a·s·b of log-sum-exp and 4·s·b a norm beside. */
static void test_modern_block(void **state) {
    (void)state;
    tl_model m;
    tl_error error = {0};
    double rows;
    assert_int_equal(tl_catalogue_model("llama-3.1-8b", &m, &error), TL_OK);
    m.layers = 1;
    double share = 8.0 / 32, wide = 14336.0 / 4096, statistics = (4.0 * 32 + 2 * 4) / (2 * 4096);
    /* 4 of norms, of which the block's input stands apart; in_and_out adds it and the output */
    double plain = in_and_out("tally", &m, "attention=flash", &rows) - 2 + 1;
    assert_true(plain == 4 + 2 + 2 * share + 4 * wide && rows == statistics);
    double fused = in_and_out("tally", &m, "attention=flash,glu=fused", &rows) - 2 + 1;
    assert_true(fused == 4 + 2 + 2 * share + 3 * wide && rows == statistics);
    double repeated = in_and_out("tally", &m, "attention=flash,repeat-kv=on", &rows) - 2 + 1;
    assert_true(repeated == 4 + 2 + 2 + 4 * wide);
}

/* ---- the table itself ---- */

static void test_every_row_can_be_set(void **state) {
    (void)state;
    assert_string_equal(tl_engine_at(0)->name, "tally");
    assert_null(tl_engine_at(-1));
    assert_null(tl_engine_at(tl_engine_count()));
    tl_model gpt2, llama;
    tl_error error = {0};
    assert_int_equal(tl_catalogue_model("gpt2", &gpt2, &error), TL_OK);
    assert_int_equal(tl_catalogue_model("llama-3.2-1b", &llama, &error), TL_OK);
    for (int i = 0; i < tl_engine_count(); i++) {
        const tl_engine *e = tl_engine_at(i), *found = NULL;
        tl_choices one = {0}, parsed = {0};
        char text[TL_CHOICES_TEXT];
        assert_int_equal(tl_engine_find(e->name, &found, &error), TL_OK);
        assert_ptr_equal(found, e);
        for (const tl_engine_choice *c = e->choices; c->name; c++) {
            if (tl_choice_set(&one, c->name, c->value, &error) != TL_OK)
                fail_msg("%s: %s", e->name, error.message);
            assert_true(strlen(c->source) > 10);
        }
        const tl_model *models[] = {&gpt2, &llama, NULL};
        for (int k = 0; k < 3; k++) {
            tl_engine_choose(e, models[k], &one);
            memset(&parsed, 0, sizeof parsed);
            if (tl_choices_parse(tl_engine_text(e, models[k], text, sizeof text), &parsed, &error) != TL_OK)
                fail_msg("%s: %s", e->name, error.message);
            assert_string_equal(tl_choices_difference(&parsed, &one, text, sizeof text), "");
        }
        assert_true(tl_engine_needs(e, 1000000, 900000) >= 900000);
        assert_int_equal(tl_engine_needs(e, INT64_MAX, INT64_MAX), INT64_MAX);
    }
    const tl_engine *eager = engine_of("torch-eager");
    tl_choices of[2];
    tl_engine_choose(eager, &gpt2, &of[0]);
    tl_engine_choose(eager, &llama, &of[1]);
    assert_true(of[0].gelu == TL_GELU_COMPOSED && of[1].gelu == TL_GELU_FUSED);
    assert_true(!of[0].softmax_fp32 && of[1].softmax_fp32);
    assert_int_equal(tl_engine_find("pytorch", &eager, &error), TL_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "torch-eager"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_can_be_set),
        cmocka_unit_test(test_tensor_by_tensor),
        cmocka_unit_test(test_cs336),
        cmocka_unit_test(test_checkpoints_of_two),
        cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_modern_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
