/* Is a description one that a model can be built from? Sizes, divisibility, and products within 63 bits. */
#include "nn/names.h"

#include "base/nearest.h"

#include <string.h>

/* Far beyond anything built (405B: 126 layers, width 16384; DeepNet, arXiv 2203.00555: 1000 layers), and small enough to
 * keep messages meaningful. Every layer is run on meta, so the layers also bound a plan's time and memory: 1024 are half
 * a second and 130 MB, a million would be hours. */
#define MOST_LAYERS TL_MODEL_LAYERS

/* In the order of tl_family; Hugging Face's model_type where there is one. */
static const char *const family_names[] = {
    "gpt2",   "llama",      "cruncher",    "mistral",     "mixtral", "qwen2",  "qwen2_moe",
    "qwen3",  "qwen3_moe",  "gemma",       "gemma2",      "gemma3",  "gemma4", "phi",
    "phi3",   "olmo",       "olmo2",       "gpt_neox",    "gptj",    "opt",    "bloom",
    "falcon", "starcoder2", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4", "phi-msft"};
_Static_assert(sizeof family_names / sizeof family_names[0] == TL_FAMILY_COUNT, "a family without a name");

const char *tl_family_name(tl_family family) {
    return (unsigned)family < TL_FAMILY_COUNT ? family_names[family] : "unknown";
}

const char *tl_model_rope_name(const tl_model *m) {
    static const char *const names[] = {"plain", "llama3", "linear", "yarn", "dynamic", "ntk", "longrope"};
    _Static_assert(sizeof names / sizeof names[0] == TL_ROPE_LONGROPE + 1, "a scaling without a name");
    return names[m->rope_scaling == TL_ROPE_PLAIN && m->rope_factor > 0 ? TL_ROPE_LLAMA3 : m->rope_scaling];
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

/* ---- what is asked of a description ---- */

static bool turns(const tl_model *m) { return tl_names_of(m) && tl_positions_of(m) == TL_POSITIONS_ROTARY; }

static bool is_llama3(const tl_model *m) {
    return m->rope_factor > 0 && (m->rope_scaling == TL_ROPE_PLAIN || m->rope_scaling == TL_ROPE_LLAMA3);
}

/* Which bits any layer has. */
static unsigned all_bits(const tl_model *m) {
    unsigned bits = 0;
    for (int64_t i = 0; i < m->layers && i < TL_MODEL_LAYERS; i++)
        bits |= m->layer[i];
    return bits;
}

static bool every_layer_has_experts(const tl_model *m) {
    bool all = true;
    for (int64_t i = 0; i < m->layers && i < TL_MODEL_LAYERS; i++)
        all = all && (m->layer[i] & TL_LAYER_EXPERTS) != 0;
    return all;
}

typedef struct number_field {
    const char *text;
    double value;
    bool from_zero; /* 0 itself is fine */
    double most;
} number_field;

/* NaN fails every comparison, so these are written to pass only what lies inside. */
static tl_status check_fields(const char *name, const number_field *fields, size_t count, tl_error *error) {
    for (size_t i = 0; i < count; i++) {
        bool inside =
            fields[i].value <= fields[i].most && (fields[i].from_zero ? fields[i].value >= 0 : fields[i].value > 0);
        if (!inside)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: %s is %g; it must be %s 0 and at most %g", name,
                           fields[i].text, fields[i].value, fields[i].from_zero ? "at least" : "above", fields[i].most);
    }
    return TL_OK;
}

static tl_status check_numbers(const char *name, const tl_model *m, tl_error *error) {
    bool rotary = turns(m), yarn = m->rope_scaling == TL_ROPE_YARN;
    bool by_length = m->rope_scaling == TL_ROPE_DYNAMIC || m->rope_scaling == TL_ROPE_LONGROPE;
    bool local = (all_bits(m) & TL_LAYER_LOCAL_ROPE) != 0;
    const number_field fields[] = {
        {"norm_epsilon", m->norm_epsilon, true, 1},
        {"init_std", m->init_std, true, 1e6},
        {"dropout_embedding", m->dropout_embedding, true, 0.999999},
        {"dropout_attention", m->dropout_attention, true, 0.999999},
        {"dropout_residual", m->dropout_residual, true, 0.999999},
        {"rope_theta", rotary ? m->rope_theta : 1, false, 1e18},
        {"rope_local_theta", local ? m->rope_local_theta : 1, false, 1e18},
        {"rope_factor", m->rope_factor, m->rope_scaling == TL_ROPE_PLAIN || m->rope_scaling == TL_ROPE_LLAMA3, 1e9},
        {"rope_low_freq", is_llama3(m) ? m->rope_low_freq : 1, false, 1e9},
        {"rope_high_freq", is_llama3(m) ? m->rope_high_freq : 1, false, 1e9},
        {"rope_original_context", is_llama3(m) || yarn || by_length ? (double)m->rope_original_context : 1, false,
         1e12},
        {"rope_beta_fast", yarn ? m->rope_beta_fast : 1, false, 1e9},
        {"rope_beta_slow", yarn ? m->rope_beta_slow : 1, false, 1e9},
        {"rope_attention_factor", m->rope_attention_factor, true, 1e9},
        {"rope_mscale", m->rope_mscale, true, 1e9},
        {"rope_mscale_all", m->rope_mscale_all, true, 1e9},
        {"embedding_scale", m->embedding_scale, true, 1e9},
        {"query_scale", m->query_scale, true, 1e9},
        {"attention_softcap", m->attention_softcap, true, 1e18},
        {"final_softcap", m->final_softcap, true, 1e18},
        {"clip_qkv", m->clip_qkv, true, 1e18},
        {"temperature_scale", m->temperature_scale, true, 1e9},
        {"temperature_floor", m->temperature_scale > 0 ? m->temperature_floor : 1, false, 1e18},
        {"routed_scale", m->routed_scale, true, 1e9},
        {"router_loss", m->router_loss, true, 1e9},
    };
    tl_status status = check_fields(name, fields, sizeof fields / sizeof fields[0], error);
    if (status != TL_OK)
        return status;
    if (is_llama3(m) && m->rope_high_freq < m->rope_low_freq)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rope_high_freq %g must not be below rope_low_freq %g", name,
                       m->rope_high_freq, m->rope_low_freq);
    if (yarn && m->rope_beta_fast < m->rope_beta_slow)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rope_beta_fast %g must not be below rope_beta_slow %g", name,
                       m->rope_beta_fast, m->rope_beta_slow);
    return TL_OK;
}

