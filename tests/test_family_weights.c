/* Published weights of every family: a folder as the Hugging Face hub has it, of the small models in fixtures/family_fixtures.h,
 * gives the logits that PyTorch computed from the same weights; written back, it is the same tensors, byte for byte. Then what
 * such files hold besides, under which prefixes, and what is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/weights.h"
#include "family_weights.h"
#include "fixtures/family_fixtures.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/nn.h"
#include "tally/ops.h"
#include "tally/weights.h"

enum { FAMILIES = sizeof family_fixtures / sizeof *family_fixtures, MOST = 512 };

static char base[64], in[96], out[96];

/* ---- files ---- */

typedef struct entry {
    char name[192];
    tl_dtype dtype;
    int ndim;
    int64_t dim[4], bytes;
    void *data;
} entry;

/* What a file is to hold. */
typedef struct content {
    entry entries[MOST];
    int count;
} content;

static content it;

static void drop(content *c) {
    for (int i = 0; i < c->count; i++)
        free(c->entries[i].data);
    c->count = 0;
}

/* Zeros of that shape. */
static entry *add(content *c, const char *name, tl_dtype dtype, int ndim, int64_t rows, int64_t columns) {
    entry *e = &c->entries[c->count++];
    assert_true(c->count <= MOST);
    snprintf(e->name, sizeof e->name, "%s", name);
    e->dtype = dtype;
    e->ndim = ndim;
    e->dim[0] = rows;
    e->dim[1] = columns;
    e->dim[2] = e->dim[3] = 0;
    e->bytes = (ndim > 0 ? rows : 1) * (ndim > 1 ? columns : 1) * tl_dtype_bytes(dtype);
    e->data = calloc(1, (size_t)e->bytes + 8);
    assert_non_null(e->data);
    return e;
}

static const family_fixture *fixture_of(const char *name) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(family_fixtures[i].name, name) == 0)
            return &family_fixtures[i];
    fail_msg("no fixture %s", name);
    return NULL;
}

/* The fixture's file; names that start with `from` start with `to`. */
static void fill(content *c, const family_fixture *x, const char *from, const char *to) {
    drop(c);
    for (int i = 0; i < x->count; i++) {
        const family_row *r = &x->rows[i];
        char name[192];
        bool renamed = strncmp(r->name, from, strlen(from)) == 0;
        snprintf(name, sizeof name, "%s%s", renamed ? to : "", r->name + (renamed ? strlen(from) : 0));
        int64_t columns = (r->ndim > 1 ? r->dim[1] : 1) * (int64_t)(r->ndim > 2 ? r->dim[2] : 1);
        entry *e = add(c, name, TL_F32, r->ndim > 1 ? 2 : r->ndim, r->dim[0], columns);
        e->ndim = r->ndim;
        for (int d = 0; d < r->ndim; d++)
            e->dim[d] = r->dim[d];
        family_weights_fill(e->data, e->bytes / 4, r->name, r->base, r->scale);
    }
}

static entry *entry_of(content *c, const char *name) {
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            return &c->entries[i];
    fail_msg("nothing of name %s", name);
    return NULL;
}

