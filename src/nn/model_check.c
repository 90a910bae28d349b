/* Is a description one that a model can be built from? Sizes, divisibility, and products within 63 bits. */
#include "nn/names.h"

#include "base/nearest.h"

#include <string.h>

/* Far beyond anything built (405B: 126 layers, width 16384; DeepNet, arXiv 2203.00555: 1000 layers), and small enough to
 * keep messages meaningful. Every layer is run on meta, so the layers also bound a plan's time and memory: 1024 are half
 * a second and 130 MB, a million would be hours. */
#define MOST_LAYERS INT64_C(1024)
#define MOST_SIZE (INT64_C(1) << 40)

/* In the order of tl_family; Hugging Face's model_type where there is one. */
static const char *const family_names[] = {
    "gpt2",  "llama",  "cruncher", "mistral", "mixtral",    "qwen2",       "qwen2_moe",   "qwen3",   "qwen3_moe",
    "gemma", "gemma2", "gemma3",   "gemma4",  "phi",        "phi3",        "olmo",        "olmo2",   "gpt_neox",
    "gptj",  "opt",    "bloom",    "falcon",  "starcoder2", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4"};
_Static_assert(sizeof family_names / sizeof family_names[0] == TL_FAMILY_COUNT, "a family without a name");

const char *tl_family_name(tl_family family) {
    return (unsigned)family < TL_FAMILY_COUNT ? family_names[family] : "unknown";
}

typedef struct sized_field {
    const char *text;
    int64_t value, most;
    const tl_source *source;
} sized_field;

static tl_status check_sizes(const char *name, const sized_field *fields, int count, tl_error *error) {
    for (int i = 0; i < count; i++) {
        const char *source = fields[i].source->text;
        if (fields[i].value < 1 || fields[i].value > fields[i].most)
            return tl_fail(error, fields[i].value < 1 ? TL_ERR_ARGUMENT : TL_ERR_OVERFLOW,
                           "model %s: %s is %lld%s%s%s; it must be from 1 to %lld", name, fields[i].text,
                           (long long)fields[i].value, source[0] != '\0' ? " (" : "", source,
                           source[0] != '\0' ? ")" : "", (long long)fields[i].most);
    }
    return TL_OK;
}

static bool turns(const tl_model *m) { return tl_names_of(m) && tl_positions_of(m) == TL_POSITIONS_ROTARY; }

/* NaN fails every comparison, so these are written to pass only what lies inside. */
static tl_status check_numbers(const char *name, const tl_model *model, tl_error *error) {
    const struct {
        const char *text;
        double value;
        bool from_zero; /* 0 itself is fine */
        double most;
    } fields[] = {
        {"norm_epsilon", model->norm_epsilon, true, 1},
        {"init_std", model->init_std, true, 1e6},
        {"dropout_embedding", model->dropout_embedding, true, 0.999999},
        {"dropout_attention", model->dropout_attention, true, 0.999999},
        {"dropout_residual", model->dropout_residual, true, 0.999999},
        {"rope_theta", turns(model) ? model->rope_theta : 1, false, 1e18},
        {"rope_factor", model->rope_factor, true, 1e9},
        {"rope_low_freq", model->rope_factor > 0 ? model->rope_low_freq : 1, false, 1e9},
        {"rope_high_freq", model->rope_factor > 0 ? model->rope_high_freq : 1, false, 1e9},
        {"rope_original_context", model->rope_factor > 0 ? (double)model->rope_original_context : 1, false, 1e12},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        bool inside =
            fields[i].value <= fields[i].most && (fields[i].from_zero ? fields[i].value >= 0 : fields[i].value > 0);
        if (!inside)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: %s is %g; it must be %s 0 and at most %g", name,
                           fields[i].text, fields[i].value, fields[i].from_zero ? "at least" : "above", fields[i].most);
    }
    if (model->rope_factor > 0 && !(model->rope_high_freq > model->rope_low_freq))
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rope_high_freq %g must be above rope_low_freq %g", name,
                       model->rope_high_freq, model->rope_low_freq);
    return TL_OK;
}