/* Enumerations come from callers' structs; an unknown value would fall through every switch. */
static tl_status check_kinds(const char *name, const tl_model *m, tl_error *error) {
    const struct {
        const char *text;
        unsigned value, most;
    } kinds[] = {
        {"activation", (unsigned)m->activation, TL_GLU_CLAMPED},
        {"norm", (unsigned)m->norm, TL_NORM_RMS_ONE},
        {"place", (unsigned)m->place, TL_PLACE_POST},
        {"qk_norm", (unsigned)m->qk_norm, TL_QK_L2},
        {"positions", (unsigned)m->positions, TL_POSITIONS_ALIBI},
        {"rope_scaling", (unsigned)m->rope_scaling, TL_ROPE_LONGROPE},
        {"router", (unsigned)m->router, TL_ROUTER_SIGMOID_INPUT},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].value > kinds[i].most)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: %s is %u; it must be from 0 to %u", name, kinds[i].text,
                           kinds[i].value, kinds[i].most);
    if (m->activation == TL_GLU_CLAMPED && !m->gated)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "model %s: the clamped activation takes a gate; gated must be true with it", name);
    if (m->learned_positions && m->positions > TL_POSITIONS_LEARNED)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: learned_positions is true, but positions says another kind; only one can be", name);
    if (m->positions == TL_POSITIONS_LEARNED && !m->learned_positions)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: positions says learned; learned_positions must be true then",
                       name);
    if (m->position_offset != 0 && !m->learned_positions)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: position_offset is %lld without learned positions; it must be 0", name,
                       (long long)m->position_offset);
    return TL_OK;
}

