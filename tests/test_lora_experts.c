/* Adapters and quantised bases of experts, heads as targets, modules trained in full. What is expected: the logits of the same net
 * with its weights merged; the gradients of A and B by the chain rule from those of a plain net's whole weights, dA = s·Bᵀ·dW and
 * dB = s·dW·Aᵀ (Hu et al. 2021, equation 3 differentiated); names and shapes as in the header. What it takes beside the second
 * instrument: tests/test_planned_measured.c. */
#include "layers.h"

#include "family_models.h"
#include "tally/init.h"
#include "tally/lora.h"
#include "tally/nn.h"

static const char *const families[] = {"mixtral",   "deepseek_v3", "deepseek_v2", "qwen2_moe",
                                       "qwen3_moe", "gpt_oss",     "llama4",      "gemma4_moe"};
enum { FAMILIES = sizeof families / sizeof families[0] };

static tl_model model_of(const char *name) {
    for (int i = 0; i < family_model_count(); i++)
        if (strcmp(family_model(i).name, name) == 0)
            return family_model(i);
    fail_msg("there is no %s", name);
    return (tl_model){0};
}

static tl_net *net_of(tl_ctx *ctx, const char *family, tl_dtype dtype) {
    tl_model m = model_of(family);
    tl_net *net = tl_net_new(ctx, &m, dtype);
    check_ok(ctx);
    return net;
}

static const tl_parameter *list_of(const tl_net *net, int *count) {
    const tl_parameter *list;
    *count = tl_net_parameters(net, &list);
    return list;
}

static void disturb(tl_net *net) {
    int count;
    const tl_parameter *list = list_of(net, &count);
    for (int i = 0; i < count; i++)
        if (list[i].adapter)
            assert_int_equal(tl_init_normal(list[i].tensor, 0, 0.2, list[i].name), TL_OK);
}

static tl_tensor *tokens(tl_ctx *ctx, const tl_net *net, int shift) {
    int32_t ids[2 * 9];
    for (int i = 0; i < 18; i++)
        ids[i] = (int32_t)((7 * i * i + 3 + shift * (i + 1)) % tl_net_model(net)->vocab);
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(9)), TL_DATA, ids, 18);
}

static double *values_of(tl_ctx *ctx, tl_tensor *t, int64_t *count) {
    tl_tensor *wide = tl_cast(t, TL_F64);
    check_ok(ctx);
    *count = tl_tensor_count(wide);
    double *values = malloc((size_t)*count * sizeof *values);
    assert_non_null(values);
    assert_int_equal(tl_tensor_read(wide, values, (size_t)*count * sizeof *values), TL_OK);
    return values;
}

static double *logits_of(tl_ctx *ctx, tl_net *net, int64_t *count) {
    return values_of(ctx, tl_net_forward(net, tokens(ctx, net, 0)), count);
}

