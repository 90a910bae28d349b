/* Is a description one that a model can be built from? Sizes, divisibility, and products within 63 bits. */
#include "tally/model.h"

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
        {"rope_theta", model->family == TL_FAMILY_LLAMA ? model->rope_theta : 1, false, 1e18},
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
    if (m->family == TL_FAMILY_LLAMA && m->head_size % 2 != 0)
        return tl_fail(error, TL_ERR_SHAPE,
                       "model %s: head size (K) %lld is odd; rotary positions turn pairs, so K must be even", name,
                       (long long)m->head_size);
    return TL_OK;
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
               add_product(&total, m->layers * 16, m->width + m->ff, 1, 1);
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
        {"feed-forward size (F)", model->ff, MOST_SIZE, &model->source_ff},
        {"vocabulary (V)", model->vocab, MOST_SIZE, &model->source_vocab},
        {"context (C)", model->context, MOST_SIZE, &model->source_context},
    };
    char name[96];
    tl_status status;
    bool known =
        model->family == TL_FAMILY_GPT2 || model->family == TL_FAMILY_LLAMA || model->family == TL_FAMILY_CRUNCHER;
    tl_quotable(model->name, strnlen(model->name, sizeof model->name), name, sizeof name);
    if (name[0] == '\0')
        memcpy(name, "(unnamed)", sizeof "(unnamed)");
    if (!known)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "model %s: family %d is not built in", name, (int)model->family);
    status = check_sizes(name, fields,
                         model->family == TL_FAMILY_CRUNCHER ? 2 : (int)(sizeof fields / sizeof fields[0]), error);
    if (status == TL_OK)
        status = check_numbers(name, model, error);
    if (status == TL_OK && model->family != TL_FAMILY_CRUNCHER)
        status = check_heads(name, model, error);
    return status == TL_OK ? check_products(name, model, error) : status;
}