/* longrope's factors, one for each pair that turns. */
static tl_status check_factors(const char *name, const tl_model *m, tl_error *error) {
    int64_t turned = m->rotary_size > 0 ? m->rotary_size : m->kv_rank > 0 ? m->qk_rope : m->head_size;
    if (m->rope_scaling != TL_ROPE_LONGROPE || !turns(m))
        return TL_OK;
    if (m->rope_factors < 1 || m->rope_factors > TL_MODEL_PAIRS || m->rope_factors != turned / 2)
        return tl_fail(error, TL_ERR_SHAPE, "model %s: rope_factors is %lld; %lld pairs of a head turn, %d at most",
                       name, (long long)m->rope_factors, (long long)(turned / 2), TL_MODEL_PAIRS);
    for (int64_t i = 0; i < m->rope_factors; i++) {
        const number_field fields[] = {{"rope_short", m->rope_short[i], false, 1e9},
                                       {"rope_long", m->rope_long[i], false, 1e9}};
        tl_status status = check_fields(name, fields, 2, error);
        if (status != TL_OK)
            return status;
    }
    if (m->rope_original_context < 2)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rope_original_context is %lld; longrope's must be above 1",
                       name, (long long)m->rope_original_context);
    return TL_OK;
}

/* How much of a head turns: pairs, so an even number. */
static tl_status check_turned(const char *name, const tl_model *m, tl_error *error) {
    if (!turns(m))
        return m->rotary_size == 0 ? TL_OK
                                   : tl_fail(error, TL_ERR_ARGUMENT,
                                             "model %s: rotary_size is %lld without rotary positions; it must be 0",
                                             name, (long long)m->rotary_size);
    if (m->rotary_size < 0 || m->rotary_size > m->head_size)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: rotary_size is %lld; it must be from 0 to the head size %lld",
                       name, (long long)m->rotary_size, (long long)m->head_size);
    if (m->rotary_size % 2 != 0)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: rotary_size %lld is odd; rotary positions turn pairs, so it must be even", name,
                       (long long)m->rotary_size);
    if (m->rotary_size == 0 && m->kv_rank == 0 && m->head_size % 2 != 0)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: head size (K) %lld is odd; rotary positions turn pairs, so K must be even", name,
                       (long long)m->head_size);
    return check_factors(name, m, error);
}

static tl_status check_gpt2(const char *name, const tl_model *m, tl_error *error) {
    if (m->width % m->heads != 0 || m->head_size != m->width / m->heads)
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: gpt2 splits the width evenly, but D = %lld is not H·K = %lld·%lld; take a width that is a "
            "multiple of the heads",
            name, (long long)m->width, (long long)m->heads, (long long)m->head_size);
    if (m->kv_heads != m->heads)
        return tl_fail(error, TL_ERR_SHAPE, "model %s: gpt2 has one key/value head per head, not %lld for %lld", name,
                       (long long)m->kv_heads, (long long)m->heads);
    if (!m->learned_positions)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: gpt2 without learned positions is not built in", name);
    return TL_OK;
}

static tl_status check_heads(const char *name, const tl_model *m, tl_error *error) {
    if (m->heads % m->kv_heads != 0)
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: %lld heads (H) do not divide among %lld key/value heads (G); H must be a multiple of G", name,
            (long long)m->heads, (long long)m->kv_heads);
    if (m->family == TL_FAMILY_GPT2) {
        tl_status status = check_gpt2(name, m, error);
        if (status != TL_OK)
            return status;
    }
    if ((all_bits(m) & TL_LAYER_GLOBAL_HEADS) != 0 &&
        (m->global_head_size < 2 || m->global_head_size > TL_MODEL_MOST_SIZE || m->global_head_size % 2 != 0 ||
         m->global_kv_heads < 1 || m->heads % m->global_kv_heads != 0))
        return tl_fail(
            error, TL_ERR_SHAPE,
            "model %s: global_head_size %lld and global_kv_heads %lld do not suit %lld heads (H); an even size "
            "and a number of heads that divides H would work",
            name, (long long)m->global_head_size, (long long)m->global_kv_heads, (long long)m->heads);
    return check_turned(name, m, error);
}

