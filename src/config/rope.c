/* Rotary positions as files say them: rope_parameters (transformers 5) or rope_scaling (4), for all layers or for each kind of
 * attention. Kinds and their keys: transformers' modeling_rope_utils.py; ntk, which it has not, is Peng et al. 2023, eq. 16. */
#include "config/fields.h"

#include <string.h>

#define KINDS "llama3, linear, dynamic, ntk, yarn, longrope, proportional and default are known"

static double real_in(tl_config_reader *r, const char *key, double low, double high, double standard) {
    return tl_config_has(r, key) ? tl_config_real(r, key, low, high) : standard;
}

static void read_llama3(tl_config_reader *r) {
    tl_model *m = r->model;
    m->rope_factor = tl_config_real(r, "factor", 1, 1e9);
    m->rope_low_freq = tl_config_real(r, "low_freq_factor", 1e-9, 1e9);
    m->rope_high_freq = tl_config_real(r, "high_freq_factor", 1e-9, 1e9);
    m->rope_original_context = tl_config_size(r, "original_max_position_embeddings");
    /* Equal (Llama 4) leaves no band between them. */
    if (r->status == TL_OK && m->rope_high_freq < m->rope_low_freq)
        tl_config_fail(r, TL_ERR_ARGUMENT, "high_freq_factor", "is %g; it must not be below low_freq_factor %g",
                       m->rope_high_freq, m->rope_low_freq);
}

static void read_yarn(tl_config_reader *r, const char *outer) {
    tl_model *m = r->model;
    m->rope_scaling = TL_ROPE_YARN;
    m->rope_beta_fast = real_in(r, "beta_fast", 1e-9, 1e9, 32);
    m->rope_beta_slow = real_in(r, "beta_slow", 1e-9, 1e9, 1);
    m->rope_attention_factor = real_in(r, "attention_factor", 1e-9, 1e9, 0);
    m->rope_mscale = real_in(r, "mscale", 0, 1e9, 0);
    m->rope_mscale_all = real_in(r, "mscale_all_dim", 0, 1e9, 0);
    m->rope_no_truncate = tl_config_has(r, "truncate") && !tl_config_flag(r, "truncate");
    if (tl_config_has(r, "original_max_position_embeddings"))
        m->rope_original_context = tl_config_size(r, "original_max_position_embeddings");
    else {
        m->rope_original_context = m->context;
        tl_config_assume(r, "%s.original_max_position_embeddings absent: the context, %lld", outer,
                         (long long)m->context);
    }
    if (tl_config_is_null(r, "factor") && r->status == TL_OK) {
        m->rope_factor = (double)m->context / (double)m->rope_original_context;
        tl_config_assume(r, "%s.factor null: the context over the original, %g", outer, m->rope_factor);
    } else
        m->rope_factor = tl_config_real(r, "factor", 1, 1e9);
    if (r->status == TL_OK && m->rope_beta_fast < m->rope_beta_slow)
        tl_config_fail(r, TL_ERR_ARGUMENT, tl_config_has(r, "beta_fast") ? "beta_fast" : "beta_slow",
                       "leaves no ramp: beta_fast %g must not be below beta_slow %g", m->rope_beta_fast,
                       m->rope_beta_slow);
}

static void read_stretched(tl_config_reader *r, tl_rope_scaling kind) {
    tl_model *m = r->model;
    m->rope_scaling = kind;
    m->rope_factor = tl_config_real(r, "factor", 1, 1e9);
    if (kind == TL_ROPE_DYNAMIC) /* max_position_embeddings, whatever else the object says */
        m->rope_original_context = m->context;
}

/* ---- longrope ---- */

static int64_t read_factors(tl_config_reader *r, const char *key, double into[TL_MODEL_PAIRS]) {
    const json_t *list = json_object_get(r->object, key);
    char raw[64];
    if (!tl_config_has(r, key))
        tl_config_fail(r, TL_ERR_FORMAT, key, "is missing; longrope has a factor for each pair that turns");
    else if (!json_is_array(list) || json_array_size(list) > TL_MODEL_PAIRS)
        tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be a list of at most %d numbers",
                       tl_config_raw(r, key, raw, sizeof raw), TL_MODEL_PAIRS);
    for (size_t i = 0; r->status == TL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        double value = json_is_number(item) ? json_number_value(item) : 0;
        if (!(value > 0 && value <= 1e9))
            tl_config_fail(r, TL_ERR_ARGUMENT, key, "holds at %zu what is no number above 0 and up to 1e9", i);
        into[i] = value;
    }
    return r->status == TL_OK ? (int64_t)json_array_size(list) : 0;
}

