/* Weights in Hugging Face's files: read, the logits are PyTorch's (tests/fixtures/weights_oracle.py, which has its own reader
 * of safetensors and its own models); written, the files hold what was read, value for value. The real shapes are run by
 * tests/exhaustive/exhaustive_weights.c. */
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

#include "ckpt_world.h"
#include "fixtures/weights_fixtures.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/ops.h"
#include "tally/weights.h"

enum { T = 7, V = 11, MOST = 32 };

typedef struct family {
    const char *name, *config;
    const weights_row *tensors;
    int count;
    const int *tokens;
    const float *logits;
} family;

#define FAMILY(label, c)                                                                                               \
    { label, c##_config, c##_tensors, (int)(sizeof c##_tensors / sizeof *c##_tensors), c##_tokens, c##_logits }
static const family families[] = {FAMILY("gpt2", gpt2_tiny), FAMILY("llama", llama_tiny)};

static char base[64], folder[96];

/* ---- files by the fixtures' formula ---- */

typedef struct extra { /* what a file holds beside the model, or in place of a tensor of it */
    const char *name;
    tl_dtype dtype;
    int ndim;
    int64_t dim[4];
} extra;

static float value(int tensor, int64_t i, int gain) {
    int64_t n = tensor * 31 + i * 37;
    return gain ? (float)(n % 127 - 63) / 128 + 1 : (float)(n % 255 - 127) / 256;
}

static int64_t count_of(const weights_row *r) { return (int64_t)r->dim[0] * (r->ndim > 1 ? r->dim[1] : 1); }

static void put_value(void *at, tl_dtype dtype, float v) {
    double wide = (double)v;
    uint16_t half = dtype == TL_F16 ? tl_f32_to_f16(v) : tl_f32_to_bf16(v);
    if (dtype == TL_F64)
        memcpy(at, &wide, 8);
    else if (dtype == TL_F32)
        memcpy(at, &v, 4);
    else
        memcpy(at, &half, 2);
}

static char *in_folder(const char *name, char path[256]) {
    snprintf(path, 256, "%.96s/%.128s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text) {
    char path[256];
    ckpt_write_file(in_folder(name, path), text, strlen(text));
}

/* Tensors first … last − 1 of the family, and more. `skip`: one that is left out. */
static void write_part(const family *f, const char *file, tl_dtype dtype, const char *prefix, int first, int last,
                       int skip, const extra *more, int n_more) {
    tl_safetensors_item items[MOST];
    char names[MOST][96], path[256], bytes[8];
    tl_error error = {TL_OK, ""};
    int n = 0;
    memset(items, 0, sizeof items);
    for (int t = first; t < last; t++) {
        const weights_row *r = &f->tensors[t];
        if (t == skip)
            continue;
        snprintf(names[n], sizeof names[n], "%s%s", strncmp(r->name, "lm_head", 7) == 0 ? "" : prefix, r->name);
        items[n] = (tl_safetensors_item){names[n], dtype, r->ndim, {r->dim[0], r->ndim > 1 ? r->dim[1] : 0}};
        n++;
    }
    int own = n;
    for (int e = 0; e < n_more; e++) {
        items[n] = (tl_safetensors_item){more[e].name, more[e].dtype, more[e].ndim, {0}};
        for (int d = 0; d < more[e].ndim; d++)
            items[n].dim[d] = more[e].dim[d];
        n++;
    }
    tl_safetensors_writer *w = tl_safetensors_begin(in_folder(file, path), items, n, NULL, 0, &error);
    if (!w)
        fail_msg("%s", error.message);
    for (int t = first; t < last; t++)
        for (int64_t i = 0; t != skip && i < count_of(&f->tensors[t]); i++) {
            put_value(bytes, dtype, value(t, i, f->tensors[t].gain));
            assert_int_equal(tl_safetensors_write(w, bytes, tl_dtype_bytes(dtype), &error), TL_OK);
        }
    for (int e = own; e < n; e++) {
        int64_t all = tl_dtype_bytes(items[e].dtype);
        for (int d = 0; d < items[e].ndim; d++)
            all *= items[e].dim[d];
        for (int64_t i = 0; i < all; i++)
            assert_int_equal(tl_safetensors_write(w, "\0", 1, &error), TL_OK);
    }
    assert_int_equal(tl_safetensors_end(w, TL_OK, &error), TL_OK);
}

static void write_whole(const family *f, tl_dtype dtype, const char *prefix, const extra *more, int n_more) {
    write_part(f, "model.safetensors", dtype, prefix, 0, f->count, -1, more, n_more);
    write_text("config.json", f->config);
}

/* Two shards and their index, a pair of which may be changed. */
static void write_shards(const family *f, const char *from, const char *to) {
    char text[8192] = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {", *at;
    int half = f->count / 2;
    write_part(f, "model-00001-of-00002.safetensors", TL_F32, "", 0, half, -1, NULL, 0);
    write_part(f, "model-00002-of-00002.safetensors", TL_F32, "", half, f->count, -1, NULL, 0);
    for (int t = 0; t < f->count; t++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"%s\": \"model-0000%d-of-00002.safetensors\"",
                 t ? ", " : "", f->tensors[t].name, 1 + (t >= half));
    snprintf(text + strlen(text), sizeof text - strlen(text), "}}");
    if (from) {
        char changed[8192];
        at = strstr(text, from);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        write_text("model.safetensors.index.json", changed);
    } else {
        write_text("model.safetensors.index.json", text);
    }
    write_text("config.json", f->config);
}

static void empty(void) {
    char path[256];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name, path));
    if (d)
        closedir(d);
}

/* ---- nets ---- */

typedef struct world {
    tl_ctx *ctx;
    tl_net *net;
} world;

static world begin(const family *f, tl_dtype dtype, const char *from, const char *to) {
    world w = {0};
    tl_error error = {TL_OK, ""};
    tl_model model;
    char config[2048];
    const char *at = from ? strstr(f->config, from) : NULL;
    tl_ctx_options options = {.kernels = tl_kernels_portable(), .threads = 1, .seed_init = 3};
    snprintf(config, sizeof config, "%s", f->config);
    if (from) {
        assert_non_null(at);
        snprintf(config, sizeof config, "%.*s%s%s", (int)(at - f->config), f->config, to, at + strlen(from));
    }
    if (tl_config_parse(config, strlen(config), f->name, &model, &error) != TL_OK)
        fail_msg("%s", error.message);
    w.ctx = tl_ctx_new(&options, &error);
    assert_non_null(w.ctx);
    w.net = tl_net_new(w.ctx, &model, dtype);
    if (!w.net)
        fail_msg("%s", tl_ctx_error(w.ctx)->message);
    return w;
}

static void end(world *w) {
    tl_net_free(w->net);
    tl_ctx_free(w->ctx);
}

static void assert_logits(const family *f, world *w, double within) {
    int32_t tokens[T];
    for (int i = 0; i < T; i++)
        tokens[i] = f->tokens[i];
    tl_scope_begin(w->ctx);
    tl_tensor *in = tl_from_data(w->ctx, TL_I32, TL_SHAPE(w->ctx, tl_dim_of(1), tl_dim_of(T)), TL_DATA, tokens, T);
    tl_tensor *out = tl_cast(tl_net_forward(w->net, in), TL_F64);
    double have[T * V];
    if (!out || tl_tensor_read(out, have, sizeof have) != TL_OK)
        fail_msg("%s", tl_ctx_error(w->ctx)->message);
    for (int i = 0; i < T * V; i++)
        if (!(fabs(have[i] - (double)f->logits[i]) <= within))
            fail_msg("%s: logit %d is %.9g, PyTorch has %.9g", f->name, i, have[i], (double)f->logits[i]);
    tl_scope_end(w->ctx);
}

static void assert_loads(const char *path, world *w, tl_weights_report *report) {
    tl_error error = {TL_OK, ""};
    if (tl_weights_load(path, w->net, report, &error) != TL_OK)
        fail_msg("%s", error.message);
}

static void assert_refused(const char *path, world *w, tl_status status, const char *words) {
    tl_error error = {TL_OK, ""};
    tl_status found = tl_weights_load(path, w->net, NULL, &error);
    if (found != status || !strstr(error.message, words))
        fail_msg("status %d, \"%s\"; %d and \"%s\" are expected", (int)found, error.message, (int)status, words);
}

/* ---- reading ---- */

static void logits_are_pytorchs(void **state) {
    static const tl_dtype formats[] = {TL_F32, TL_BF16, TL_F16, TL_F64};
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < 4; d++) {
            const family *f = &families[k];
            tl_weights_report report;
            world w = begin(f, TL_F32, NULL, NULL);
            write_whole(f, formats[d], "", NULL, 0);
            assert_loads(folder, &w, &report);
            assert_int_equal(report.files, 1);
            assert_int_equal(report.tensors, f->count);
            assert_int_equal(report.formats[formats[d]], f->count);
            assert_int_equal(report.converted, d ? f->count : 0);
            assert_int_equal(report.transposed, k == 0 ? 8 : 0); /* four of each of two layers */
            assert_int_equal(strstr(report.note, "converted to f32") != NULL, d != 0);
            assert_logits(f, &w, 1e-5);
            end(&w);
            empty();
        }
}