static char *path_in(const char *folder, const char *name, char path[256]) {
    snprintf(path, 256, "%.90s/%.160s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text) {
    char path[256];
    FILE *f = fopen(path_in(in, name, path), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void write_file(const char *name, const content *c, int first, int last) {
    static tl_safetensors_item items[MOST];
    tl_error error = {0};
    char path[256];
    for (int i = first; i < last; i++) {
        const entry *e = &c->entries[i];
        items[i - first] = (tl_safetensors_item){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(items[i - first].dim, e->dim, sizeof e->dim);
    }
    tl_safetensors_writer *w = tl_safetensors_begin(path_in(in, name, path), items, last - first, NULL, 0, &error);
    if (!w)
        fail_msg("%s", error.message);
    for (int i = first; i < last; i++)
        assert_int_equal(tl_safetensors_write(w, c->entries[i].data, c->entries[i].bytes, &error), TL_OK);
    assert_int_equal(tl_safetensors_end(w, TL_OK, &error), TL_OK);
}

static void write_whole(const family_fixture *x, const content *c) {
    write_file("model.safetensors", c, 0, c->count);
    write_text("config.json", x->config);
}

static void write_shards(const family_fixture *x, const content *c) {
    static char text[MOST * 256];
    int half = c->count / 2;
    write_file("model-00001-of-00002.safetensors", c, 0, half);
    write_file("model-00002-of-00002.safetensors", c, half, c->count);
    size_t used = (size_t)snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int i = 0; i < c->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": \"model-0000%d-of-00002.safetensors\"",
                                 i ? ", " : "", c->entries[i].name, 1 + (i >= half));
    snprintf(text + used, sizeof text - used, "}}");
    write_text("model.safetensors.index.json", text);
    write_text("config.json", x->config);
}

static void empty(const char *folder) {
    char path[256];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlink(path_in(folder, e->d_name, path));
    if (d)
        closedir(d);
}

/* ---- nets ---- */

typedef struct world {
    tl_ctx *ctx;
    tl_net *net;
} world;

static world begin(const tl_model *m, tl_dtype dtype) {
    tl_error error = {0};
    world w = {.ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .seed_init = 5}, &error)};
    assert_non_null(w.ctx);
    w.net = tl_net_new(w.ctx, m, dtype);
    if (!w.net)
        fail_msg("%s: %s", m->name, tl_ctx_error(w.ctx)->message);
    return w;
}

static void end(world *w) {
    tl_net_free(w->net);
    tl_ctx_free(w->ctx);
}

static tl_model model_in(const char *folder) {
    tl_model m;
    tl_error error = {0};
    char path[256];
    if (tl_config_read(path_in(folder, "config.json", path), &m, &error) != TL_OK)
        fail_msg("%s", error.message);
    return m;
}

static void assert_logits(const char *what, world *w, const float *expected) {
    enum { VALUES = FAMILY_BATCH * FAMILY_TOKENS * FAMILY_VOCAB };
    static double values[VALUES];
    int32_t ids[FAMILY_BATCH * FAMILY_TOKENS];
    for (int i = 0; i < FAMILY_BATCH * FAMILY_TOKENS; i++)
        ids[i] = family_tokens[i];
    tl_scope_begin(w->ctx);
    tl_tensor *tokens =
        tl_from_data(w->ctx, TL_I32, TL_SHAPE(w->ctx, tl_dim_of(FAMILY_BATCH), tl_dim_of(FAMILY_TOKENS)), TL_DATA, ids,
                     FAMILY_BATCH * FAMILY_TOKENS);
    tl_tensor *logits = tl_net_forward(w->net, tokens);
    if (!logits)
        fail_msg("%s: %s", what, tl_ctx_error(w->ctx)->message);
    assert_int_equal(tl_tensor_read(tl_cast(logits, TL_F64), values, sizeof values), TL_OK);
    tl_scope_end(w->ctx);
    for (int i = 0; i < VALUES; i++)
        if (!(fabs(values[i] - (double)expected[i]) < 1e-4))
            fail_msg("%s: logit %d is %.9g, PyTorch has %.9g", what, i, values[i], (double)expected[i]);
}

static tl_weights_report loads(const char *what, const char *folder, world *w) {
    tl_weights_report report;
    tl_error error = {0};
    if (tl_weights_load(folder, w->net, &report, &error) != TL_OK)
        fail_msg("%s: %s", what, error.message);
    return report;
}

/* The folder's model refuses the folder's files. */
static void refused(tl_status status, const char *words) {
    tl_error error = {0};
    tl_model m = model_in(in);
    world w = begin(&m, TL_F32);
    tl_status found = tl_weights_load(in, w.net, NULL, &error);
    if (found != status || !strstr(error.message, words))
        fail_msg("status %d, \"%s\"; %d and \"%s\" are expected", (int)found, error.message, (int)status, words);
    end(&w);
}

/* The folder's model takes them, and computes what PyTorch does. What was noted. */
static tl_weights_report taken(const family_fixture *x) {
    tl_model m = model_in(in);
    world w = begin(&m, TL_F32);
    tl_weights_report report = loads(x->name, in, &w);
    assert_logits(x->name, &w, x->logits);
    end(&w);
    return report;
}

static void assert_computed(const family_fixture *x) {
    tl_model m;
    tl_error error = {0};
    if (tl_config_parse(x->config, strlen(x->config), x->name, &m, &error) != TL_OK || m.not_computed[0])
        fail_msg("%s is not computed: %s%s", x->name, error.message, m.not_computed);
}

/* ---- all families ---- */

/* The folder's tensors are the content's: names, shapes, bytes, and no more. */
static void assert_same_files(const char *what, const char *folder, content *c) {
    tl_error error = {0};
    tl_weights_files *files = tl_weights_open(folder, &error);
    int found = 0;
    if (!files)
        fail_msg("%s: %s", what, error.message);
    for (int64_t f = 0; f < tl_weights_file_count(files); f++) {
        const tl_safetensors *file = tl_weights_file(files, f);
        for (int64_t i = 0; i < tl_safetensors_count(file); i++, found++) {
            const tl_safetensors_tensor *t = tl_safetensors_at(file, i);
            const entry *e = entry_of(c, t->name);
            assert_int_equal(t->dtype, e->dtype);
            assert_int_equal(t->ndim, e->ndim);
            for (int d = 0; d < e->ndim; d++)
                assert_int_equal(t->dim[d], e->dim[d]);
            assert_int_equal(t->bytes, e->bytes);
            void *bytes = malloc((size_t)t->bytes + 1);
            assert_non_null(bytes);
            assert_int_equal(tl_safetensors_read(file, t, 0, bytes, t->bytes, &error), TL_OK);
            if (memcmp(bytes, e->data, (size_t)t->bytes) != 0)
                fail_msg("%s: %s is written with other values", what, t->name);
            free(bytes);
        }
    }
    assert_int_equal(found, c->count);
    tl_weights_close(files);
}

static void read_and_written_back(void **state) {
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const family_fixture *x = &family_fixtures[i];
        assert_computed(x);
        tl_error error = {0};
        fill(&it, x, "", "");
        write_whole(x, &it);
        tl_model m = model_in(in);
        world w = begin(&m, TL_F32);
        tl_weights_report report = loads(x->name, in, &w);
        assert_int_equal(report.tensors, x->count);
        assert_int_equal(report.bytes, 4 * x->parameters);
        assert_int_equal(report.ignored, 0);
        /* A part of a model of text and pictures is written as the text model that it is. */
        bool inner = strncmp(x->rows[0].name, "model.language_model.", 21) == 0;
        assert_int_equal(strstr(report.note, "names start with") != NULL, inner);
        assert_int_equal(report.note[0] != 0, inner);
        fill(&it, x, inner ? "model.language_model." : "", inner ? "model." : "");
        assert_logits(x->name, &w, x->logits);
        for (int sharded = 0; sharded < 2; sharded++) {
            tl_weights_options options = {.shard_bytes = sharded ? 40000 : 0};
            if (tl_weights_save(out, w.net, &options, &error) != TL_OK)
                fail_msg("%s: %s", x->name, error.message);
            assert_same_files(x->name, out, &it);
            tl_model again = model_in(out);
            world v = begin(&again, TL_F32);
            report = loads(x->name, out, &v);
            assert_true(sharded ? report.files > 1 : report.files == 1);
            assert_int_equal(report.strays, 0);
            assert_logits(x->name, &v, x->logits);
            end(&v);
        }
        end(&w);
        empty(in);
        empty(out);
    }
}