/* ---- layers, latent attention, experts ---- */

static tl_status check_layers(const char *name, const tl_model *m, tl_error *error) {
    const unsigned known = TL_LAYER_WINDOW | TL_LAYER_CHUNKED | TL_LAYER_NO_ROTARY | TL_LAYER_EXPERTS |
                           TL_LAYER_LOCAL_ROPE | TL_LAYER_GLOBAL_HEADS | TL_LAYER_SHARED_KV | TL_LAYER_WIDE_MLP;
    unsigned bits = all_bits(m);
    if (m->window < 0 || ((bits & (TL_LAYER_WINDOW | TL_LAYER_CHUNKED)) != 0 && m->window < 1))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: window is %lld; layers that see a window need one of at least 1", name,
                       (long long)m->window);
    for (int64_t i = 0; i < m->layers; i++) {
        unsigned layer = m->layer[i];
        if ((layer & ~known) != 0)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: layer %lld has the unknown bits %u", name, (long long)i,
                           layer & ~known);
        if ((layer & TL_LAYER_WINDOW) != 0 && (layer & TL_LAYER_CHUNKED) != 0)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: layer %lld sees both a window and a chunk", name,
                           (long long)i);
        if ((layer & (TL_LAYER_NO_ROTARY | TL_LAYER_LOCAL_ROPE)) != 0 && !turns(m))
            return tl_fail(error, TL_ERR_ARGUMENT,
                           "model %s: layer %lld says how it turns, in a model without rotary positions", name,
                           (long long)i);
    }
    return TL_OK;
}

static tl_status check_latent(const char *name, const tl_model *m, tl_error *error) {
    int64_t size;
    if (m->kv_rank == 0)
        return m->q_rank == 0 && m->qk_nope == 0 && m->qk_rope == 0 && m->value_size == 0
                   ? TL_OK
                   : tl_fail(error, TL_ERR_ARGUMENT,
                             "model %s: q_rank, qk_nope, qk_rope and value_size mean nothing without a kv_rank", name);
    const struct {
        const char *text;
        int64_t value, least;
    } sizes[] = {{"kv_rank", m->kv_rank, 1},
                 {"q_rank", m->q_rank, 0},
                 {"qk_nope", m->qk_nope, 1},
                 {"qk_rope", m->qk_rope, 2},
                 {"value_size", m->value_size, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > TL_MODEL_MOST_SIZE)
            return tl_fail(error, TL_ERR_ARGUMENT, "model %s: %s is %lld; it must be from %lld to %lld", name,
                           sizes[i].text, (long long)sizes[i].value, (long long)sizes[i].least,
                           (long long)TL_MODEL_MOST_SIZE);
    if (m->qk_rope % 2 != 0)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: qk_rope %lld is odd; rotary positions turn pairs, so it must be even", name,
                       (long long)m->qk_rope);
    if (!tl_add_i64(m->qk_nope, m->qk_rope, &size) || size != m->head_size)
        return tl_fail(error, TL_ERR_SHAPE, "model %s: head size (K) is %lld, not qk_nope + qk_rope = %lld + %lld",
                       name, (long long)m->head_size, (long long)m->qk_nope, (long long)m->qk_rope);
    if (m->kv_heads != m->heads)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: latent attention gives each head its own keys and values, so G must be H = %lld",
                       name, (long long)m->heads);
    return TL_OK;
}