static void nets_of_other_formats(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        world wide = begin(&families[k], TL_F64, NULL, NULL), narrow = begin(&families[k], TL_BF16, NULL, NULL);
        tl_weights_report report;
        write_whole(&families[k], TL_F32, "", NULL, 0);
        assert_loads(folder, &wide, &report);
        assert_logits(&families[k], &wide, 1e-5); /* the fixtures are f32 */
        assert_loads(folder, &narrow, &report);
        assert_logits(&families[k], &narrow, 0.1);
        assert_non_null(strstr(report.note, "converted to bf16"));
        end(&wide);
        end(&narrow);
        empty();
    }
}

static void prefixes_buffers_and_shards(void **state) {
    static const extra buffers[] = {{"transformer.h.0.attn.bias", TL_U8, 4, {1, 1, 7, 7}},
                                    {"transformer.h.1.attn.masked_bias", TL_F32, 0, {0}}},
                       angles[] = {{"model.layers.0.self_attn.rotary_emb.inv_freq", TL_F32, 1, {1}}};
    tl_weights_report report;
    char path[256];
    (void)state;
    world w = begin(&families[0], TL_F32, NULL, NULL);
    write_whole(&families[0], TL_F32, "transformer.", buffers, 2);
    assert_loads(in_folder("model.safetensors", path), &w, &report);
    assert_string_equal(report.prefix, "transformer.");
    assert_int_equal(report.ignored, 2);
    assert_non_null(strstr(report.note, "transformer.h.0.attn.bias"));
    assert_logits(&families[0], &w, 1e-5);
    end(&w);
    empty();
    w = begin(&families[1], TL_F32, NULL, NULL);
    write_whole(&families[1], TL_F32, "", angles, 1);
    assert_loads(folder, &w, &report);
    assert_int_equal(report.ignored, 1);
    end(&w);
    empty();
    w = begin(&families[1], TL_F32, NULL, NULL);
    write_shards(&families[1], NULL, NULL);
    write_part(&families[1], "adapter.safetensors", TL_F32, "", 0, 1, -1, NULL, 0); /* a stray: not globbed in */
    assert_loads(folder, &w, &report);
    assert_int_equal(report.files, 2);
    assert_int_equal(report.strays, 1);
    assert_non_null(strstr(report.note, "adapter.safetensors"));
    assert_logits(&families[1], &w, 1e-5);
    assert_loads(in_folder("model.safetensors.index.json", path), &w, &report);
    end(&w);
    empty();
}

