/* config/tokenizer_file.c: reading vocab.json + merges.txt and tokenizer.json. */
#include "config/tokenizer_parts.h"

#include "base/nearest.h"
#include "base/strings.h"
#include "config/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char WANTED[] =
    "a tokenizer is a tokenizer.json, a vocab.json beside its merges.txt, or a folder of these";

/* GPT-2's splitting: contractions, then words, numbers and signs each with the blank before them, then white space of which
 * the last blank stays for the word behind it (Radford et al. 2019, encoder.py of the released code). */
static const char GPT2_PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void tl_tokenizer_gpt2_stage(tl_tokenizer_stage *stage, const char *where) {
    *stage = (tl_tokenizer_stage){
        .pattern = GPT2_PATTERN, .length = sizeof GPT2_PATTERN - 1, .keep_matches = true, .keep_gaps = true};
    (void)snprintf(stage->where, sizeof stage->where, "%s", where);
}

void tl_tokenizer_file_free(tl_tokenizer_file *file) {
    free(file->entries);
    free(file->merges);
    free(file->added);
    free(file->text);
    for (int i = 0; i < 2; i++)
        json_decref(file->owners[i]);
    memset(file, 0, sizeof *file);
}

static tl_status no_memory(const tl_tokenizer_file *file, tl_error *error) {
    return tl_fail(error, TL_ERR_MEMORY, "%s: no memory to read it", file->name);
}

/* ---- JSON ---- */

static tl_status parse_object(tl_tokenizer_file *file, const char *text, size_t length, void **owner, tl_error *error) {
    json_error_t problem;
    char quoted[256];
    size_t commas = 0;
    const char *what = tl_config_sniff(text, length);
    size_t start = 0;
    while (start < length && memchr(" \t\r\n", text[start], 4) != NULL)
        start++;
    if (start == length || text[start] != '{') {
        if (what)
            return tl_fail(error, TL_ERR_FORMAT, "%s: is %s; %s", file->name, what, WANTED);
        return tl_fail(error, TL_ERR_FORMAT, "%s: is %s; %s", file->name, length == 0 ? "empty" : "no JSON object",
                       WANTED);
    }
    for (size_t i = 0; i < length; i++)
        commas += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (commas > TL_TOKENIZER_MOST_VALUES)
        return tl_fail(error, TL_ERR_FORMAT, "%s: holds more than %zu values", file->name, TL_TOKENIZER_MOST_VALUES);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!root)
        return tl_fail(error, TL_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s", file->name, problem.line, problem.column,
                       tl_quotable(problem.text, strlen(problem.text), quoted, sizeof quoted));
    *owner = root;
    return TL_OK;
}

static tl_status read_vocab(tl_tokenizer_file *file, json_t *vocab, const char *where, tl_error *error) {
    const char *key;
    json_t *value;
    char quoted[96];
    if (!json_is_object(vocab))
        return tl_tokenizer_wrong(file, where, vocab, "an object of tokens and their ids is wanted", error);
    const size_t count = json_object_size(vocab);
    file->entries = calloc(count + 1, sizeof *file->entries);
    if (!file->entries)
        return no_memory(file, error);
    json_object_foreach(vocab, key, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            char what[160];
            (void)snprintf(what, sizeof what, "%s: the id of \"%s\"", where,
                           tl_quotable(key, strlen(key), quoted, sizeof quoted));
            return tl_tokenizer_wrong(file, what, value, "a whole number from 0 is wanted", error);
        }
        file->entries[file->n_entries++] =
            (tl_tokenizer_entry){.text = key, .length = strlen(key), .id = json_integer_value(value)};
    }
    if (count == 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s: %s holds no token", file->name, where);
    return TL_OK;
}

/* "left right": one blank, something on both sides. */
static bool split_merge(const char *text, size_t length, tl_tokenizer_merge *merge) {
    const char *blank = memchr(text, ' ', length);
    if (!blank || blank == text || blank + 1 == text + length)
        return false;
    merge->left = text;
    merge->left_length = (size_t)(blank - text);
    merge->right = blank + 1;
    merge->right_length = length - merge->left_length - 1;
    return memchr(merge->right, ' ', merge->right_length) == NULL;
}