static tl_status check_heads(const char *name, const tl_model *m, tl_error *error) {
    if (m->heads % m->kv_heads != 0)
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: %lld heads (H) do not divide among %lld key/value heads (G); H must be a multiple of G", name,
            (long long)m->heads, (long long)m->kv_heads);
    if (m->family == TL_FAMILY_GPT2) {
        if (m->width % m->heads != 0 || m->head_size != m->width / m->heads)
            return tl_fail(
                error, TL_ERR_SHAPE,
                "model %s: gpt2 splits the width evenly, but D = %lld is not H·K = %lld·%lld; take a width that is a "
                "multiple of the heads",
                name, (long long)m->width, (long long)m->heads, (long long)m->head_size);
        if (m->kv_heads != m->heads)
            return tl_fail(error, TL_ERR_SHAPE, "model %s: gpt2 has one key/value head per head, not %lld for %lld",
                           name, (long long)m->kv_heads, (long long)m->heads);
        if (!m->learned_positions)
            return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: gpt2 without learned positions is not built in", name);
    }
    int64_t part = m->kv_rank > 0 ? m->qk_rope : m->rotary_size;
    if (turns(m) && part == 0 && m->head_size % 2 != 0)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: head size (K) %lld is odd; rotary positions turn pairs, so K must be even", name,
                       (long long)m->head_size);
    if (turns(m) && (part < 0 || part % 2 != 0 || part > m->head_size))
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: of a head of %lld, %lld turn; rotary positions turn pairs, so an even number from 2 to "
            "%lld would work",
            name, (long long)m->head_size, (long long)part, (long long)m->head_size);
    return TL_OK;
}

/* ---- what a family's names allow ---- */

static tl_status refuse(const char *name, const tl_model *m, const char *what, tl_error *error) {
    return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: %s %s is not built in: its checkpoints have no name for it",
                   name, tl_family_name(m->family), what);
}

static tl_status check_names(const char *name, const tl_model *m, tl_error *error) {
    const tl_names *n = tl_names_of(m);
    if (m->gated ? !n->gate && !n->gate_up : !n->up)
        return refuse(name, m, m->gated ? "with a gated feed-forward" : "without a gated feed-forward", error);
    if (tl_positions_of(m) == TL_POSITIONS_LEARNED && !n->positions)
        return refuse(name, m, "with learned positions", error);
    if (m->place != TL_PLACE_PARALLEL && !n->norm_2)
        return refuse(name, m, "with two norms a block", error);
    if (m->place == TL_PLACE_AROUND && (!n->norm_1_after || !n->norm_2_after))
        return refuse(name, m, "with four norms a block", error);
    if ((m->qk_norm == TL_QK_HEAD || m->qk_norm == TL_QK_ALL) && !n->q_norm)
        return refuse(name, m, "with norms of q and k", error);
    if (m->embedding_norm && !n->embedding_norm)
        return refuse(name, m, "with a norm of the embeddings", error);
    if (m->experts > 0 && !n->moe)
        return refuse(name, m, "with experts", error);
    if (m->shared_ff > 0 && !n->shared)
        return refuse(name, m, "with shared experts", error);
    if (m->kv_rank > 0 && n->layout != TL_FUSED_NONE)
        return refuse(name, m, "with latent attention", error);
    return TL_OK;
}

/* ---- layers, experts, latent attention ---- */

static int layers_with(const tl_model *m, int bits) {
    int count = 0;
    for (int64_t i = 0; i < m->layers; i++)
        count += (m->layer[i] & bits) != 0;
    return count;
}

static tl_status check_field(const char *name, const char *what, int64_t value, int64_t most, tl_error *error) {
    if (value >= 1 && value <= most)
        return TL_OK;
    return tl_fail(error, value < 1 ? TL_ERR_ARGUMENT : TL_ERR_OVERFLOW,
                   "model %s: %s is %lld; it must be from 1 to %lld", name, what, (long long)value, (long long)most);
}