/* Two shards and their index; a third file beside them is none of the model's. */
static void from_shards(void **state) {
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const family_fixture *x = &family_fixtures[i];
        fill(&it, x, "", "");
        write_shards(x, &it);
        write_file("adapter.safetensors", &it, 0, 1);
        tl_weights_report report = taken(x);
        assert_int_equal(report.files, 2);
        assert_int_equal(report.strays, 1);
        assert_non_null(strstr(report.note, "adapter.safetensors"));
        empty(in);
    }
}

/* One tensor is left out, added, turned into another shape: each is named, with both shapes. */
static void files_that_do_not_fit(void **state) {
    char words[640], name[160];
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const family_fixture *x = &family_fixtures[i];
        int at = x->count / 2;
        fill(&it, x, "", "");
        entry *e = &it.entries[at];
        snprintf(name, sizeof name, "%.150s", e->name);
        snprintf(e->name, sizeof e->name, "%.150s.other", name);
        write_whole(x, &it);
        snprintf(words, sizeof words, "lacks 1 of this model's %d tensors: %s", x->count, name);
        refused(TL_ERR_SHAPE, words);
        fill(&it, x, "", "");
        add(&it, "score.weight", TL_F32, 2, 2, 32);
        write_whole(x, &it);
        refused(TL_ERR_SHAPE, "no place for: score.weight");
        fill(&it, x, "", "");
        e = entry_of(&it, name);
        e->dim[0]++;
        e->bytes = e->bytes / (e->dim[0] - 1) * e->dim[0];
        e->data = realloc(e->data, (size_t)e->bytes + 8);
        assert_non_null(e->data);
        memset(e->data, 0, (size_t)e->bytes);
        write_whole(x, &it);
        char have[64], want[64], tail[40];
        snprintf(tail, sizeof tail, "%s", "]");
        if (e->ndim == 2)
            snprintf(tail, sizeof tail, ", %lld]", (long long)e->dim[1]);
        else if (e->ndim == 3)
            snprintf(tail, sizeof tail, ", %lld, %lld]", (long long)e->dim[1], (long long)e->dim[2]);
        snprintf(have, sizeof have, "[%lld%s", (long long)e->dim[0], tail);
        snprintf(want, sizeof want, "[%lld%s", (long long)e->dim[0] - 1, tail);
        snprintf(words, sizeof words, "holds %s as %s; this model has it as %s", name, have, want);
        refused(TL_ERR_SHAPE, words);
        empty(in);
    }
}

