/* cli/data_sidecar.c: FILE.json beside a file of tokens: which tokenizer made it, and of how much text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "tally/run.h"

static const char kind[] = "tokens";

bool tl_sidecar_path(const char *tokens, char path[TL_DATA_PATH]) {
    return snprintf(path, TL_DATA_PATH, "%s.json", tokens) < TL_DATA_PATH;
}

/* FNV-1a of 64 bits (Fowler, Noll, Vo): tells two vocabularies apart, and is no guard against an adversary. */
static uint64_t add(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

char *tl_tokenizer_hash(const tl_tokenizer *tokenizer, char text[TL_HASH_TEXT]) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t id = 0; id < tl_tokenizer_size(tokenizer); id++) {
        size_t length = 0;
        const char *bytes = tl_tokenizer_bytes(tokenizer, (int32_t)id, &length);
        const unsigned char head[5] = {(unsigned char)length, (unsigned char)(length >> 8),
                                       (unsigned char)(length >> 16), bytes != NULL,
                                       tl_tokenizer_is_special(tokenizer, (int32_t)id)};
        hash = add(add(hash, head, sizeof head), bytes, length);
    }
    snprintf(text, TL_HASH_TEXT, "fnv1a64:%016llx", (unsigned long long)hash);
    return text;
}

bool tl_tokenizer_absolute(const char *name, char path[TL_DATA_PATH]) {
    char *whole = strcmp(name, "bytes") == 0 || strcmp(name, "bytes+eot") == 0 ? NULL : realpath(name, NULL);
    const bool fits = snprintf(path, TL_DATA_PATH, "%s", whole ? whole : name) < TL_DATA_PATH;
    free(whole);
    return fits;
}

tl_status tl_sidecar_replaces(const char *tokens, tl_error *error) {
    char path[TL_DATA_PATH];
    struct stat st;
    if (!tl_sidecar_path(tokens, path))
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_DATA_PATH - 8);
    if (stat(path, &st) != 0)
        return TL_OK;
    tl_error why = {TL_OK, ""};
    tl_run_file *file = tl_run_file_read(path, &why);
    const char *text = file && tl_run_file_has(file, "kind") ? tl_run_file_text(file, "kind", &why) : NULL;
    const bool ours = text && strcmp(text, kind) == 0;
    tl_run_file_free(file);
    return ours ? TL_OK
                : tl_fail(error, TL_ERR_ARGUMENT,
                          "%s is where pack notes the tokenizer, and something else is there: another -o would work",
                          path);
}

tl_status tl_sidecar_write(const char *tokens, const tl_sidecar *s, tl_error *error) {
    char path[TL_DATA_PATH];
    if (!tl_sidecar_path(tokens, path))
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_DATA_PATH - 8);
    tl_json *json = tl_json_new(NULL, 2);
    if (json) {
        tl_json_object(json);
        tl_json_put_string(json, "schema", "tally/1");
        tl_json_put_string(json, "kind", kind);
        tl_json_put_string(json, "tokenizer", s->tokenizer);
        tl_json_put_string(json, "tokenizer_hash", s->hash);
        tl_json_put_integer(json, "vocab", s->vocab);
        tl_json_key(json, "separator");
        if (s->separator >= 0)
            tl_json_integer(json, s->separator);
        else
            tl_json_null(json);
        tl_json_put_integer(json, "tokens", s->tokens);
        tl_json_put_integer(json, "documents", s->documents);
        tl_json_put_integer(json, "text_bytes", s->text_bytes);
        if (s->starts) {
            tl_json_key(json, "starts");
            tl_json_array(json);
            for (int64_t i = 0; i < s->documents; i++)
                tl_json_integer(json, s->starts[i]);
            tl_json_end(json);
        }
        tl_json_end(json);
    }
    const tl_status status = tl_cli_write_json(path, json, error);
    tl_json_free(json);
    return status;
}