static tl_status check_experts(const char *name, const tl_model *m, tl_error *error) {
    int mixed = layers_with(m, TL_LAYER_EXPERTS);
    if (m->experts == 0 && mixed == 0)
        return TL_OK;
    if (m->experts > 0 && mixed == 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: %lld experts, and no layer that has them", name,
                       (long long)m->experts);
    tl_status status = check_field(name, "experts (E)", m->experts, INT64_C(1) << 20, error);
    if (status == TL_OK)
        status = check_field(name, "experts of a token (k)", m->experts_per_token, m->experts, error);
    if (status == TL_OK)
        status = check_field(name, "expert feed-forward size (Fe)", m->expert_ff, MOST_SIZE, error);
    if (status != TL_OK)
        return status;
    if (m->shared_ff < 0 || m->shared_ff > MOST_SIZE || (m->shared_gate && m->shared_ff == 0))
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: shared experts of %lld%s; 1 or more would work", name,
                       (long long)m->shared_ff, m->shared_gate ? " with a gate" : "");
    if (m->router == TL_ROUTER_SIGMOID_INPUT && m->experts_per_token != 1)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "model %s: a router that scales the experts' input sends a token to one expert, not to %lld",
                       name, (long long)m->experts_per_token);
    if (m->router_groups > 1 &&
        (m->experts % m->router_groups != 0 || m->router_top_groups < 1 || m->router_top_groups > m->router_groups))
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: %lld experts in %lld groups, the best %lld of them; groups that divide the experts, and 1 "
            "to all of them, would work",
            name, (long long)m->experts, (long long)m->router_groups, (long long)m->router_top_groups);
    return TL_OK;
}

static tl_status check_latent(const char *name, const tl_model *m, tl_error *error) {
    if (m->kv_rank == 0)
        return TL_OK;
    tl_status status = check_field(name, "rank of keys and values (Rkv)", m->kv_rank, MOST_SIZE, error);
    if (status == TL_OK)
        status = check_field(name, "still part of a key (Kn)", m->qk_nope, MOST_SIZE, error);
    if (status == TL_OK)
        status = check_field(name, "turning part of a key (Kr)", m->qk_rope, MOST_SIZE, error);
    if (status == TL_OK)
        status = check_field(name, "size of a value (Kv)", m->value_size, MOST_SIZE, error);
    if (status == TL_OK && (m->q_rank < 0 || m->q_rank > MOST_SIZE))
        status = check_field(name, "rank of queries (Rq)", m->q_rank, MOST_SIZE, error);
    if (status == TL_OK && (m->kv_heads != m->heads || m->head_size != m->qk_nope + m->qk_rope))
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: latent attention has a key a head, of %lld + %lld; G = %lld of H = %lld and K = %lld do not "
            "fit it",
            name, (long long)m->qk_nope, (long long)m->qk_rope, (long long)m->kv_heads, (long long)m->heads,
            (long long)m->head_size);
    return status;
}

static tl_status check_layers(const char *name, const tl_model *m, tl_error *error) {
    tl_status status = TL_OK;
    if (layers_with(m, TL_LAYER_WINDOW | TL_LAYER_CHUNKED) > 0)
        status = check_field(name, "window (W)", m->window, MOST_SIZE, error);
    if (status == TL_OK && layers_with(m, TL_LAYER_GLOBAL_HEADS) > 0) {
        status = check_field(name, "key/value heads of global layers (Gg)", m->global_kv_heads, m->heads, error);
        if (status == TL_OK)
            status = check_field(name, "head size of global layers (Kg)", m->global_head_size, MOST_SIZE, error);
        if (status == TL_OK && m->heads % m->global_kv_heads != 0)
            return tl_fail(error, TL_ERR_SHAPE, "model %s: %lld heads do not divide among %lld of global layers", name,
                           (long long)m->heads, (long long)m->global_kv_heads);
    }
    if (status == TL_OK && layers_with(m, TL_LAYER_LOCAL_ROPE) > 0 && !(m->rope_local_theta > 0))
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rope_local_theta is %g; it must be above 0", name,
                       m->rope_local_theta);
    if (status == TL_OK && m->temperature_scale > 0 && !(m->temperature_floor > 0))
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: temperature_floor is %g; it must be above 0", name,
                       m->temperature_floor);
    if (status == TL_OK && (m->position_offset < 0 || m->position_offset > MOST_SIZE || m->embedding_size < 0 ||
                            m->embedding_size > MOST_SIZE))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: position offset %lld, embeddings of %lld; 0 and up would work", name,
                       (long long)m->position_offset, (long long)m->embedding_size);
    return status;
}

/* Adds the product of up to four sizes to *total. */
static bool add_product(int64_t *total, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t product;
    return tl_mul_i64(a, b, &product) && tl_mul_i64(product, c, &product) && tl_mul_i64(product, d, &product) &&
           tl_add_i64(*total, product, total);
}

