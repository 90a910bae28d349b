/* cli/infer_text.c: characters of tokens and back, and lists of ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data.h"
#include "infer.h"
#include "tally/data.h"

static int open_tokenizer(tl_speller *s, const tl_opened *o, const char *path) {
    tl_error error = {TL_OK, ""};
    s->tokenizer = tl_tokenizer_open(path, NULL, &error);
    if (!s->tokenizer)
        return tl_failed(o->cli, &error);
    s->kind = TL_SPELL_TOKENIZER;
    snprintf(s->name, sizeof s->name, "%s", tl_tokenizer_describe(s->tokenizer));
    char hash[TL_HASH_TEXT];
    if (o->tokenizer_hash[0] && strcmp(tl_tokenizer_hash(s->tokenizer, hash), o->tokenizer_hash) != 0) {
        tl_say(o->cli, "%s is not the tokenizer that %s was trained with: its vocabulary is another (%s, not %s)", path,
               o->path, hash, o->tokenizer_hash);
        return TL_EXIT_FAILED;
    }
    if (tl_tokenizer_size(s->tokenizer) <= o->model.vocab)
        return TL_EXIT_OK;
    tl_say(o->cli, "%s has ids up to %lld; %s has a vocabulary of %lld", path,
           (long long)tl_tokenizer_size(s->tokenizer) - 1, o->model.name, (long long)o->model.vocab);
    return TL_EXIT_FAILED;
}

/* Beside the weights, as Hugging Face's folders have it. */
static bool find_beside(const tl_opened *o, char *path, size_t size) {
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    struct stat st;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, size, "%s/%s", o->path, names[i]);
        if (stat(path, &st) == 0)
            return true;
    }
    return false;
}

int tl_speller_open(tl_speller *s, const tl_opened *o, const char *tokenizer) {
    char path[TL_INFER_PATH + 64];
    *s = (tl_speller){.kind = TL_SPELL_NONE, .name = "none"};
    if (tokenizer)
        return open_tokenizer(s, o, tokenizer);
    if (o->tokenizer[0])
        return open_tokenizer(s, o, o->tokenizer);
    if (strcmp(o->task, "sums") == 0) {
        s->kind = TL_SPELL_SUMS;
        snprintf(s->name, sizeof s->name, "the 13 characters of sums");
        return TL_EXIT_OK;
    }
    return find_beside(o, path, sizeof path) ? open_tokenizer(s, o, path) : TL_EXIT_OK;
}

void tl_speller_close(tl_speller *s) {
    tl_token_text_free(&s->spelt);
    tl_tokenizer_free(s->tokenizer);
    *s = (tl_speller){.kind = TL_SPELL_NONE};
}

const char *tl_speller_name(const tl_speller *s) { return s->name; }

int32_t tl_speller_end(const tl_speller *s) {
    return s->kind == TL_SPELL_TOKENIZER ? tl_tokenizer_end_of_text(s->tokenizer) : -1;
}

static int32_t sums_id(char c) {
    for (int32_t id = 0; id < TL_SUMS_VOCAB; id++)
        if (tl_sums_character(id) == c)
            return id;
    return -1;
}

static int32_t *encode_sums(const char *text, size_t bytes, int64_t *count, tl_error *error) {
    int32_t *ids = malloc((bytes + 1) * sizeof *ids);
    if (!ids) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a text of %zu bytes", bytes);
        return NULL;
    }
    for (size_t i = 0; i < bytes; i++)
        if ((ids[i] = sums_id(text[i])) < 0) {
            tl_fail(error, TL_ERR_ARGUMENT,
                    "byte %zu of the text is none of the 13 characters of sums: digits, +, = and a blank would work",
                    i);
            free(ids);
            return NULL;
        }
    *count = (int64_t)bytes;
    return ids;
}

static int32_t *encode_text(const tl_speller *s, const char *text, size_t bytes, bool begins, int64_t *count,
                            tl_error *error) {
    tl_token_list list = {0};
    size_t n = 0;
    const int32_t *prefix = tl_tokenizer_prefix(s->tokenizer, &n);
    tl_status status = begins && n ? tl_token_list_add(&list, prefix, n, error) : TL_OK;
    if (status == TL_OK)
        status = tl_tokenizer_encode(s->tokenizer, text, bytes, TL_SPECIAL_TEXT, &list, error);
    int32_t *ids = status == TL_OK ? malloc((list.count + 1) * sizeof *ids) : NULL;
    if (status == TL_OK && !ids)
        tl_fail(error, TL_ERR_MEMORY, "no memory for %zu tokens", list.count);
    if (ids && list.count)
        memcpy(ids, list.ids, list.count * sizeof *ids);
    *count = (int64_t)list.count;
    tl_token_list_free(&list);
    return ids;
}

int32_t *tl_speller_encode(const tl_speller *s, const char *text, size_t bytes, bool begins, int64_t *count,
                           tl_error *error) {
    if (s->kind == TL_SPELL_SUMS)
        return encode_sums(text, bytes, count, error);
    if (s->kind == TL_SPELL_TOKENIZER)
        return encode_text(s, text, bytes, begins, count, error);
    tl_fail(error, TL_ERR_ARGUMENT, "no tokenizer is known for this model: --tokenizer names one");
    return NULL;
}

int64_t tl_speller_length(const tl_speller *s, int32_t id) {
    size_t length = 0;
    if (s->kind == TL_SPELL_SUMS)
        return id < TL_SUMS_VOCAB ? 1 : -1;
    if (s->kind == TL_SPELL_NONE || !tl_tokenizer_bytes(s->tokenizer, id, &length))
        return -1;
    return tl_tokenizer_is_special(s->tokenizer, id) ? 0 : (int64_t)length;
}

const char *tl_speller_bytes(tl_speller *s, bool first, int32_t id, char buffer[32], size_t *length) {
    tl_error ignored = {TL_OK, ""};
    if (s->kind == TL_SPELL_TOKENIZER) {
        s->spelt.count = 0;
        if (tl_tokenizer_decode_more(s->tokenizer, first, &id, 1, &s->spelt, &ignored) == TL_OK) {
            *length = s->spelt.count;
            return s->spelt.bytes;
        }
    }
    if (s->kind == TL_SPELL_SUMS && id < TL_SUMS_VOCAB)
        snprintf(buffer, 32, "%c", tl_sums_character(id));
    else if (s->kind == TL_SPELL_NONE)
        snprintf(buffer, 32, "%s%d", first ? "" : " ", (int)id);
    else
        snprintf(buffer, 32, "<%d>", (int)id); /* the vocabulary is longer than the tokenizer's */
    *length = strlen(buffer);
    return buffer;
}

int32_t *tl_ids_parse(const char *text, int64_t *count, tl_error *error) {
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    if (!ids) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a list of ids");
        return NULL;
    }
    *count = 0;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        while (*end == ' ')
            end++;
        if (end == at || errno || value < 0 || value > INT32_MAX || (*end != ',' && *end != '\0')) {
            tl_fail(error, TL_ERR_ARGUMENT, "--ids: \"%.20s\" is no token id; \"1,2,3\" would work", at);
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (int32_t)value;
        if (*end == '\0')
            return ids;
        at = end + 1;
    }
}