/* ---- refusals ---- */

static void files_that_do_not_fit(void **state) {
    static const extra unknown[] = {{"score.weight", TL_F32, 2, {2, 8}}},
                       integers[] = {{"wte.weight", TL_I32, 2, {11, 8}}}, u64[] = {{"wte.weight", TL_U16, 2, {11, 8}}},
                       turned[] = {{"h.0.mlp.c_fc.weight", TL_F32, 2, {32, 8}}},
                       head[] = {{"lm_head.weight", TL_F32, 2, {11, 8}}};
    const family *gpt2 = &families[0];
    world w = begin(gpt2, TL_F32, NULL, NULL);
    char path[256];
    (void)state;
    assert_refused(folder, &w, TL_ERR_NOT_FOUND, "holds neither model.safetensors.index.json nor model.safetensors");
    write_text("pytorch_model.bin", "PK");
    assert_refused(folder, &w, TL_ERR_NOT_FOUND, "is a pickle");
    write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    assert_refused(folder, &w, TL_ERR_FORMAT, "git-LFS pointer");
    write_part(gpt2, "model.safetensors", TL_F32, "", 0, gpt2->count, 3, NULL, 0);
    assert_refused(folder, &w, TL_ERR_SHAPE, gpt2->tensors[3].name);
    write_part(gpt2, "model.safetensors", TL_F32, "", 0, 4, -1, NULL, 0);
    assert_refused(folder, &w, TL_ERR_SHAPE, "lacks 24 of this model's 28 tensors");
    write_whole(gpt2, TL_F32, "", unknown, 1);
    assert_refused(folder, &w, TL_ERR_SHAPE, "no place for: score.weight");
    write_part(gpt2, "model.safetensors", TL_F32, "", 0, gpt2->count, 0, integers, 1);
    assert_refused(folder, &w, TL_ERR_DTYPE, "wte.weight in I32");
    write_part(gpt2, "model.safetensors", TL_F32, "", 0, gpt2->count, 0, u64, 1);
    assert_refused(folder, &w, TL_ERR_DTYPE, "wte.weight in U16");
    int c_fc = 0;
    while (strcmp(gpt2->tensors[c_fc].name, "h.0.mlp.c_fc.weight") != 0)
        c_fc++;
    write_part(gpt2, "model.safetensors", TL_F32, "", 0, gpt2->count, c_fc, turned, 1); /* as nn.Linear would have it */
    assert_refused(folder, &w, TL_ERR_SHAPE, "as [32, 8]; this model has it as [8, 32]");
    write_whole(gpt2, TL_F32, "", head, 1); /* zeros, where the tied embedding has none */
    assert_refused(folder, &w, TL_ERR_FORMAT, "\"tie_word_embeddings\": false");
    end(&w);
    w = begin(&families[1], TL_F32, "\"vocab_size\": 11", "\"vocab_size\": 12");
    write_whole(&families[1], TL_F32, "", NULL, 0);
    assert_refused(folder, &w, TL_ERR_SHAPE, "as [11, 8]; this model has it as [12, 8]");
    end(&w);
    empty();
    w = begin(&families[1], TL_F32, NULL, NULL);
    write_part(&families[1], "model.safetensors", TL_F32, "", 0, families[1].count, families[1].count - 1, NULL, 0);
    assert_refused(folder, &w, TL_ERR_SHAPE, "\"tie_word_embeddings\": true");
    assert_refused(in_folder("nothing.safetensors", path), &w, TL_ERR_NOT_FOUND, "No such file");
    end(&w);
    empty();
}

