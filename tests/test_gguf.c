/* GGUF: files made here byte by byte from the format's text (ggml, docs/gguf.md), not by any code of ours. Sizes of blocks: Q8_0 is
 * 32 values in an f16 scale and 32 bytes, 34; Q4_K 256 values in 144 bytes; both from the same document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tally/config.h"
#include "tally/gguf.h"
#include "tally/plan.h"

typedef struct bytes {
    unsigned char at[1 << 16];
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    assert_true(b->n + n <= sizeof b->at);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void number(bytes *b, uint64_t value, int width) {
    for (int i = 0; i < width; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        put(b, &byte, 1);
    }
}

static void text(bytes *b, const char *s) {
    number(b, strlen(s), 8);
    put(b, s, strlen(s));
}

static void pair_u32(bytes *b, const char *key, uint32_t value) {
    text(b, key);
    number(b, 4, 4);
    number(b, value, 4);
}

static void pair_text(bytes *b, const char *key, const char *value) {
    text(b, key);
    number(b, 8, 4);
    text(b, value);
}

static void pair_f32(bytes *b, const char *key, float value) {
    uint32_t raw;
    memcpy(&raw, &value, 4);
    text(b, key);
    number(b, 6, 4);
    number(b, raw, 4);
}

static void tensor(bytes *b, const char *name, uint64_t x, uint64_t y, uint32_t type, uint64_t offset) {
    text(b, name);
    number(b, 2, 4);
    number(b, x, 8);
    number(b, y, 8);
    number(b, type, 4);
    number(b, offset, 8);
}

static void start(bytes *b, uint64_t tensors, uint64_t pairs) {
    b->n = 0;
    put(b, "GGUF", 4);
    number(b, 3, 4);
    number(b, tensors, 8);
    number(b, pairs, 8);
}

/* A Llama of 2 layers, D 64, H 4, G 2, F 128, C 256, V 3, head tied; weights stand for themselves: two tensors. */
static void llama(bytes *b) {
    start(b, 2, 11);
    pair_text(b, "general.architecture", "llama");
    pair_u32(b, "llama.block_count", 2);
    pair_u32(b, "llama.embedding_length", 64);
    pair_u32(b, "llama.attention.head_count", 4);
    pair_u32(b, "llama.attention.head_count_kv", 2);
    pair_u32(b, "llama.feed_forward_length", 128);
    pair_u32(b, "llama.context_length", 256);
    pair_f32(b, "llama.rope.freq_base", 10000.0f);
    pair_f32(b, "llama.attention.layer_norm_rms_epsilon", 0.0009765625f);
    text(b, "tokenizer.ggml.tokens");
    number(b, 9, 4);
    number(b, 8, 4);
    number(b, 3, 8);
    text(b, "a");
    text(b, "");
    text(b, "ccc");
    text(b, "tokenizer.ggml.scores");
    number(b, 9, 4);
    number(b, 6, 4);
    number(b, 2, 8);
    number(b, 0x3f800000, 4);                          /* 1.0 */
    number(b, 0xc0200000, 4);                          /* −2.5 */
    tensor(b, "token_embd.weight", 64, 3, 8, 0);       /* 192 values of Q8_0: 6 blocks, 204 bytes */
    tensor(b, "blk.0.attn_q.weight", 256, 2, 12, 224); /* 512 values of Q4_K: 288 bytes, at the next 32 */
    while (b->n % 32)
        number(b, 0, 1);
    for (int i = 0; i < 224 + 288; i++)
        number(b, 7, 1);
}