static tl_status copy(const tl_run_file *file, const char *key, char *to, size_t size, tl_error *error) {
    const char *text = tl_run_file_text(file, key, error);
    if (!text)
        return error->status;
    if (strlen(text) >= size)
        return tl_fail(error, TL_ERR_FORMAT, "%s: a text of %zu bytes", key, strlen(text));
    snprintf(to, size, "%s", text);
    return TL_OK;
}

static tl_status parse(const tl_run_file *file, tl_sidecar *s, tl_error *error) {
    char found[32] = "";
    s->separator = -1;
    tl_status status = copy(file, "kind", found, sizeof found, error);
    if (status == TL_OK && strcmp(found, kind) != 0)
        return tl_fail(error, TL_ERR_FORMAT, "its kind is not \"%s\"", kind);
    status = status ? status : copy(file, "tokenizer", s->tokenizer, sizeof s->tokenizer, error);
    status = status ? status : copy(file, "tokenizer_hash", s->hash, sizeof s->hash, error);
    status = status ? status : tl_run_file_integer(file, "vocab", 1, INT32_MAX, &s->vocab, error);
    status = status ? status : tl_run_file_integer(file, "tokens", 0, INT64_MAX, &s->tokens, error);
    status = status ? status : tl_run_file_integer(file, "documents", 0, INT64_MAX, &s->documents, error);
    status = status ? status : tl_run_file_integer(file, "text_bytes", 0, INT64_MAX, &s->text_bytes, error);
    if (status == TL_OK && tl_run_file_has(file, "separator"))
        status = tl_run_file_integer(file, "separator", 0, s->vocab - 1, &s->separator, error);
    return status;
}

/* Of one file; *there says whether there is one. */
static tl_status read_one(const tl_token_file *tokens, tl_sidecar *s, bool *there, tl_error *error) {
    struct stat st;
    tl_error why = {TL_OK, ""};
    *there = tl_sidecar_path(tokens->path, s->path) && stat(s->path, &st) == 0;
    if (!*there)
        return TL_OK;
    tl_run_file *file = tl_run_file_read(s->path, &why);
    const tl_status status = file ? parse(file, s, &why) : why.status;
    tl_run_file_free(file);
    if (status != TL_OK)
        return tl_fail(error, TL_ERR_FORMAT, "%s is not what `tally data pack' writes beside tokens: %s", s->path,
                       why.message);
    if (s->tokens != tokens->count)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s tells of %lld tokens and %s holds %lld: it belongs to another file; packing again, or "
                       "removing it, would work",
                       s->path, (long long)s->tokens, tokens->path, (long long)tokens->count);
    return TL_OK;
}

tl_status tl_sidecar_agree(const tl_sidecar *a, const tl_sidecar *b, tl_error *error) {
    if (!a->there || !b->there)
        return TL_OK;
    if (strcmp(a->hash, b->hash) != 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s and %s name different tokenizers: %s and %s", a->path, b->path,
                       a->tokenizer, b->tokenizer);
    if (a->separator != b->separator)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s and %s name different separators: %lld and %lld (-1: none)", a->path,
                       b->path, (long long)a->separator, (long long)b->separator);
    return TL_OK;
}

tl_status tl_sidecar_read(const tl_tokens *tokens, tl_sidecar *s, tl_error *error) {
    static tl_sidecar one; /* its paths are no load for a stack */
    *s = (tl_sidecar){.separator = -1};
    bool there, whole = true;
    for (int i = 0; i < tl_tokens_files(tokens); i++) {
        one = (tl_sidecar){.separator = -1};
        tl_status status = read_one(tl_tokens_file(tokens, i), &one, &there, error);
        one.there = there;
        if (status == TL_OK)
            status = tl_sidecar_agree(s, &one, error);
        if (status != TL_OK)
            return status;
        whole = whole && there;
        if (there && !s->there) {
            *s = one;
        } else if (there) {
            s->vocab = one.vocab > s->vocab ? one.vocab : s->vocab;
            s->tokens += one.tokens;
            s->documents += one.documents;
            s->text_bytes += one.text_bytes;
        }
    }
    if (!whole) /* of the rest nothing is known */
        s->text_bytes = 0;
    return TL_OK;
}