static void an_index_that_is_wrong(void **state) {
    static const struct {
        const char *from, *to;
        tl_status status;
        const char *words;
    } changes[] = {
        {"\"model-00002-of-00002.safetensors\"", "\"model-00003-of-00002.safetensors\"", TL_ERR_NOT_FOUND,
         "names model-00003-of-00002.safetensors, one of 3 files, which is not there"},
        {"\"model-00002-of-00002.safetensors\"", "\"model-00001-of-00002.safetensors\"", TL_ERR_FORMAT,
         "lies in model-00001-of-00002.safetensors, which does not hold it"},
        {"\"model-00001-of-00002.safetensors\"", "\"../model-00001-of-00002.safetensors\"", TL_ERR_FORMAT,
         "names no file beside it"},
        {"\"model-00001-of-00002.safetensors\"", "\"/etc/passwd\"", TL_ERR_FORMAT, "names no file beside it"},
        {"\"model-00001-of-00002.safetensors\"", "1", TL_ERR_FORMAT, "names no file beside it"},
        {"\"model.norm.weight\"", "\"model.norm.wait\"", TL_ERR_FORMAT, "model.norm.wait lies in"},
        {"\"weight_map\"", "\"weightmap\"", TL_ERR_FORMAT, "no \"weight_map\""},
        {"\"model.norm.weight\"", "\"model.embed_tokens.weight\"", TL_ERR_FORMAT, "duplicate"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        world w = begin(&families[1], TL_F32, NULL, NULL);
        write_shards(&families[1], changes[i].from, changes[i].to);
        assert_refused(folder, &w, changes[i].status, changes[i].words);
        end(&w);
        empty();
    }
}

/* 70000 is beyond f16's 65504; 1e39 beyond f32. */
static void values_that_would_become_infinite(void **state) {
    (void)state;
    for (int way = 0; way < 2; way++) {
        world w = begin(&families[1], way ? TL_F32 : TL_F16, NULL, NULL);
        char path[256];
        size_t length;
        tl_dtype dtype = way ? TL_F64 : TL_F32;
        write_whole(&families[1], dtype, "", NULL, 0);
        unsigned char *data = ckpt_read_file(in_folder("model.safetensors", path), &length);
        double wide = 1e39;
        float single = 70000;
        memcpy(data + length - (size_t)tl_dtype_bytes(dtype), way ? (void *)&wide : (void *)&single,
               (size_t)tl_dtype_bytes(dtype));
        ckpt_write_file(path, data, length);
        free(data);
        assert_refused(folder, &w, TL_ERR_DTYPE, "lm_head.weight holds a value that");
        end(&w);
        empty();
    }
}

/* Planned, since angles change no account; not computed. */
static void what_is_not_computed_takes_no_values(void **state) {
    static const char config[] =
        "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 8, \"vocab_size\": 11, "
        "\"max_position_embeddings\": 64, "
        "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}, "
        "\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2.0}}}";
    tl_model model;
    tl_error error = {TL_OK, ""};
    (void)state;
    if (tl_config_parse(config, strlen(config), "config.json", &model, &error) != TL_OK)
        fail_msg("%s", error.message);
    tl_ctx_options options = {.kernels = tl_kernels_portable(), .threads = 1};
    tl_ctx *meta = tl_ctx_new(NULL, &error), *cpu = tl_ctx_new(&options, &error);
    tl_net *net = tl_net_new(meta, &model, TL_F32);
    assert_non_null(net);
    assert_null(tl_net_new(cpu, &model, TL_F32));
    assert_int_equal(tl_ctx_status(cpu), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(cpu)->message, "sliding_attention"));
    tl_net_free(net);
    tl_ctx_free(meta);
    tl_ctx_free(cpu);
}