static tl_status read_json_merges(tl_tokenizer_file *file, const json_t *merges, tl_error *error) {
    size_t i;
    json_t *value;
    char where[64];
    if (!json_is_array(merges))
        return tl_tokenizer_wrong(file, "model.merges", merges, "a list of pairs is wanted", error);
    file->merges = calloc(json_array_size(merges) + 1, sizeof *file->merges);
    if (!file->merges)
        return no_memory(file, error);
    json_array_foreach(merges, i, value) {
        tl_tokenizer_merge *merge = &file->merges[file->n_merges++];
        const json_t *left = json_array_get(value, 0), *right = json_array_get(value, 1);
        merge->place = i + 1;
        if (json_is_string(value) && split_merge(json_string_value(value), json_string_length(value), merge))
            continue;
        if (json_is_array(value) && json_array_size(value) == 2 && json_is_string(left) && json_is_string(right) &&
            json_string_length(left) > 0 && json_string_length(right) > 0) {
            merge->left = json_string_value(left);
            merge->left_length = json_string_length(left);
            merge->right = json_string_value(right);
            merge->right_length = json_string_length(right);
            continue;
        }
        (void)snprintf(where, sizeof where, "model.merges[%zu]", i);
        return tl_tokenizer_wrong(file, where, value, "\"left right\" or [\"left\", \"right\"] is wanted", error);
    }
    return TL_OK;
}

static tl_status read_added(tl_tokenizer_file *file, const json_t *added, tl_error *error) {
    size_t i;
    json_t *value;
    if (!added || json_is_null(added))
        return TL_OK;
    if (!json_is_array(added))
        return tl_tokenizer_wrong(file, "added_tokens", added, "a list is wanted", error);
    file->added = calloc(json_array_size(added) + 1, sizeof *file->added);
    if (!file->added)
        return no_memory(file, error);
    json_array_foreach(added, i, value) {
        tl_tokenizer_added *token = &file->added[file->n_added++];
        const json_t *content = json_object_get(value, "content"), *id = json_object_get(value, "id");
        char where[64];
        bool single = false;
        (void)snprintf(where, sizeof where, "added_tokens[%zu]", i);
        if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id) ||
            json_integer_value(id) < 0)
            return tl_tokenizer_wrong(file, where, value, "an object with \"content\" and \"id\" from 0 is wanted",
                                      error);
        token->text = json_string_value(content);
        token->length = json_string_length(content);
        token->id = json_integer_value(id);
        if (tl_tokenizer_flag(file, value, where, "special", false, &token->special, error) != TL_OK ||
            tl_tokenizer_flag(file, value, where, "lstrip", false, &token->lstrip, error) != TL_OK ||
            tl_tokenizer_flag(file, value, where, "rstrip", false, &token->rstrip, error) != TL_OK ||
            tl_tokenizer_flag(file, value, where, "normalized", false, &token->normalized, error) != TL_OK ||
            tl_tokenizer_flag(file, value, where, "single_word", false, &single, error) != TL_OK)
            return TL_ERR_FORMAT;
        if (single)
            return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s: \"single_word\" true is not done here", file->name,
                           where);
    }
    return TL_OK;
}

static tl_status read_model(tl_tokenizer_file *file, const json_t *model, tl_error *error) {
    const json_t *type = json_object_get(model, "type"), *unk = json_object_get(model, "unk_token"),
                 *dropout = json_object_get(model, "dropout");
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    char quoted[96];
    if (!json_is_object(model))
        return tl_tokenizer_wrong(file, "model", model, "an object is wanted", error);
    /* Older files leave the type out; merges tell. */
    if (json_is_string(type) ? strcmp(json_string_value(type), "BPE") != 0 : !json_object_get(model, "merges")) {
        const char *name = json_is_string(type) ? json_string_value(type) : "none";
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: model.type is %s; BPE is what is done here", file->name,
                       tl_quotable(name, strlen(name), quoted, sizeof quoted));
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_object_get(model, empty[i]);
        if (text && !json_is_null(text) && !(json_is_string(text) && json_string_length(text) == 0))
            return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: model.%s is not done here; null or \"\" is", file->name,
                           empty[i]);
    }
    if (dropout && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: model.dropout is not done here; null or 0 is", file->name);
    if (json_is_string(unk)) {
        file->unk = json_string_value(unk);
        file->unk_length = json_string_length(unk);
    }
    if (tl_tokenizer_flag(file, model, "model", "ignore_merges", false, &file->ignore_merges, error) != TL_OK ||
        tl_tokenizer_flag(file, model, "model", "byte_fallback", false, &file->byte_fallback, error) != TL_OK ||
        tl_tokenizer_flag(file, model, "model", "fuse_unk", false, &file->fuse_unk, error) != TL_OK)
        return TL_ERR_FORMAT;
    if (file->ignore_merges && file->blocks && !file->split_blocks)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: model.ignore_merges where nothing splits a text into words is not done here", file->name);
    tl_status status = read_vocab(file, json_object_get(model, "vocab"), "model.vocab", error);
    return status == TL_OK ? read_json_merges(file, json_object_get(model, "merges"), error) : status;
}