static const char *file_of(const bytes *b) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/tally-gguf-%ld.gguf", (long)getpid());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->at, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void what_is_in_it(void **state) {
    (void)state;
    static bytes b;
    tl_error error = {TL_OK, ""};
    llama(&b);
    const char *path = file_of(&b);
    tl_gguf *g = tl_gguf_open(path, &error);
    assert_string_equal(error.message, "");
    assert_non_null(g);
    assert_int_equal(tl_gguf_version(g), 3);
    assert_int_equal(tl_gguf_bytes(g), b.n);
    assert_int_equal(tl_gguf_header_bytes(g), b.n - 224 - 288);
    assert_int_equal(tl_gguf_pairs(g), 11);
    assert_int_equal(tl_gguf_pair_find(g, "llama.block_count")->integer[0], 2);
    assert_true(tl_gguf_pair_find(g, "llama.attention.layer_norm_rms_epsilon")->number[0] == 0.0009765625);
    assert_int_equal(tl_gguf_pair_find(g, "tokenizer.ggml.tokens")->count, 3);
    assert_null(tl_gguf_pair_find(g, "tokenizer.ggml.tokens")->number);
    assert_true(tl_gguf_pair_find(g, "tokenizer.ggml.scores")->number[1] == -2.5);
    assert_null(tl_gguf_pair_find(g, "llama.blocks"));
    assert_int_equal(tl_gguf_tensors(g), 2);
    const tl_gguf_tensor *t = tl_gguf_tensor_find(g, "token_embd.weight");
    assert_string_equal(t->format, "Q8_0");
    assert_int_equal(t->count, 192);
    assert_int_equal(t->bytes, 204);
    t = tl_gguf_tensor_find(g, "blk.0.attn_q.weight");
    assert_int_equal(t->bytes, 288);
    assert_int_equal(t->offset, b.n - 288);
    tl_model model;
    assert_int_equal(tl_gguf_model(g, path, &model, &error), TL_OK);
    assert_int_equal(model.family, TL_FAMILY_LLAMA);
    assert_int_equal(model.layers, 2);
    assert_int_equal(model.kv_heads, 2);
    assert_int_equal(model.head_size, 16);
    assert_int_equal(model.vocab, 3);
    assert_int_equal(model.ff, 128);
    assert_int_equal(model.context, 256);
    assert_true(model.tied);
    tl_gguf_close(g);
    tl_model found;
    assert_int_equal(tl_model_find(path, &found, &error), TL_OK);
    assert_int_equal(found.width, 64);
    unlink(path);
}

static void fails(const bytes *b, tl_status status, const char *words) {
    tl_error error = {TL_OK, ""};
    const char *path = file_of(b);
    tl_gguf *g = tl_gguf_open(path, &error);
    if (g || error.status != status || !strstr(error.message, words))
        fail_msg("wanted %d \"%s\", got %d \"%s\"", (int)status, words, (int)error.status, error.message);
    unlink(path);
}

/* Every prefix of a whole file is refused, and says so. */
static void half_a_download(void **state) {
    (void)state;
    static bytes b;
    llama(&b);
    size_t whole = b.n;
    for (b.n = 0; b.n < whole; b.n++) {
        tl_error error = {TL_OK, ""};
        const char *path = file_of(&b);
        assert_null(tl_gguf_open(path, &error));
        assert_true(error.status == TL_ERR_FORMAT && error.message[0]);
        unlink(path);
    }
}

static void bad_files(void **state) {
    (void)state;
    static bytes b;
    b.n = 0;
    put(&b, "PK\3\4 and more", 14);
    fails(&b, TL_ERR_FORMAT, "zip");
    start(&b, 0, 0);
    b.at[4] = 1;
    fails(&b, TL_ERR_UNSUPPORTED, "version 1");
    memcpy(b.at + 4, "\0\0\0\3", 4);
    fails(&b, TL_ERR_UNSUPPORTED, "big-endian");
    start(&b, UINT64_MAX, 0);
    fails(&b, TL_ERR_FORMAT, "more than the rest of the file");
    start(&b, 0, UINT64_C(1) << 62);
    fails(&b, TL_ERR_FORMAT, "more than the rest of the file");
    start(&b, 0, 1);
    number(&b, UINT64_C(1) << 63, 8); /* a key's length */
    number(&b, 0, 8);
    fails(&b, TL_ERR_FORMAT, "more than the rest of the file");
    start(&b, 0, 2);
    pair_u32(&b, "twice", 1);
    pair_u32(&b, "twice", 2);
    fails(&b, TL_ERR_FORMAT, "\"twice\" is there twice");
    start(&b, 0, 1);
    pair_u32(&b, "k", 1);
    b.at[24 + 9] = 77;
    fails(&b, TL_ERR_FORMAT, "type 77");
    start(&b, 0, 1);
    text(&b, "a\nb");
    number(&b, 4, 4);
    number(&b, 0, 4);
    fails(&b, TL_ERR_FORMAT, "control character");
    start(&b, 0, 1);
    text(&b, "nested");
    number(&b, 9, 4);
    number(&b, 9, 4);
    number(&b, 0, 8);
    fails(&b, TL_ERR_UNSUPPORTED, "array of arrays");
    start(&b, 0, 1);
    pair_u32(&b, "general.alignment", 3);
    fails(&b, TL_ERR_FORMAT, "power of two");
}