/* ---- writing ---- */

/* Every tensor under its published name and in its published shape, with the formula's values. */
static void assert_written(const family *f, const char *prefix, int files) {
    tl_error error = {TL_OK, ""};
    char path[256], name[128];
    int found = 0;
    for (int i = 1; i <= files; i++) {
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, files);
        tl_safetensors *file = tl_safetensors_open(in_folder(files > 1 ? name : "model.safetensors", path), &error);
        if (!file)
            fail_msg("%s", error.message);
        assert_string_equal(tl_safetensors_metadata(file, "format"), "pt"); /* transformers refuses a file without it */
        for (int t = 0; t < f->count; t++) {
            const weights_row *r = &f->tensors[t];
            char whole[128];
            snprintf(whole, sizeof whole, "%s%s", strncmp(r->name, "lm_head", 7) == 0 ? "" : prefix, r->name);
            const tl_safetensors_tensor *have = tl_safetensors_find(file, whole);
            if (!have)
                continue;
            found++;
            assert_int_equal(have->dtype, TL_F32);
            assert_int_equal(have->ndim, r->ndim);
            for (int d = 0; d < r->ndim; d++)
                assert_int_equal(have->dim[d], r->dim[d]);
            for (int64_t k = 0; k < have->count; k++) {
                float v;
                assert_int_equal(tl_safetensors_read(file, have, 4 * k, &v, 4, &error), TL_OK);
                if (v != value(t, k, r->gain))
                    fail_msg("%s[%lld] is %g", whole, (long long)k, (double)v);
            }
        }
        tl_safetensors_close(file);
    }
    assert_int_equal(found, f->count);
}