static void set_name(tl_tokenizer_file *file, const char *name) {
    (void)tl_quotable(name, strlen(name), file->name, sizeof file->name);
}

tl_status tl_tokenizer_file_parse(const char *text, size_t length, const char *name, tl_tokenizer_file *file,
                                  tl_error *error) {
    memset(file, 0, sizeof *file);
    file->json = true;
    set_name(file, name);
    tl_status status = parse_object(file, text, length, &file->owners[0], error);
    const json_t *root = file->owners[0];
    if (status == TL_OK && !json_object_get(root, "model"))
        status = tl_fail(error, TL_ERR_FORMAT,
                         "%s: has no \"model\", so it is no tokenizer.json; a table of tokens and ids is called "
                         "vocab.json and has merges.txt beside it",
                         file->name);
    if (status == TL_OK)
        status = tl_tokenizer_parts_read(file, root, error);
    if (status == TL_OK)
        status = read_model(file, json_object_get(root, "model"), error);
    return status == TL_OK ? read_added(file, json_object_get(root, "added_tokens"), error) : status;
}

/* ---- vocab.json and merges.txt ---- */

static tl_status read_text_merges(tl_tokenizer_file *file, size_t length, const char *name, tl_error *error) {
    const char *text = file->text, *end = text + length;
    size_t lines = 1, line = 0;
    char quoted[96];
    for (const char *c = text; c < end; c++)
        lines += *c == '\n';
    file->merges = calloc(lines, sizeof *file->merges);
    if (!file->merges)
        return no_memory(file, error);
    while (text < end) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((next ? next : end) - text);
        line++;
        if (n > 0 && text[n - 1] == '\r')
            n--;
        /* Only the first line can be about the version: "# #" is a merge like others. */
        if (n > 0 && !(line == 1 && n >= 8 && memcmp(text, "#version", 8) == 0)) {
            tl_tokenizer_merge *merge = &file->merges[file->n_merges++];
            merge->place = line;
            if (!split_merge(text, n, merge))
                return tl_fail(error, TL_ERR_FORMAT,
                               "%s:%zu: \"%s\" is no merge; two tokens and one blank between them are", name, line,
                               tl_quotable(text, n, quoted, sizeof quoted));
        }
        text = next ? next + 1 : end;
    }
    return TL_OK;
}

tl_status tl_tokenizer_file_parse_pair(const char *vocab, size_t vocab_length, const char *merges, size_t merges_length,
                                       const char *name, tl_tokenizer_file *file, tl_error *error) {
    memset(file, 0, sizeof *file);
    set_name(file, name);
    tl_status status = parse_object(file, vocab, vocab_length, &file->owners[0], error);
    if (status == TL_OK && json_object_get(file->owners[0], "model") &&
        json_is_object(json_object_get(file->owners[0], "model")))
        status = tl_fail(error, TL_ERR_FORMAT, "%s: is a tokenizer.json, which holds its own merges; name it so",
                         file->name);
    if (status == TL_OK)
        status = read_vocab(file, file->owners[0], "the vocabulary", error);
    if (status != TL_OK)
        return status;
    file->text = malloc(merges_length + 1);
    if (!file->text)
        return no_memory(file, error);
    memcpy(file->text, merges, merges_length);
    file->text[merges_length] = '\0';
    file->byte_level = true;
    tl_tokenizer_gpt2_stage(&file->stages[file->n_stages++], "GPT-2's pattern");
    return read_text_merges(file, merges_length, file->name, error);
}