/* ---- what files are like ---- */

static void other_prefixes(void **state) {
    static const struct {
        const char *fixture, *from, *to;
    } cases[] = {
        {"bloom", "transformer.", ""},
        {"falcon_7b", "transformer.", ""},
        {"gptj", "transformer.", ""},
        {"opt", "model.decoder.", "decoder."},
        {"opt_350m", "model.decoder.", "decoder."},
        {"gemma3", "model.", "model.language_model."},
        {"gemma3", "model.", "language_model.model."},
        {"qwen2", "model.", ""},
        {"llama4", "", "language_model."},
        {"mistral", "", "language_model."},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const family_fixture *x = fixture_of(cases[i].fixture);
        fill(&it, x, cases[i].from, cases[i].to);
        write_whole(x, &it);
        tl_weights_report report = taken(x);
        assert_int_equal(report.tensors, x->count);
        assert_non_null(strstr(report.note, "names start with"));
        empty(in);
    }
}

/* Masks, tables of angles, a head that repeats the tied embedding: left out by name and counted. */
static void what_is_no_parameter(void **state) {
    static const struct {
        const char *fixture, *name;
    } cases[] = {
        {"mistral", "model.layers.0.self_attn.rotary_emb.inv_freq"},
        {"mistral", "model.rotary_emb.inv_freq"},
        {"gptj", "transformer.h.1.attn.bias"},
        {"gptj", "transformer.h.0.attn.masked_bias"},
        {"gpt_neox", "gpt_neox.layers.0.attention.bias"},
        {"gpt_neox", "gpt_neox.layers.1.attention.masked_bias"},
        {"gpt_neox", "gpt_neox.layers.0.attention.rotary_emb.inv_freq"},
        {"falcon_7b", "transformer.h.0.self_attention.maybe_rotary.inv_freq"},
        {"opt", "model.decoder.version"},
    };
    static const struct {
        const char *fixture, *head, *table;
    } tied[] = {{"bloom", "lm_head.weight", "transformer.word_embeddings.weight"},
                {"opt", "lm_head.weight", "model.decoder.embed_tokens.weight"},
                {"gemma2", "lm_head.weight", "model.embed_tokens.weight"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const family_fixture *x = fixture_of(cases[i].fixture);
        fill(&it, x, "", "");
        add(&it, cases[i].name, TL_F32, 1, 4, 1);
        write_whole(x, &it);
        tl_weights_report report = taken(x);
        assert_int_equal(report.ignored, 1);
        assert_non_null(strstr(report.note, cases[i].name));
        empty(in);
    }
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
        const family_fixture *x = fixture_of(tied[i].fixture);
        fill(&it, x, "", "");
        const entry *table = entry_of(&it, tied[i].table);
        entry *head = add(&it, tied[i].head, TL_F32, 2, table->dim[0], table->dim[1]);
        memcpy(head->data, table->data, (size_t)table->bytes);
        write_whole(x, &it);
        assert_int_equal(taken(x).ignored, 1);
        ((float *)head->data)[5] += 1;
        write_whole(x, &it);
        refused(TL_ERR_FORMAT, "of its own, while the model ties its head");
        empty(in);
    }
}