static void bad_tensors(void **state) {
    (void)state;
    static bytes b;
    static const struct {
        uint64_t x, y, offset;
        uint32_t type;
        const char *words;
    } bad[] = {
        {UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0, "63 bits"},
        {UINT64_C(1) << 63, 1, 0, 0, "63 bits"},
        {UINT64_C(1) << 62, 1, 0, 0, "63 bits"},
        {33, 1, 0, 8, "no whole blocks of Q8_0"},
        {8, 1, 4, 0, "multiple of 32"},
        {8, 9, 0, 0, "end at byte"},
        {8, 1, UINT64_MAX, 0, "bytes into the values"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        start(&b, 1, 0);
        tensor(&b, "w", bad[i].x, bad[i].y, bad[i].type, bad[i].offset);
        while (b.n % 32)
            number(&b, 0, 1);
        for (int k = 0; k < 256; k++)
            number(&b, 0, 1);
        fails(&b, TL_ERR_FORMAT, bad[i].words);
    }
    start(&b, 2, 0); /* they share bytes; then they share a name */
    tensor(&b, "a", 8, 2, 0, 0);
    tensor(&b, "b", 8, 1, 0, 32);
    while (b.n % 32)
        number(&b, 0, 1);
    for (int k = 0; k < 64; k++)
        number(&b, 0, 1);
    fails(&b, TL_ERR_FORMAT, "within a");
    start(&b, 2, 0);
    tensor(&b, "a", 8, 1, 0, 0);
    tensor(&b, "a", 8, 1, 0, 32);
    while (b.n % 32)
        number(&b, 0, 1);
    for (int k = 0; k < 64; k++)
        number(&b, 0, 1);
    fails(&b, TL_ERR_FORMAT, "there twice");
    /* A format of tomorrow is listed, its bytes unknown. */
    start(&b, 1, 0);
    tensor(&b, "a", 8, 1, 99, 0);
    while (b.n % 32)
        number(&b, 0, 1);
    tl_error error = {TL_OK, ""};
    const char *path = file_of(&b);
    tl_gguf *g = tl_gguf_open(path, &error);
    assert_non_null(g);
    assert_int_equal(tl_gguf_tensor_at(g, 0)->bytes, -1);
    assert_string_equal(tl_gguf_tensor_at(g, 0)->format, "type 99");
    tl_gguf_close(g);
    unlink(path);
}

/* A whole one whose block count, value length and angle are given: of u64, u32 and f32. */
static const char *llama_with(bytes *b, uint64_t layers, uint32_t value_length, uint32_t theta) {
    start(b, 0, 9);
    pair_text(b, "general.architecture", "llama");
    text(b, "llama.block_count");
    number(b, 10, 4);
    number(b, layers, 8);
    pair_u32(b, "llama.embedding_length", 64);
    pair_u32(b, "llama.attention.head_count", 4);
    pair_u32(b, "llama.feed_forward_length", 128);
    pair_u32(b, "llama.context_length", 256);
    pair_u32(b, "llama.vocab_size", 3);
    pair_u32(b, "llama.attention.value_length", value_length);
    text(b, "llama.rope.freq_base");
    number(b, 6, 4);
    number(b, theta, 4);
    return file_of(b);
}

/* A family of no name, and a vocabulary that neither a key nor a list of tokens says: the file has no "vocab_size" to name. */
static void metadata_missing(void **state) {
    (void)state;
    static bytes b;
    tl_model model;
    tl_error error = {TL_OK, ""};
    start(&b, 0, 1);
    pair_text(&b, "general.architecture", "");
    assert_int_equal(tl_model_find(file_of(&b), &model, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "general.architecture is empty"));
    tl_error_clear(&error);
    for (int with_zero = 0; with_zero < 2; with_zero++) {
        start(&b, 0, 6 + (uint64_t)with_zero);
        pair_text(&b, "general.architecture", "llama");
        pair_u32(&b, "llama.block_count", 2);
        pair_u32(&b, "llama.embedding_length", 64);
        pair_u32(&b, "llama.attention.head_count", 4);
        pair_u32(&b, "llama.feed_forward_length", 128);
        pair_u32(&b, "llama.context_length", 256);
        if (with_zero)
            pair_u32(&b, "llama.vocab_size", 0);
        assert_int_equal(tl_model_find(file_of(&b), &model, &error), TL_ERR_FORMAT);
        assert_non_null(strstr(error.message, "neither llama.vocab_size nor tokenizer.ggml.tokens"));
        assert_null(strstr(error.message, "\"vocab_size\""));
        tl_error_clear(&error);
    }
}

/* What the metadata says in a way that no description can: refused in the file's own words, or shown whole. */
static void metadata_refused(void **state) {
    (void)state;
    static bytes b;
    tl_model model;
    tl_error error = {TL_OK, ""};
    const uint32_t ten = 0x41200000, nan = 0x7fc00000; /* IEEE 754: 10, a quiet NaN */
    const char *path = llama_with(&b, 2, 16, ten);
    assert_int_equal(tl_model_find(path, &model, &error), TL_OK);
    assert_int_equal(model.file_values, 0);
    tl_error_clear(&error);
    path = llama_with(&b, 2, 8, ten); /* heads of 64 / 4 */
    assert_int_equal(tl_model_find(path, &model, &error), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "llama.attention.value_length is 8, keys have 16"));
    tl_error_clear(&error);
    path = llama_with(&b, 2, 16, nan);
    assert_int_equal(tl_model_find(path, &model, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "llama.rope.freq_base is nan"));
    tl_error_clear(&error);
    path = llama_with(&b, 0, 16, ten);
    assert_int_not_equal(tl_model_find(path, &model, &error), TL_OK);
    assert_non_null(strstr(error.message, ".gguf: llama.block_count is 0;"));
    tl_error_clear(&error);
    path = llama_with(&b, UINT64_MAX, 16, ten);
    assert_int_not_equal(tl_model_find(path, &model, &error), TL_OK);
    assert_non_null(strstr(error.message, "llama.block_count is 18446744073709551615"));
    tl_gguf *g = tl_gguf_open(path, &error);
    assert_non_null(g);
    assert_true((uint64_t)tl_gguf_pair_find(g, "llama.block_count")->integer[0] == UINT64_MAX);
    tl_gguf_close(g);
    unlink(path);
}