static double furthest(const double *a, const double *b, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

static int adapters_of_experts(const tl_net *net) {
    int count, n = 0;
    const tl_parameter *list = list_of(net, &count);
    for (int i = 0; i < count; i++)
        n += list[i].adapter && strstr(list[i].name, ".experts.") != NULL;
    return n;
}

/* Every family, base and way to dispatch: adapters change the logits, and folded in they stay. */
static void merge_one(const char *family, tl_lora_base base, bool capacity) {
    tl_lora_options o = {.rank = 2, .targets = "all-linear", .base = base};
    tl_choices choices = {.experts = capacity ? TL_EXPERTS_CAPACITY : TL_EXPERTS_DROPLESS, .capacity_factor = 4};
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = net_of(ctx, family, TL_F64);
    assert_int_equal(tl_net_choose(net, &choices), TL_OK);
    int64_t n;
    int plain, count;
    (void)list_of(net, &plain);
    double *before = logits_of(ctx, net, &n);
    if (tl_net_use_lora(net, &o) != TL_OK)
        fail_msg("%s: %s", family, tl_ctx_error(ctx)->message);
    assert_true(adapters_of_experts(net) >= 4);
    double *start = logits_of(ctx, net, &n), coarse = furthest(before, start, n);
    if (base == TL_LORA_PLAIN)
        assert_true(coarse <= (capacity ? 1e-12 : 0));
    disturb(net);
    double *adapted = logits_of(ctx, net, &n);
    assert_true(furthest(start, adapted, n) > 1e-3);
    const tl_parameter *list = list_of(net, &count);
    for (int i = 0; i < count; i++)
        if (list[i].experts)
            assert_int_equal(list[i].full != NULL, base != TL_LORA_PLAIN);
    assert_int_equal(tl_net_merge_lora(net), TL_OK);
    (void)list_of(net, &count);
    assert_int_equal(count, plain);
    double *merged = logits_of(ctx, net, &n), off = furthest(merged, adapted, n);
    if (!(off <= (base == TL_LORA_INT8 ? 1e-5 : 1e-11)))
        fail_msg("%s over %s%s: merged logits are %.3g away", family, tl_lora_base_name(base),
                 capacity ? ", capacity" : "", off);
    free(before);
    free(start);
    free(adapted);
    free(merged);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_merge(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int base = 0; base < 4; base++)
            for (int capacity = 0; capacity < 2; capacity++)
                merge_one(families[f], (tl_lora_base)base, capacity);
}

static void backward(tl_ctx *ctx, tl_net *net) {
    (void)tl_record(ctx, true);
    tl_tensor *loss = tl_net_loss(net, tokens(ctx, net, 0), tokens(ctx, net, 5));
    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    (void)tl_record(ctx, false);
}

/* out[p,q] += s·Σ a·b over experts' matrices: dA = s·Bᵀ·dW, dB = s·dW·Aᵀ. */
static void check_chain(const char *what, const double *got, const double *want, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    assert_true(most > 0);
    if (!(furthest(got, want, n) <= 1e-9 * most + 1e-14))
        fail_msg("%s: %.3g away of %.3g", what, furthest(got, want, n), most);
}

static void check_gradients(tl_ctx *ctx, tl_net *net, tl_net *whole, const tl_parameter *p, double scale) {
    char name[2][200];
    int length = (int)strlen(p->name);
    int64_t n, rank = tl_net_lora(net)->rank;
    if (length > 7 && strcmp(p->name + length - 7, ".weight") == 0)
        length -= 7;
    for (int k = 0; k < 2; k++)
        snprintf(name[k], sizeof name[k], "%.*s.lora_%c.weight", length, p->name, "AB"[k]);
    tl_tensor *a = tl_net_find(net, name[0]), *b = tl_net_find(net, name[1]);
    tl_tensor *dw = tl_tensor_grad(tl_net_find(whole, p->name));
    assert_true(a && b && dw);
    int64_t E = p->experts ? tl_tensor_size(a, 0) : 1, in = tl_tensor_size(a, -1), out = tl_tensor_size(b, -2);
    double *va = values_of(ctx, a, &n), *vb = values_of(ctx, b, &n), *vw = values_of(ctx, dw, &n);
    double *ga = values_of(ctx, tl_tensor_grad(a), &n), *gb = values_of(ctx, tl_tensor_grad(b), &n);
    double *wa = calloc((size_t)(E * rank * in), sizeof *wa), *wb = calloc((size_t)(E * out * rank), sizeof *wb);
    for (int64_t e = 0; e < E; e++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) {
                double d = scale * (p->turned ? vw[(e * in + i) * out + o] : vw[(e * out + o) * in + i]);
                for (int64_t r = 0; r < rank; r++) {
                    wa[(e * rank + r) * in + i] += d * vb[(e * out + o) * rank + r];
                    wb[(e * out + o) * rank + r] += d * va[(e * rank + r) * in + i];
                }
            }
    check_chain(name[0], ga, wa, E * rank * in);
    check_chain(name[1], gb, wb, E * out * rank);
    free(va), free(vb), free(vw), free(ga), free(gb), free(wa), free(wb);
}

static void test_gradients(void **state) {
    (void)state;
    static const char *const untied[] = {"mixtral", "gpt_oss", "llama4", "qwen3_moe"};
    for (int kind = 0; kind < 16; kind++) {
        const char *family = untied[kind / 4];
        bool quantised = kind & 1;
        tl_lora_options o = {.rank = 3, .targets = "all-linear", .base = quantised ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN};
        tl_choices choices = {.experts = kind & 2 ? TL_EXPERTS_CAPACITY : TL_EXPERTS_DROPLESS, .capacity_factor = 4};
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = net_of(ctx, family, TL_F64), *whole = net_of(ctx, family, TL_F64);
        assert_int_equal(tl_net_choose(net, &choices), TL_OK);
        assert_int_equal(tl_net_choose(whole, &choices), TL_OK);
        assert_int_equal(tl_net_use_lora(net, &o), TL_OK);
        disturb(net);
        assert_int_equal(tl_net_use_lora(whole, &o), TL_OK);
        disturb(whole); /* the same numbers: they come by name */
        backward(ctx, net);
        assert_int_equal(tl_net_merge_lora(whole), TL_OK);
        backward(ctx, whole);
        int count, checked = 0;
        const tl_parameter *list = list_of(net, &count);
        for (int i = 0; i < count; i++)
            if (list[i].experts) {
                check_gradients(ctx, net, whole, &list[i], 2.0); /* alpha is twice the rank */
                checked++;
            } else if (list[i].frozen)
                assert_null(tl_tensor_grad(list[i].tensor));
        assert_true(checked >= 4);
        tl_net_free(net);
        tl_net_free(whole);
        tl_ctx_free(ctx);
    }
}

/* mixtral's w1 alone: names, shapes, starts; the bytes of a base along the flattened parameter. */
static void test_names(void **state) {
    (void)state;
    tl_model m = model_of("mixtral");
    int64_t E = m.experts, D = m.width, F = m.expert_ff, elements = E * D * F, scales = (elements + 63) / 64;
    const int64_t bytes[4][3] = {{0}, {4 * E * F}, {4 * scales}, {scales, 4 * ((scales + 255) / 256), 4}};
    for (int base = 0; base < 4; base++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = net_of(ctx, "mixtral", TL_F32);
        tl_parameter_count before, after;
        tl_net_count(net, &before);
        tl_lora_options o = {.rank = 4, .targets = "w1", .base = (tl_lora_base)base};
        assert_int_equal(tl_net_use_lora(net, &o), TL_OK);
        tl_net_count(net, &after);
        assert_int_equal(tl_net_lora_layers(net), m.layers);
        assert_int_equal(tl_net_count_trainable(net), m.layers * E * 4 * (D + F));
        assert_int_equal(after.unique - before.unique, m.layers * E * 4 * (D + F));
        /* each token passes k of E */
        assert_int_equal(after.active - before.active, m.layers * m.experts_per_token * 4 * (D + F));
        tl_tensor *a = tl_net_find(net, "model.layers.0.block_sparse_moe.experts.w1.lora_A.weight");
        tl_tensor *b = tl_net_find(net, "model.layers.0.block_sparse_moe.experts.w1.lora_B.weight");
        assert_true(a && b);
        assert_true(tl_tensor_size(a, 0) == E && tl_tensor_size(a, 1) == 4 && tl_tensor_size(a, 2) == D);
        assert_true(tl_tensor_size(b, 0) == E && tl_tensor_size(b, 1) == F && tl_tensor_size(b, 2) == 4);
        int64_t n;
        double *va = values_of(ctx, a, &n), most = 0, bound = 1 / sqrt((double)D);
        for (int64_t i = 0; i < n; i++)
            most = fmax(most, fabs(va[i]));
        assert_true(most <= bound && most > 0.9 * bound);
        free(va);
        int count, at = 0;
        const tl_parameter *list = list_of(net, &count);
        while (strcmp(list[at].name, "model.layers.0.block_sparse_moe.experts.w1.weight") != 0)
            at++;
        assert_int_equal(tl_tensor_storage_bytes(list[at].tensor), base == TL_LORA_PLAIN  ? 4 * elements
                                                                   : base == TL_LORA_INT8 ? elements
                                                                                          : (elements + 1) / 2);
        for (int k = 0; k < 3; k++) {
            const tl_tensor *s = tl_net_quantization(net, at, k, NULL);
            assert_int_equal(s ? tl_tensor_storage_bytes(s) : 0, bytes[base][k]);
        }
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

static void refused(const char *family, tl_lora_options o, const char *words) {
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = net_of(ctx, family, TL_F32);
    assert_int_equal(tl_net_use_lora(net, &o), TL_ERR_ARGUMENT);
    if (!strstr(tl_ctx_error(ctx)->message, words))
        fail_msg("\"%s\" does not say \"%s\"", tl_ctx_error(ctx)->message, words);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* The head is a target by its name alone, and tables are trained in full where asked for. */
static void test_head(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = net_of(ctx, "mixtral", TL_F64);
        tl_model m = model_of("mixtral");
        tl_lora_options o = {.rank = 2,
                             .targets = kind & 1 ? "q_proj,lm_head" : "q_proj",
                             .trained = kind & 1 ? "embed_tokens,norm" : "lm_head,embed_tokens",
                             .base = kind & 2 ? TL_LORA_NF4 : TL_LORA_PLAIN};
        int64_t n, VD = m.vocab * m.width, q = m.heads * m.head_size;
        assert_int_equal(tl_net_use_lora(net, &o), TL_OK);
        int64_t low = m.layers * 2 * (m.width + q);
        assert_int_equal(tl_net_count_trainable(net),
                         kind & 1 ? low + 2 * (m.width + m.vocab) + VD + m.width : low + 2 * VD);
        disturb(net);
        backward(ctx, net);
        int count;
        const tl_parameter *list = list_of(net, &count);
        for (int i = 0; i < count; i++)
            assert_int_equal(tl_tensor_grad(list[i].tensor) != NULL, !list[i].frozen);
        double *adapted = logits_of(ctx, net, &n);
        assert_int_equal(tl_net_merge_lora(net), TL_OK);
        double *merged = logits_of(ctx, net, &n);
        assert_true(furthest(adapted, merged, n) <= 1e-12);
        free(adapted);
        free(merged);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
    refused("qwen2", (tl_lora_options){.rank = 2, .targets = "lm_head"}, "token table");
    refused("mixtral", (tl_lora_options){.rank = 2, .targets = "gate_proj"}, "w1, w3, w2, lm_head");
    refused("mixtral", (tl_lora_options){.rank = 2, .trained = "nothing"}, "embed_tokens");
    refused("mixtral", (tl_lora_options){.rank = 2, .trained = "q_proj"}, "has adapters already");
    refused("mixtral", (tl_lora_options){.rank = 2, .targets = "v_proj", .trained = "w1", .base = TL_LORA_NF4},
            "is quantised");
    refused("mixtral", (tl_lora_options){.rank = 2, .trained = "lm_head", .base = TL_LORA_NF4, .base_head = true},
            "is quantised");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