/* Gemma 4's files have keys and values of every layer (google/gemma-4-E2B-it's index), the model only of those that use them. */
static void keys_of_layers_that_share(void **state) {
    static const struct {
        const char *name;
        int64_t rows, columns;
    } unused[] = {
        {"model.layers.3.self_attn.k_proj.weight", 8, 32},  {"model.layers.3.self_attn.v_proj.weight", 8, 32},
        {"model.layers.3.self_attn.k_norm.weight", 8, 0},   {"model.layers.4.self_attn.k_proj.weight", 16, 32},
        {"model.layers.4.self_attn.v_proj.weight", 16, 32}, {"model.layers.4.self_attn.k_norm.weight", 16, 0}};
    const family_fixture *x = fixture_of("gemma4");
    (void)state;
    fill(&it, x, "", "");
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        add(&it, unused[i].name, TL_F32, unused[i].columns ? 2 : 1, unused[i].rows, unused[i].columns);
    write_whole(x, &it);
    tl_weights_report report = taken(x);
    assert_int_equal(report.ignored, 6);
    assert_non_null(strstr(report.note, "ignored 6 tensors of layers that read the keys and values of earlier ones"));
    empty(in);
    fill(&it, x, "", ""); /* what no layer has is not passed over */
    add(&it, "model.layers.3.self_attn.z_proj.weight", TL_F32, 1, 4, 1);
    write_whole(x, &it);
    refused(TL_ERR_SHAPE, "no place for: model.layers.3.self_attn.z_proj.weight");
    empty(in);
    fill(&it, x, "", "");
    add(&it, "model.layers.5.self_attn.k_proj.weight", TL_F32, 1, 4, 1);
    write_whole(x, &it);
    refused(TL_ERR_SHAPE, "no place for: model.layers.5.self_attn.k_proj.weight");
    empty(in);
}

/* What the hub's folders of models of text and pictures hold beside the text model. */
static void other_parts_are_skipped(void **state) {
    static const char *const parts[][3] = {
        {"vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
         "multi_modal_projector.mm_input_projection_weight", "vision_model.class_embedding"},
        {"model.vision_tower.patch_embedder.input_proj.weight", "model.multi_modal_projector.linear_1.weight",
         "model.embed_vision.embedding_projection.weight"},
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        const family_fixture *x = fixture_of(i ? "gemma3" : "llama4");
        fill(&it, x, i ? "model." : "", i ? "model.language_model." : "language_model.");
        for (int k = 0; k < 3; k++)
            add(&it, parts[i][k], TL_BF16, 2, 3, 5);
        write_shards(x, &it);
        tl_weights_report report = taken(x);
        assert_int_equal(report.ignored, 3);
        assert_int_equal(report.tensors, x->count);
        assert_non_null(strstr(report.note, "ignored 3 tensors of other parts of the model: "));
        assert_non_null(strstr(report.note, parts[i][0]));
        empty(in);
    }
}