static void written_back_the_same(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const family *f = &families[k];
        const char *prefix = k == 0 ? "transformer." : "";
        tl_weights_options options = {.shard_bytes = 1200, .prefix = prefix};
        tl_weights_report report;
        tl_error error = {TL_OK, ""};
        char path[256];
        world w = begin(f, TL_F32, NULL, NULL), again;
        write_whole(f, TL_F32, "", NULL, 0);
        assert_loads(folder, &w, &report);
        empty();
        if (tl_weights_save(folder, w.net, NULL, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_written(f, "", 1);
        tl_model model;
        assert_int_equal(tl_model_find(folder, &model, &error), TL_OK);
        assert_int_equal(model.layers, 2);
        assert_int_equal(model.tied, k == 0);
        again = begin(f, TL_F32, NULL, NULL);
        assert_loads(folder, &again, &report);
        assert_logits(f, &again, 1e-5);
        end(&again);
        if (tl_weights_save(folder, w.net, &options, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_int_not_equal(access(in_folder("model.safetensors", path), F_OK), 0); /* only one may be there */
        again = begin(f, TL_F32, NULL, NULL);
        assert_loads(folder, &again, &report);
        assert_true(report.files > 2);
        assert_int_equal(report.strays, 0);
        assert_string_equal(report.prefix, prefix);
        assert_written(f, prefix, (int)report.files);
        assert_logits(f, &again, 1e-5);
        end(&again);
        end(&w);
        empty();
    }
}

/* Values of the formula are exact in bf16: they come back the same. 70000 is beyond f16. */
static void written_in_another_format(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        tl_weights_options options = {.convert = true, .dtype = TL_BF16};
        tl_weights_report report;
        tl_error error = {TL_OK, ""};
        const tl_parameter *list;
        world w = begin(&families[k], TL_F32, NULL, NULL);
        write_whole(&families[k], TL_F32, "", NULL, 0);
        assert_loads(folder, &w, &report);
        assert_int_equal(tl_weights_save(folder, w.net, &options, &error), TL_OK);
        assert_loads(folder, &w, &report);
        assert_int_equal(report.formats[TL_BF16], families[k].count);
        assert_logits(&families[k], &w, 1e-5);
        tl_net_parameters(w.net, &list);
        ((float *)tl_tensor_data(list[0].tensor))[3] = 70000;
        options.dtype = TL_F16;
        assert_int_equal(tl_weights_save(folder, w.net, &options, &error), TL_ERR_DTYPE);
        assert_loads(folder, &w, &report); /* the old one */
        assert_int_equal(report.formats[TL_BF16], families[k].count);
        end(&w);
        empty();
    }
}

static void what_cannot_be_said_is_not_written(void **state) {
    tl_error error = {TL_OK, ""};
    tl_weights_options options = {.prefix = "model."};
    (void)state;
    world w = begin(&families[1], TL_F32, "\"mlp_bias\": false", "\"rope_interleaved\": true");
    assert_int_equal(tl_weights_save(folder, w.net, NULL, &error), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "neighbouring pairs"));
    end(&w);
    tl_error_clear(&error);
    w = begin(&families[0], TL_F32, NULL, NULL);
    assert_int_equal(tl_weights_save(folder, w.net, &options, &error), TL_ERR_ARGUMENT);
    tl_error_clear(&error);
    assert_int_equal(tl_weights_save("/dev/null/folder", w.net, NULL, &error), TL_ERR_IO);
    end(&w);
}

/* A checkpoint of a run holds a net under its own names, untransposed. */
static void a_checkpoint_is_weights_too(void **state) {
    const ckpt_kind kind = {.name = "sgd", .optimizer = {.kind = TL_OPTIM_SGD}};
    ckpt_world a = ckpt_begin(&kind, 4, 1, 1), b = ckpt_begin(&kind, 4, 2, 1);
    tl_ckpt_contents contents = ckpt_contents(&a);
    tl_ckpt_state s = ckpt_state(&a);
    tl_weights_report report;
    tl_error error = {TL_OK, ""};
    char path[256];
    (void)state;
    assert_int_equal(tl_ckpt_save(in_folder("step-00000000.safetensors", path), &contents, &s, &error), TL_OK);
    assert_int_equal(tl_weights_load(path, tl_trainer_net(b.trainer), &report, &error), TL_OK);
    ckpt_assert_same(&a, &b);
    assert_non_null(strstr(report.note, "checkpoint of tally"));
    assert_int_equal(tl_weights_load(folder, tl_trainer_net(b.trainer), &report, &error), TL_OK); /* the newest in it */
    ckpt_end(&a);
    ckpt_end(&b);
    empty();
}

static int make_folder(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/tally-weights-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(folder, sizeof folder, "%s/model", base);
    return mkdir(folder, 0777);
}

static int drop_folder(void **state) {
    (void)state;
    return rmdir(folder) != 0 || rmdir(base) != 0; /* fails where something was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_pytorchs),
        cmocka_unit_test(nets_of_other_formats),
        cmocka_unit_test(prefixes_buffers_and_shards),
        cmocka_unit_test(files_that_do_not_fit),
        cmocka_unit_test(an_index_that_is_wrong),
        cmocka_unit_test(values_that_would_become_infinite),
        cmocka_unit_test(what_is_not_computed_takes_no_values),
        cmocka_unit_test(written_back_the_same),
        cmocka_unit_test(written_in_another_format),
        cmocka_unit_test(what_cannot_be_said_is_not_written),
        cmocka_unit_test(a_checkpoint_is_weights_too),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