/* An upper bound of the parameters in elements, with 64 bytes of room for each: state in any precision stays within 63 bits. */
static tl_status check_products(const char *name, const tl_model *m, tl_error *error) {
    int64_t total = 0, scores;
    bool fits;
    if (m->family == TL_FAMILY_CRUNCHER) {
        fits = add_product(&total, m->layers, m->width, m->width, 1) && add_product(&total, 1, m->width, 1, 1);
    } else {
        fits = add_product(&total, 2, m->vocab, m->width, 1) && add_product(&total, m->context, m->width, 1, 1) &&
               add_product(&total, m->layers, m->width, m->ff, 3) &&
               add_product(&total, m->layers, m->width, m->heads, m->head_size) &&
               add_product(&total, m->layers, m->width, m->heads, m->head_size) &&
               add_product(&total, m->layers * 2, m->width, m->kv_heads, m->head_size) &&
               add_product(&total, m->layers * 16, m->width + m->ff, 1, 1) &&
               add_product(&total, m->layers * 3, m->width, m->shared_ff, 1) &&
               add_product(&total, 4 * m->experts, m->layers, m->width, m->expert_ff) &&
               add_product(&total, m->layers * 2, m->width, m->q_rank + m->kv_rank, 1) &&
               add_product(&total, m->layers, m->q_rank, m->heads, m->head_size) &&
               add_product(&total, m->layers * 2, m->kv_rank, m->heads, m->qk_nope + m->value_size) &&
               add_product(&total, m->layers * 2, m->width, m->heads, m->global_head_size + m->value_size);
    }
    if (!fits || !tl_mul_i64(total, 64, &total))
        return tl_fail(error, TL_ERR_OVERFLOW,
                       "model %s: N = %lld layers of D = %lld, F = %lld with V = %lld hold more bytes than 63 bits "
                       "count; one of the sizes is wrong",
                       name, (long long)m->layers, (long long)m->width, (long long)m->ff, (long long)m->vocab);
    if (m->family != TL_FAMILY_CRUNCHER && !(tl_mul_i64(m->context, m->context, &scores) &&
                                             tl_mul_i64(scores, m->heads, &scores) && tl_mul_i64(scores, 64, &scores)))
        return tl_fail(
            error, TL_ERR_OVERFLOW,
            "model %s: the scores of one sequence, H·C² with H = %lld and C = %lld, hold more bytes than 63 bits count",
            name, (long long)m->heads, (long long)m->context);
    return TL_OK;
}

tl_status tl_model_check(const tl_model *model, tl_error *error) {
    const sized_field fields[] = {
        {"layers (N)", model->layers, MOST_LAYERS, &model->source_layers},
        {"width (D)", model->width, MOST_SIZE, &model->source_width},
        {"heads (H)", model->heads, MOST_SIZE, &model->source_heads},
        {"key/value heads (G)", model->kv_heads, MOST_SIZE, &model->source_kv_heads},
        {"head size (K)", model->head_size, MOST_SIZE, &model->source_head_size},
        {"vocabulary (V)", model->vocab, MOST_SIZE, &model->source_vocab},
        {"context (C)", model->context, MOST_SIZE, &model->source_context},
        {"feed-forward size (F)", model->ff, MOST_SIZE, &model->source_ff}, /* last: only dense layers have one */
    };
    tl_status (*const checks[])(const char *, const tl_model *, tl_error *) = {check_heads, check_names, check_experts,
                                                                               check_latent, check_layers};
    char name[96];
    tl_status status;
    int count = (int)(sizeof fields / sizeof fields[0]);
    bool cruncher = model->family == TL_FAMILY_CRUNCHER, known = cruncher || tl_names_of(model);
    tl_quotable(model->name, strnlen(model->name, sizeof model->name), name, sizeof name);
    if (name[0] == '\0')
        memcpy(name, "(unnamed)", sizeof "(unnamed)");
    if (!known)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: family %d is not built in", name, (int)model->family);
    status = check_sizes(name, fields, 1, error);
    if (status == TL_OK && !cruncher && layers_with(model, TL_LAYER_EXPERTS) == model->layers && model->ff == 0)
        count--;
    if (status == TL_OK)
        status = check_sizes(name, fields, cruncher ? 2 : count, error);
    for (int i = 0; i < 5 && status == TL_OK && !cruncher; i++)
        status = checks[i](name, model, error);
    if (status == TL_OK)
        status = check_numbers(name, model, error);
    return status == TL_OK ? check_products(name, model, error) : status;
}