/* DeepSeek-V3's 62nd of 61 layers: known by its eh_proj. A layer more without one is a config.json that does not fit. */
static void multi_token_prediction(void **state) {
    const family_fixture *x = fixture_of("deepseek_v3");
    (void)state;
    fill(&it, x, "", "");
    add(&it, "model.layers.3.eh_proj.weight", TL_F32, 2, 32, 64);
    add(&it, "model.layers.3.mlp.experts.7.down_proj.weight", TL_F32, 2, 32, 16);
    add(&it, "model.layers.3.shared_head.norm.weight", TL_F32, 1, 32, 1);
    write_whole(x, &it);
    tl_weights_report report = taken(x);
    assert_int_equal(report.ignored, 3);
    assert_non_null(strstr(report.note, "ignored 3 tensors of multi-token prediction: model.layers.3."));
    fill(&it, x, "", "");
    add(&it, "model.layers.3.input_layernorm.weight", TL_F32, 1, 32, 1);
    write_whole(x, &it);
    refused(TL_ERR_SHAPE, "no place for: model.layers.3.input_layernorm.weight");
    empty(in);
}

/* ---- fewer bits ---- */

static double e4m3(unsigned bits) { /* Micikevicius et al. 2022, table 1; NaN apart */
    unsigned exponent = bits >> 3 & 15, fraction = bits & 7;
    double value = exponent ? ldexp(1 + fraction / 8.0, (int)exponent - 7) : ldexp(fraction / 8.0, -6);
    return bits & 128 ? -value : value;
}

/* A matrix in fp8 with a scale for each 128 × 128 is value · scale: DeepSeek-V3's README, "FP8 weights", and its
 * inference/kernel.py (weight_dequant). The net is one of 300 columns and rows of blocks that end within a block. */
static void fp8_with_scales(void **state) {
    static const char config[] =
        "{\"model_type\": \"mistral\", \"num_hidden_layers\": 1, \"hidden_size\": 300, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"head_dim\": 150, \"intermediate_size\": 260, \"vocab_size\": 7, "
        "\"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e4, \"sliding_window\": null, "
        "\"tie_word_embeddings\": true, \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": "
        "[128, 128]}}";
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* scales in f32 and bf16, a net of bf16 */
        tl_error error = {0};
        tl_model m;
        const tl_parameter *list;
        write_text("config.json", config);
        m = model_in(in);
        world w = begin(&m, kind == 2 ? TL_BF16 : TL_F32);
        int count = tl_net_parameters(w.net, &list), found = -1;
        drop(&it);
        for (int i = 0; i < count; i++) {
            int ndim = tl_tensor_ndim(list[i].tensor);
            bool is = strcmp(list[i].name, name) == 0;
            add(&it, list[i].name, is ? TL_F8E4M3 : TL_F32, ndim, tl_tensor_size(list[i].tensor, 0),
                ndim > 1 ? tl_tensor_size(list[i].tensor, 1) : 1);
            found = is ? i : found;
        }
        unsigned char *bits = entry_of(&it, name)->data;
        for (int i = 0; i < 260 * 300; i++)
            bits[i] = (unsigned char)(i * 37 % 127 + (i % 2 ? 128 : 0));
        char scale_name[96];
        snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
        entry *scale = add(&it, scale_name, kind ? TL_BF16 : TL_F32, 2, 3, 3);
        float scales[9];
        for (int i = 0; i < 9; i++) {
            uint16_t narrow = tl_f32_to_bf16(scales[i] = (float)(i + 3) / 512);
            memcpy((char *)scale->data + i * (kind ? 2 : 4), kind ? (void *)&narrow : (void *)&scales[i], kind ? 2 : 4);
        }
        write_file("model.safetensors", &it, 0, it.count);
        tl_weights_report report = loads("fp8", in, &w);
        assert_int_equal(report.formats[TL_F8E4M3], 1);
        assert_non_null(strstr(report.note, "1 of them times their weight_scale_inv"));
        static double have[260 * 300];
        tl_scope_begin(w.ctx);
        assert_int_equal(tl_tensor_read(tl_cast(list[found].tensor, TL_F64), have, sizeof have), TL_OK);
        tl_scope_end(w.ctx);
        for (int i = 0; i < 260 * 300; i++) {
            float want = (float)(e4m3(bits[i]) * (double)scales[i / 300 / 128 * 3 + i % 300 / 128]);
            if (kind == 2)
                want = tl_bf16_to_f32(tl_f32_to_bf16(want));
            if (have[i] != (double)want)
                fail_msg("value %d is %.9g, not %.9g", i, have[i], (double)want);
        }
        scale->dim[0] = 9;
        scale->dim[1] = 1;
        write_file("model.safetensors", &it, 0, it.count);
        assert_int_equal(tl_weights_load(in, w.net, NULL, &error), TL_ERR_SHAPE);
        assert_non_null(strstr(error.message, "does not scale blocks of 128 × 128"));
        end(&w);
        empty(in);
    }
}