/* What lies in the object of the kind; the rest is read once it is left. */
static void read_longrope(tl_config_reader *r) {
    tl_model *m = r->model;
    m->rope_scaling = TL_ROPE_LONGROPE;
    m->rope_factors = read_factors(r, "short_factor", m->rope_short);
    if (read_factors(r, "long_factor", m->rope_long) != m->rope_factors && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_SHAPE, "long_factor", "is not as long as short_factor, which has %lld",
                       (long long)m->rope_factors);
    m->rope_factor = real_in(r, "factor", 1e-9, 1e9, 0);
    m->rope_attention_factor = real_in(r, "attention_factor", 1e-9, 1e9, 0);
    m->rope_original_context = tl_config_has(r, "original_max_position_embeddings")
                                   ? tl_config_size(r, "original_max_position_embeddings")
                                   : 0;
}

/* The original context stands beside the object in transformers 4, in it in 5, and is 4096 where Phi-3's files have none. */
static void finish_longrope(tl_config_reader *r, const tl_config_rope *how, const char *place) {
    static const char key[] = "original_max_position_embeddings";
    tl_model *m = r->model;
    int64_t turned = m->rotary_size > 0 ? m->rotary_size : m->kv_rank > 0 ? m->qk_rope : m->head_size;
    if (r->status != TL_OK)
        return;
    if (m->rope_factors != turned / 2) {
        tl_config_fail(r, TL_ERR_SHAPE, place, "has %lld factors in short_factor; %lld pairs of a head turn",
                       (long long)m->rope_factors, (long long)(turned / 2));
        return;
    }
    if (tl_config_has(r, key))
        m->rope_original_context = tl_config_size(r, key);
    else if (m->rope_original_context == 0) {
        m->rope_original_context = how->original > 0 ? how->original : m->context;
        tl_config_assume(r, "%s absent: %lld, %s", key, (long long)m->rope_original_context,
                         how->original > 0 ? "assumed from the family" : "the context");
    }
    if (m->rope_factor == 0 && m->rope_original_context > 0)
        m->rope_factor = (double)m->context / (double)m->rope_original_context;
    if (r->status == TL_OK && m->rope_original_context < 2)
        tl_config_fail(r, TL_ERR_ARGUMENT, place, "is longrope from an original context of %lld; it must be above 1",
                       (long long)m->rope_original_context);
}

/* ---- kinds ---- */

/* Gemma 4's: of a global head some pairs turn, read as a share; `factor` divides the angles (absent: 1). Of whole heads it is
 * the plain kind. */
static void read_proportional(tl_config_reader *r, const tl_config_rope *how) {
    tl_model *m = r->model;
    double factor = real_in(r, "factor", 1e-9, 1e9, 1);
    bool part = tl_config_has(r, "partial_rotary_factor") && tl_config_real(r, "partial_rotary_factor", 0, 1) < 1;
    if (r->status == TL_OK && part && !how->spread)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "partial_rotary_factor",
                       "is below 1: pairs of a head that stand still by rope_type proportional are built in for "
                       "gemma4 alone");
    if (r->status == TL_OK && factor != 1) {
        m->rope_scaling = TL_ROPE_LINEAR;
        m->rope_factor = factor;
    }
}

/* The kind of the current object. Phi-3's first files say su, or yarn with longrope's lists, for longrope (transformers'
 * configuration_phi3.py). */
static void read_kind(tl_config_reader *r, const tl_config_rope *how, const char *outer) {
    tl_model *m = r->model;
    const char *key = tl_config_has(r, "rope_type") ? "rope_type" : "type";
    const char *kind;
    char raw[64];
    if (!tl_config_has(r, key)) {
        if (tl_config_has(r, "factor"))
            tl_config_fail(r, TL_ERR_FORMAT, key, "is missing from %s; " KINDS, outer);
        return;
    }
    kind = tl_config_string(r, key);
    if (kind == NULL || strcmp(kind, "default") == 0)
        return;
    bool lists = strcmp(kind, "yarn") == 0 && (tl_config_has(r, "short_factor") || how->original > 0);
    if (strcmp(kind, "llama3") == 0)
        read_llama3(r);
    else if (strcmp(kind, "longrope") == 0 || strcmp(kind, "su") == 0 || lists)
        read_longrope(r);
    else if (strcmp(kind, "yarn") == 0)
        read_yarn(r, outer);
    else if (strcmp(kind, "linear") == 0) {
        m->rope_scaling = TL_ROPE_LINEAR;
        m->rope_factor = tl_config_real(r, "factor", 1, 1e9);
    } else if (strcmp(kind, "dynamic") == 0)
        read_stretched(r, TL_ROPE_DYNAMIC);
    else if (strcmp(kind, "ntk") == 0) {
        read_stretched(r, TL_ROPE_NTK);
        tl_config_assume(r, "%s ntk: the base times factor^(R/(R-2)), as Peng et al. 2023 have it", outer);
    } else if (strcmp(kind, "proportional") == 0)
        read_proportional(r, how);
    else
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s; " KINDS, tl_config_raw(r, key, raw, sizeof raw));
}