static tl_status check_groups(const char *name, const tl_model *m, tl_error *error) {
    int64_t in_reach;
    if (m->router_groups == 0)
        return m->router_top_groups == 0
                   ? TL_OK
                   : tl_fail(error, TL_ERR_ARGUMENT, "model %s: router_top_groups is %lld without router_groups", name,
                             (long long)m->router_top_groups);
    if (m->router_groups < 0 || m->experts % m->router_groups != 0)
        return tl_fail(error, TL_ERR_SHAPE, "model %s: router_groups is %lld; it must divide the %lld experts (E)",
                       name, (long long)m->router_groups, (long long)m->experts);
    if (m->router_top_groups < 1 || m->router_top_groups > m->router_groups)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: router_top_groups is %lld; it must be from 1 to %lld", name,
                       (long long)m->router_top_groups, (long long)m->router_groups);
    in_reach = m->experts / m->router_groups * m->router_top_groups;
    if (m->experts_per_token > in_reach)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: experts_per_token is %lld, but the chosen groups hold %lld experts", name,
                       (long long)m->experts_per_token, (long long)in_reach);
    return TL_OK;
}

static tl_status check_experts(const char *name, const tl_model *m, tl_error *error) {
    bool routed = (all_bits(m) & TL_LAYER_EXPERTS) != 0;
    const char *source = m->source_experts.text;
    if (m->experts == 0 && !routed)
        return m->experts_per_token == 0 && m->expert_ff == 0 && m->shared_ff == 0
                   ? TL_OK
                   : tl_fail(error, TL_ERR_ARGUMENT,
                             "model %s: experts_per_token, expert_ff and shared_ff mean nothing without experts", name);
    if (m->experts < 1 || m->experts > INT64_C(1) << 20)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: experts (E) is %lld%s%s%s; it must be from 1 to %d", name,
                       (long long)m->experts, source[0] != '\0' ? " (" : "", source, source[0] != '\0' ? ")" : "",
                       1 << 20);
    if (!routed)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: no layer holds its %lld experts (E)", name,
                       (long long)m->experts);
    if (m->experts_per_token < 1 || m->experts_per_token > m->experts)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "model %s: experts_per_token (k) is %lld; it must be from 1 to the experts (E), %lld", name,
                       (long long)m->experts_per_token, (long long)m->experts);
    if (m->expert_ff < 1 || m->expert_ff > TL_MODEL_MOST_SIZE)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: expert_ff (Fe) is %lld; it must be from 1 to %lld", name,
                       (long long)m->expert_ff, (long long)TL_MODEL_MOST_SIZE);
    if (m->shared_ff < 0 || m->shared_ff > TL_MODEL_MOST_SIZE)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: shared_ff is %lld; it must be from 0 to %lld", name,
                       (long long)m->shared_ff, (long long)TL_MODEL_MOST_SIZE);
    if (m->router == TL_ROUTER_SIGMOID_INPUT && m->experts_per_token != 1)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "model %s: a router that scales the experts' input sends a token to one expert, not to %lld",
                       name, (long long)m->experts_per_token);
    if (m->shared_gate && m->shared_ff == 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: shared_gate gates nothing where shared_ff is 0", name);
    if (m->correction_bias && m->router != TL_ROUTER_SIGMOID)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: correction_bias is built in with the sigmoid router alone",
                       name);
    return check_groups(name, m, error);
}

/* ---- products ---- */

/* Adds the product of up to four sizes to *total. */
static bool add_product(int64_t *total, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t product;
    return tl_mul_i64(a, b, &product) && tl_mul_i64(product, c, &product) && tl_mul_i64(product, d, &product) &&
           tl_add_i64(*total, product, total);
}

static bool add_experts(int64_t *total, const tl_model *m) {
    int64_t each;
    return tl_mul_i64(m->layers, m->width, &each) && add_product(total, each, m->experts, m->expert_ff, 3) &&
           add_product(total, each, m->shared_ff, 3, 1) && add_product(total, each, m->experts, 2, 1) &&
           add_product(total, m->layers, m->experts, m->expert_ff, 3);
}

static bool add_latent(int64_t *total, const tl_model *m) {
    int64_t wide, both;
    return tl_mul_i64(m->layers, m->heads, &wide) && tl_add_i64(m->head_size, m->value_size, &both) &&
           add_product(total, m->layers, m->width, m->q_rank, 1) &&
           add_product(total, wide, m->q_rank, m->head_size, 1) &&
           add_product(total, m->layers, m->width, m->kv_rank, 2) && add_product(total, wide, m->kv_rank, both, 1) &&
           add_product(total, wide, m->value_size, m->width, 1);
}