/* A block that holds four values: rows come in pieces, which start within a block of the scales. */
static void fp8_through_a_small_block(void **state) {
    static float have[2 * 300];
    static double block[16];
    tl_error error = {0};
    char path[256];
    (void)state;
    drop(&it);
    unsigned char *bits = add(&it, "w", TL_F8E4M3, 2, 2, 300)->data;
    float *scale = add(&it, "w_scale_inv", TL_F32, 2, 1, 3)->data;
    for (int i = 0; i < 600; i++)
        bits[i] = (unsigned char)(i * 37 % 127);
    for (int i = 0; i < 3; i++)
        scale[i] = (float)(i + 1) / 4;
    write_file("model.safetensors", &it, 0, it.count);
    tl_safetensors *file = tl_safetensors_open(path_in(in, "model.safetensors", path), &error);
    assert_non_null(file);
    for (int64_t half = 8; half <= 72; half += 16) {
        tl_weights_passage way = {.from = "file",
                                  .file = file,
                                  .scale_file = file,
                                  .tensor = tl_safetensors_find(file, "w"),
                                  .scale = tl_safetensors_find(file, "w_scale_inv"),
                                  .data = (char *)have,
                                  .to = TL_F32,
                                  .block = (char *)block,
                                  .half = half};
        memset(have, 0, sizeof have);
        if (tl_weights_read_tensor(&way, &error) != TL_OK)
            fail_msg("%s", error.message);
        for (int i = 0; i < 600; i++)
            if ((double)have[i] != e4m3(bits[i]) * (i % 300 / 128 + 1) / 4)
                fail_msg("half a block of %d: value %d is %.9g", (int)half, i, (double)have[i]);
    }
    tl_safetensors_close(file);
    empty(in);
}

/* Phi's very first files (microsoft/phi-1_5 of September 2023, modeling_mixformer_sequential.py) count the token table, the blocks
 * and the head in one list. They are read, and written under phi-msft's names. */