/* Window layers turn plainly, by an angle of their own. */
static void read_local(tl_config_reader *r, const char *outer) {
    tl_model *m = r->model;
    const json_t *saved;
    const char *kind;
    if (!tl_config_has(r, "sliding_attention") || !tl_config_enter(r, "sliding_attention", &saved))
        return;
    if (tl_config_has(r, "rope_theta"))
        m->rope_local_theta = tl_config_real(r, "rope_theta", 1e-9, 1e18);
    kind = tl_config_has(r, "rope_type") ? tl_config_string(r, "rope_type") : NULL;
    if (kind != NULL && strcmp(kind, "default") != 0)
        tl_config_not_computed(r, "%s.sliding_attention that is not of type default", outer);
    tl_config_leave(r, saved);
}

/* What is said of the share of a head that turns. */
static void take_share(tl_config_reader *r, const tl_config_rope *how, const char *key, double share) {
    tl_model *m = r->model;
    int64_t size = (int64_t)(share * (double)m->head_size); /* cut, as transformers does */
    if (r->status != TL_OK || share == 1)
        return;
    if (how->spread) {
        m->global_rotary_size = 2 * (int64_t)(share * (double)m->global_head_size / 2);
        return;
    }
    if (how->partial_key == NULL)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %g: %s turns whole heads", share, r->family);
    else if (size < 2 || size % 2 != 0)
        tl_config_fail(r, TL_ERR_SHAPE, key,
                       "turns %lld of a head's %lld; rotary positions turn pairs, so it must be even and above 0",
                       (long long)size, (long long)m->head_size);
    m->rotary_size = size;
}

static void read_place(tl_config_reader *r, const tl_config_rope *how, const char *place, bool *theta, bool *share) {
    const json_t *saved, *inner = NULL;
    if (!tl_config_enter(r, place, &saved))
        return;
    /* {"full_attention": {…}, "sliding_attention": {…}} */
    bool kinds = json_is_object(json_object_get(r->object, "full_attention"));
    if (kinds)
        read_local(r, place);
    if (!kinds || tl_config_enter(r, "full_attention", &inner)) {
        read_kind(r, how, place);
        if (tl_config_has(r, "rope_theta")) {
            r->model->rope_theta = tl_config_real(r, "rope_theta", 1e-9, 1e18);
            *theta = true;
        }
        if (tl_config_has(r, "partial_rotary_factor")) {
            take_share(r, how, "partial_rotary_factor", tl_config_real(r, "partial_rotary_factor", 0, 1));
            *share = true;
        }
        if (inner != NULL)
            tl_config_leave(r, inner);
    }
    tl_config_leave(r, saved);
}

/* θ·s^(R/(R − 2)) is nothing for one pair. */
static void check_stretch(tl_config_reader *r) {
    const tl_model *m = r->model;
    int64_t turned = m->rotary_size > 0 ? m->rotary_size : m->kv_rank > 0 ? m->qk_rope : m->head_size;
    if (r->status == TL_OK && turned == 2 && (m->rope_scaling == TL_ROPE_DYNAMIC || m->rope_scaling == TL_ROPE_NTK))
        tl_config_fail(r, TL_ERR_UNSUPPORTED, NULL,
                       "one pair of a head turns; the dynamic and ntk scalings of rotary positions need two or more");
}

void tl_config_read_rope(tl_config_reader *r, const tl_config_rope *how) {
    static const char *const places[] = {"rope_parameters", "rope_scaling"}; /* transformers 5 and 4 */
    const char *theta_key = how->theta_key != NULL ? how->theta_key : "rope_theta";
    tl_model *m = r->model;
    const char *longrope = NULL;
    bool theta = false, share = false;
    for (int i = 0; i < 2 && r->status == TL_OK; i++)
        if (tl_config_has(r, places[i])) {
            read_place(r, how, places[i], &theta, &share);
            longrope = m->rope_scaling == TL_ROPE_LONGROPE ? places[i] : NULL;
            break;
        }
    if (!theta)
        m->rope_theta = tl_config_real_or(r, theta_key, 1e-9, 1e18, how->theta);
    /* A share of 1 is no news. */
    if (how->partial_key != NULL && !share && (tl_config_has(r, how->partial_key) || how->partial != 1))
        take_share(r, how, how->partial_key, tl_config_real_or(r, how->partial_key, 0, 1, how->partial));
    if (longrope != NULL)
        finish_longrope(r, how, longrope);
    check_stretch(r);
    if (how->local_theta > 0 && m->rope_local_theta == 0)
        m->rope_local_theta = tl_config_real_or(r, how->local_key, 1e-9, 1e18, how->local_theta);
}