/* An upper bound of the parameters in elements, with 64 bytes of room for each: state in any precision stays within 63 bits. */
static tl_status check_products(const char *name, const tl_model *m, tl_error *error) {
    int64_t total = 0, scores, rows;
    bool fits;
    if (m->family == TL_FAMILY_CRUNCHER) {
        fits = add_product(&total, m->layers, m->width, m->width, 1) && add_product(&total, 1, m->width, 1, 1);
    } else {
        fits = tl_add_i64(m->context, m->position_offset, &rows) && add_product(&total, 2, m->vocab, m->width, 1) &&
               add_product(&total, rows, m->width, 1, 1) && add_product(&total, m->layers, m->width, m->ff, 6) &&
               add_product(&total, m->layers, m->width, m->heads, m->head_size) &&
               add_product(&total, m->layers, m->width, m->heads, m->head_size) &&
               add_product(&total, m->layers * 2, m->width, m->kv_heads, m->head_size) &&
               add_product(&total, m->layers * 16, m->width + m->ff, 1, 1) && add_experts(&total, m) &&
               add_latent(&total, m) && add_product(&total, m->layers * 4, m->width, m->heads, m->global_head_size) &&
               add_product(&total, 4, m->width, m->embedding_size, 1) &&
               add_product(&total, 2, m->vocab, m->embedding_size, 1) &&
               add_product(&total, m->layers, m->layer_input_size, m->layer_input_vocab, 1) &&
               add_product(&total, m->layers * 3, m->layer_input_size, m->width, 1);
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

static tl_status check_tables(const char *name, const tl_model *m, tl_error *error) {
    if (m->position_offset < 0 || m->position_offset > INT64_C(1) << 20)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: position_offset is %lld; it must be from 0 to %d", name,
                       (long long)m->position_offset, 1 << 20);
    if (m->embedding_size < 0 || m->embedding_size > TL_MODEL_MOST_SIZE)
        return tl_fail(error, TL_ERR_ARGUMENT, "model %s: embedding_size is %lld; it must be from 0 to %lld", name,
                       (long long)m->embedding_size, (long long)TL_MODEL_MOST_SIZE);
    return TL_OK;
}

typedef tl_status check(const char *name, const tl_model *model, tl_error *error);
static check *const checks[] = {check_kinds,  check_heads,   check_tables,    tl_names_check,       check_layers,
                                check_latent, check_experts, tl_shared_check, tl_layer_inputs_check};

tl_status tl_model_check(const tl_model *model, tl_error *error) {
    const sized_field fields[] = {
        {"layers (N)", model->layers, MOST_LAYERS, &model->source_layers},
        {"width (D)", model->width, TL_MODEL_MOST_SIZE, &model->source_width},
        {"heads (H)", model->heads, TL_MODEL_MOST_SIZE, &model->source_heads},
        {"key/value heads (G)", model->kv_heads, TL_MODEL_MOST_SIZE, &model->source_kv_heads},
        {"head size (K)", model->head_size, TL_MODEL_MOST_SIZE, &model->source_head_size},
        {"vocabulary (V)", model->vocab, TL_MODEL_MOST_SIZE, &model->source_vocab},
        {"context (C)", model->context, TL_MODEL_MOST_SIZE, &model->source_context},
        {"feed-forward size (F)", model->ff, TL_MODEL_MOST_SIZE,
         &model->source_ff}, /* last: only dense layers have one */
    };
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
    if (status == TL_OK && !cruncher && model->ff == 0 && every_layer_has_experts(model))
        count--;
    if (status == TL_OK)
        status = check_sizes(name, fields, cruncher ? 2 : count, error);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == TL_OK && !cruncher; i++)
        status = checks[i](name, model, error);
    if (status == TL_OK)
        status = check_numbers(name, model, error);
    return status == TL_OK ? check_products(name, model, error) : status;
}