static void phis_one_list(void **state) {
    const family_fixture *x = fixture_of("phi_msft");
    tl_error error = {0};
    int renamed = 0;
    (void)state;
    fill(&it, x, "", "");
    for (int i = 0; i < it.count; i++) {
        char old[160];
        int layer, at = 0;
        entry *e = &it.entries[i];
        snprintf(old, sizeof old, "%.150s", e->name);
        if (strcmp(old, "transformer.embd.wte.weight") == 0)
            snprintf(e->name, sizeof e->name, "layers.0.wte.weight");
        else if (sscanf(old, "transformer.h.%d.%n", &layer, &at) == 1 && at > 0)
            snprintf(e->name, sizeof e->name, "layers.%d.%.140s", layer + 1, old + at);
        else if (strncmp(old, "lm_head.", 8) == 0)
            snprintf(e->name, sizeof e->name, "layers.3.%.140s", old + 8);
        renamed += strcmp(old, e->name) != 0;
    }
    assert_int_equal(renamed, x->count);
    add(&it, "layers.1.mixer.rotary_emb.inv_freq", TL_F32, 1, 2, 0);
    write_whole(x, &it);
    tl_model m = model_in(in);
    world w = begin(&m, TL_F32);
    tl_weights_report report = loads("one list", in, &w);
    assert_int_equal(report.ignored, 1);
    assert_string_equal(report.prefix, "layers.");
    assert_logits("one list", &w, x->logits);
    if (tl_weights_save(out, w.net, NULL, &error) != TL_OK)
        fail_msg("%s", error.message);
    fill(&it, x, "", "");
    assert_same_files("one list", out, &it);
    end(&w);
    empty(in);
    empty(out);
}

static void other_formats_are_named(void **state) {
    static const struct {
        const char *fixture, *tensor, *instead, *words;
    } cases[] = {
        {"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj_blocks",
         "in MXFP4"},
        {"qwen2", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.qweight", "in GPTQ or AWQ"},
        {"qwen3", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight_packed",
         "in compressed-tensors"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const family_fixture *x = fixture_of(cases[i].fixture);
        fill(&it, x, "", "");
        entry *e = entry_of(&it, cases[i].tensor);
        snprintf(e->name, sizeof e->name, "%s", cases[i].instead);
        write_whole(x, &it);
        refused(TL_ERR_UNSUPPORTED, cases[i].words);
        refused(TL_ERR_UNSUPPORTED, cases[i].instead);
        refused(TL_ERR_UNSUPPORTED, "in bf16 or f16");
        empty(in);
    }
    const family_fixture *phi = fixture_of("phi_msft"); /* under the config.json of another form */
    fill(&it, phi, "", "");
    write_whole(phi, &it);
    write_text("config.json", fixture_of("phi")->config);
    refused(TL_ERR_SHAPE, "Phi's first form: a config.json of model_type phi-msft would work");
    const family_fixture *x = fixture_of("mistral"); /* a scale of what is not in fp8 is not passed over */
    fill(&it, x, "", "");
    add(&it, "model.layers.0.mlp.up_proj.weight_scale_inv", TL_F32, 2, 1, 1);
    write_whole(x, &it);
    refused(TL_ERR_SHAPE, "no place for: model.layers.0.mlp.up_proj.weight_scale_inv");
    empty(in);
}

/* ---- all ---- */

static int make_folders(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/tally-family-weights-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(in, sizeof in, "%s/in", base);
    snprintf(out, sizeof out, "%s/out", base);
    return mkdir(in, 0777) != 0 || mkdir(out, 0777) != 0;
}

static int drop_folders(void **state) {
    (void)state;
    drop(&it);
    empty(in);
    empty(out);
    return rmdir(in) != 0 || rmdir(out) != 0 || rmdir(base) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_and_written_back),     cmocka_unit_test(from_shards),
        cmocka_unit_test(files_that_do_not_fit),     cmocka_unit_test(other_prefixes),
        cmocka_unit_test(keys_of_layers_that_share), cmocka_unit_test(what_is_no_parameter),
        cmocka_unit_test(other_parts_are_skipped),   cmocka_unit_test(multi_token_prediction),
        cmocka_unit_test(fp8_with_scales),           cmocka_unit_test(fp8_through_a_small_block),
        cmocka_unit_test(other_formats_are_named),   cmocka_unit_test(phis_one_list),
    };
    return cmocka_run_group_tests(tests, make_folders, drop_folders);
}