/* Of llama() two tensors are there, 192 and 512 values. Its description has, by the shapes of Touvron et al. 2023: token table
 * 3·64, in each of 2 layers queries and output 2·64·64, keys and values 2·64·32, three matrices of 64·128 and two norms of 64,
 * and a last norm: 192 + 2·(8192 + 4096 + 24576 + 128) + 64 = 74,240. */
static void tensors_that_are_another_model(void **state) {
    (void)state;
    static bytes b;
    tl_model model;
    tl_parameter_count count;
    tl_error error = {TL_OK, ""};
    char words[160];
    llama(&b);
    const char *path = file_of(&b);
    assert_int_equal(tl_model_find(path, &model, &error), TL_OK);
    assert_int_equal(model.file_values, 192 + 512);
    assert_int_equal(tl_plan_count(&model, &count, &error), TL_OK);
    assert_true(tl_plan_file_differs(&model, &count, words));
    assert_non_null(strstr(words, "hold 704 values"));
    assert_non_null(strstr(words, "74240"));
    model.file_values = 74240;
    assert_false(tl_plan_file_differs(&model, &count, words));
    unlink(path);
}

static void models_refused(void **state) {
    (void)state;
    static bytes b;
    tl_model model;
    tl_error error = {TL_OK, ""};
    start(&b, 0, 1);
    pair_text(&b, "general.architecture", "mamba");
    const char *path = file_of(&b);
    assert_int_equal(tl_model_find(path, &model, &error), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "mamba"));
    start(&b, 0, 0);
    path = file_of(&b);
    assert_int_equal(tl_model_find(path, &model, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "general.architecture"));
    start(&b, 0, 2);
    pair_text(&b, "general.architecture", "llama");
    pair_u32(&b, "llama.block_count", 2);
    path = file_of(&b);
    assert_int_equal(tl_model_find(path, &model, &error), TL_ERR_FORMAT); /* sizes are not guessed */
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_it),    cmocka_unit_test(half_a_download),
        cmocka_unit_test(bad_files),        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(models_refused),   cmocka_unit_test(metadata_refused),
        cmocka_unit_test(metadata_missing), cmocka_unit_test(tensors_that_are_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