/* ---- finding them ---- */

static bool is_file(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && !S_ISDIR(about.st_mode);
}

static tl_status read_json(const char *path, tl_tokenizer_file *file, tl_error *error) {
    char *text = NULL;
    size_t length = 0;
    tl_status status = tl_config_load_kind(path, TL_TOKENIZER_MOST_BYTES, WANTED, &text, &length, error);
    if (status != TL_OK)
        return status;
    status = tl_tokenizer_file_parse(text, length, path, file, error);
    free(text);
    return status;
}

/* A merges.txt that is something else altogether. A merge may well start with "[", "<" or "---". */
static const char *no_merges(const char *text, size_t length) {
    const char *what = tl_config_sniff(text, length);
    if (!what || strcmp(what, "XML or HTML") == 0 || strcmp(what, "a JSON list") == 0 ||
        strcmp(what, "YAML or a model card") == 0)
        return NULL;
    return what;
}

static tl_status read_pair(const char *vocab_path, const char *merges_path, tl_tokenizer_file *file, tl_error *error) {
    char *vocab = NULL, *merges = NULL, quoted[256];
    size_t vocab_length = 0, merges_length = 0;
    tl_status status = tl_config_load_kind(vocab_path, TL_TOKENIZER_MOST_BYTES, WANTED, &vocab, &vocab_length, error);
    if (status == TL_OK)
        status = tl_config_load_kind(merges_path, TL_TOKENIZER_MOST_BYTES, WANTED, &merges, &merges_length, error);
    const char *what = status == TL_OK ? no_merges(merges, merges_length) : NULL;
    if (what)
        status = tl_fail(error, TL_ERR_FORMAT, "%s: is %s; a line of merges.txt is two tokens and a blank between",
                         tl_quotable(merges_path, strlen(merges_path), quoted, sizeof quoted), what);
    if (status == TL_OK) {
        status = tl_tokenizer_file_parse_pair(vocab, vocab_length, merges, merges_length, vocab_path, file, error);
        if (status == TL_OK)
            set_name(file, merges_path);
    }
    free(vocab);
    free(merges);
    return status;
}

tl_status tl_tokenizer_file_read(const char *path, tl_tokenizer_file *file, tl_error *error) {
    static const char VOCAB[] = "vocab.json", MERGES[] = "merges.txt";
    static const char *const prefixes[] = {"", "gpt2_"};
    char vocab[4096], merges[4096], quoted[256];
    struct stat about;
    memset(file, 0, sizeof *file);
    tl_quotable(path, strlen(path), quoted, sizeof quoted);
    if (strlen(path) > sizeof vocab - 32)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: a path of more than %zu bytes", quoted, sizeof vocab - 32);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        (void)snprintf(vocab, sizeof vocab, "%s/tokenizer.json", path);
        if (is_file(vocab))
            return read_json(vocab, file, error);
        for (size_t i = 0; i < 2; i++) {
            (void)snprintf(vocab, sizeof vocab, "%s/%s%s", path, prefixes[i], VOCAB);
            (void)snprintf(merges, sizeof merges, "%s/%s%s", path, prefixes[i], MERGES);
            if (is_file(vocab) || is_file(merges))
                return read_pair(vocab, merges, file, error);
        }
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s: holds no tokenizer.json and no vocab.json; %s, or \"bytes\"",
                       quoted, WANTED);
    }
    const bool is_vocab = tl_ends_with(path, VOCAB), is_merges = tl_ends_with(path, MERGES);
    if (!is_vocab && !is_merges)
        return read_json(path, file, error);
    const int stem = (int)(strlen(path) - (is_vocab ? sizeof VOCAB : sizeof MERGES) + 1);
    (void)snprintf(vocab, sizeof vocab, "%.*s%s", stem, path, VOCAB);
    (void)snprintf(merges, sizeof merges, "%.*s%s", stem, path, MERGES);
    return read_pair(vocab, merges, file, error);
}
