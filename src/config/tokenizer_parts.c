/* config/tokenizer_parts.c: tokenizer.json beside its vocabulary: what happens to a text before and after the merging. */
#include "config/tokenizer_parts.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

static const char BLOCK[] = "\xE2\x96\x81"; /* U+2581, how SentencePiece writes a blank */

static const char *kind_of(const json_t *value) {
    return !value || json_is_null(value) ? "missing"
           : json_is_string(value)       ? "a string"
           : json_is_number(value)       ? "a number"
           : json_is_boolean(value)      ? "true or false"
           : json_is_array(value)        ? "a list"
                                         : "an object";
}

tl_status tl_tokenizer_wrong(const tl_tokenizer_file *file, const char *where, const json_t *found, const char *wanted,
                             tl_error *error) {
    char text[96], quoted[96];
    if (json_is_string(found))
        (void)snprintf(text, sizeof text, "\"%s\"",
                       tl_quotable(json_string_value(found), strlen(json_string_value(found)), quoted, 64));
    else if (json_is_integer(found))
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(found));
    else
        (void)snprintf(text, sizeof text, "%s", kind_of(found));
    return tl_fail(error, TL_ERR_FORMAT, "%s: %s is %s; %s", file->name, where, text, wanted);
}

tl_status tl_tokenizer_flag(const tl_tokenizer_file *file, const json_t *object, const char *where, const char *key,
                            bool otherwise, bool *value, tl_error *error) {
    const json_t *found = json_object_get(object, key);
    char place[128];
    *value = otherwise;
    if (!found || json_is_null(found))
        return TL_OK;
    if (!json_is_boolean(found)) {
        (void)snprintf(place, sizeof place, "%s.%s", where, key);
        return tl_tokenizer_wrong(file, place, found, "true or false is wanted", error);
    }
    *value = json_is_true(found);
    return TL_OK;
}

/* The part's "type", "" where it has none. */
static const char *type_of(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "";
}

static bool is_type(const json_t *part, const char *type) { return strcmp(type_of(part), type) == 0; }

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && json_string_length(value) == strlen(text) &&
           memcmp(json_string_value(value), text, strlen(text)) == 0;
}

static tl_status not_done(const tl_tokenizer_file *file, const char *where, const json_t *part, const char *done,
                          tl_error *error) {
    char quoted[64];
    if (!json_is_object(part))
        return tl_tokenizer_wrong(file, where, part, done, error);
    return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s of type \"%s\" is not done here; %s", file->name, where,
                   tl_quotable(type_of(part), strlen(type_of(part)), quoted, sizeof quoted), done);
}

typedef tl_status part_reader(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error);

/* A part by itself, or the list of parts that a Sequence keeps under `key`. */
static tl_status read_parts(tl_tokenizer_file *file, const json_t *part, const char *where, const char *key,
                            part_reader *read, tl_error *error) {
    if (!part || json_is_null(part))
        return TL_OK;
    if (!is_type(part, "Sequence"))
        return read(file, part, where, error);
    const json_t *list = json_object_get(part, key);
    size_t i;
    json_t *item;
    char place[64];
    tl_status status = TL_OK;
    (void)snprintf(place, sizeof place, "%s.%s", where, key);
    if (!json_is_array(list))
        return tl_tokenizer_wrong(file, place, list, "a list is wanted", error);
    json_array_foreach(list, i, item) {
        (void)snprintf(place, sizeof place, "%s.%s[%zu]", where, key, i);
        status = read(file, item, place, error);
        if (status != TL_OK)
            break;
    }
    return status;
}

/* ---- normalizer ---- */

static bool is_replace(const json_t *part, const char *from, const char *to) {
    return is_type(part, "Replace") && is_text(json_object_get(json_object_get(part, "pattern"), "String"), from) &&
           is_text(json_object_get(part, "content"), to);
}

static tl_status read_normalizer(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    if (is_type(part, "NFC")) {
        file->nfc = true;
        return TL_OK;
    }
    if (is_type(part, "Prepend") && is_text(json_object_get(part, "prepend"), BLOCK) && !file->blocks) {
        file->prepend = TL_PREPEND_EACH;
        file->prepend_always = true;
        return TL_OK;
    }
    if (is_replace(part, " ", BLOCK)) {
        file->blocks = file->normalized_blocks = true;
        return TL_OK;
    }
    return not_done(file, where, part, "NFC, and SentencePiece's Prepend and Replace of blanks by U+2581, are", error);
}

/* ---- pre_tokenizer ---- */

static tl_tokenizer_stage *new_stage(tl_tokenizer_file *file, const char *where, tl_error *error) {
    if (file->n_stages == TL_TOKENIZER_STAGES) {
        tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s: more than %d steps of splitting", file->name, where,
                TL_TOKENIZER_STAGES);
        return NULL;
    }
    tl_tokenizer_stage *stage = &file->stages[file->n_stages++];
    memset(stage, 0, sizeof *stage);
    (void)snprintf(stage->where, sizeof stage->where, "%s", where);
    stage->keep_matches = stage->keep_gaps = true;
    return stage;
}

static tl_status read_split(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    const json_t *pattern = json_object_get(part, "pattern"), *behavior = json_object_get(part, "behavior");
    const json_t *text = json_object_get(pattern, "Regex");
    const bool literal = !text;
    char quoted[64];
    bool invert;
    if (literal)
        text = json_object_get(pattern, "String");
    if (!json_is_string(text) || json_string_length(text) == 0)
        return tl_tokenizer_wrong(file, where, text, "a pattern, {\"Regex\": …} or {\"String\": …}, is wanted", error);
    if (tl_tokenizer_flag(file, part, where, "invert", false, &invert, error) != TL_OK)
        return TL_ERR_FORMAT;
    /* Blanks have become U+2581 by now. */
    if (literal && file->blocks && is_text(text, " "))
        return TL_OK;
    tl_tokenizer_stage *stage = new_stage(file, where, error);
    if (!stage)
        return TL_ERR_UNSUPPORTED;
    stage->pattern = json_string_value(text);
    stage->length = json_string_length(text);
    stage->literal = literal;
    if (is_text(behavior, "Removed")) {
        stage->keep_matches = invert;
        stage->keep_gaps = !invert;
    } else if (!is_text(behavior, "Isolated")) {
        const char *name = json_is_string(behavior) ? json_string_value(behavior) : "none";
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s: \"behavior\" %s is not done here; Isolated and Removed are",
                       file->name, where, tl_quotable(name, strlen(name), quoted, sizeof quoted));
    }
    return TL_OK;
}

static tl_status read_byte_level(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    bool prefix_space, use_regex;
    if (tl_tokenizer_flag(file, part, where, "add_prefix_space", true, &prefix_space, error) != TL_OK ||
        tl_tokenizer_flag(file, part, where, "use_regex", true, &use_regex, error) != TL_OK)
        return TL_ERR_FORMAT;
    if (prefix_space && file->n_stages > 0)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: %s: \"add_prefix_space\" behind another split is not done here; before all splits it is",
                       file->name, where);
    file->byte_level = true;
    file->prefix_space = prefix_space;
    if (use_regex) {
        tl_tokenizer_stage *stage = new_stage(file, where, error);
        if (!stage)
            return TL_ERR_UNSUPPORTED;
        tl_tokenizer_gpt2_stage(stage, where);
    }
    return TL_OK;
}

static tl_status read_metaspace(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    bool prefix;
    if (!is_text(json_object_get(part, "replacement"), BLOCK))
        return tl_tokenizer_wrong(file, where, json_object_get(part, "replacement"), "the replacement U+2581 is wanted",
                                  error);
    if (file->n_stages > 0 || file->prepend != TL_PREPEND_NEVER)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s: Metaspace behind another step is not done here", file->name,
                       where);
    if (tl_tokenizer_flag(file, part, where, "add_prefix_space", true, &prefix, error) != TL_OK ||
        tl_tokenizer_flag(file, part, where, "split", true, &file->split_blocks, error) != TL_OK)
        return TL_ERR_FORMAT;
    file->blocks = true;
    if (is_text(scheme, "first"))
        file->prepend = TL_PREPEND_FIRST;
    else if (is_text(scheme, "never"))
        file->prepend = TL_PREPEND_NEVER;
    else if (is_text(scheme, "always") || !scheme)
        file->prepend = scheme || prefix ? TL_PREPEND_EACH : TL_PREPEND_NEVER;
    else
        return tl_tokenizer_wrong(file, where, scheme, "a prepend_scheme of first, always or never is wanted", error);
    return TL_OK;
}

static tl_status read_pre_tokenizer(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    if (file->byte_level || file->split_blocks)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s behind ByteLevel or Metaspace is not done here", file->name,
                       where);
    if (is_type(part, "ByteLevel"))
        return read_byte_level(file, part, where, error);
    if (is_type(part, "Split"))
        return read_split(file, part, where, error);
    if (is_type(part, "Metaspace"))
        return read_metaspace(file, part, where, error);
    if (is_type(part, "Digits")) {
        bool each;
        tl_tokenizer_stage *stage = new_stage(file, where, error);
        if (!stage)
            return TL_ERR_UNSUPPORTED;
        if (tl_tokenizer_flag(file, part, where, "individual_digits", false, &each, error) != TL_OK)
            return TL_ERR_FORMAT;
        stage->pattern = each ? "\\p{N}" : "\\p{N}+";
        stage->length = strlen(stage->pattern);
        return TL_OK;
    }
    return not_done(file, where, part, "ByteLevel, Split, Digits, Metaspace and a Sequence of them are", error);
}

/* ---- post_processor ---- */

static tl_status read_template(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    const json_t *single = json_object_get(part, "single");
    size_t i;
    json_t *item;
    bool behind = false;
    if (!json_is_array(single))
        return tl_tokenizer_wrong(file, where, single, "a list \"single\" is wanted", error);
    json_array_foreach(single, i, item) {
        const json_t *id = json_object_get(json_object_get(item, "SpecialToken"), "id");
        if (json_object_get(item, "Sequence") && !behind) {
            behind = true;
            continue;
        }
        int *count = behind ? &file->n_suffix : &file->n_prefix;
        if (!json_is_string(id) || json_string_length(id) >= sizeof file->prefix[0] || *count == TL_TOKENIZER_ENDS)
            return tl_tokenizer_wrong(file, where, id, "up to 8 special tokens around one sequence are wanted", error);
        (void)snprintf((behind ? file->suffix : file->prefix)[(*count)++], sizeof file->prefix[0], "%s",
                       json_string_value(id));
    }
    return TL_OK;
}

static tl_status read_post_processor(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    if (is_type(part, "ByteLevel")) /* offsets alone */
        return TL_OK;
    if (is_type(part, "TemplateProcessing"))
        return read_template(file, part, where, error);
    return not_done(file, where, part, "ByteLevel, TemplateProcessing and a Sequence of them are", error);
}

/* ---- decoder ---- */

static tl_status read_decoder(tl_tokenizer_file *file, const json_t *part, const char *where, tl_error *error) {
    const json_t *start = json_object_get(part, "start"), *stop = json_object_get(part, "stop");
    if (file->byte_level && is_type(part, "ByteLevel"))
        return TL_OK;
    if (file->blocks && (is_replace(part, BLOCK, " ") || is_type(part, "ByteFallback") || is_type(part, "Fuse")))
        return TL_OK;
    if (file->blocks && is_type(part, "Metaspace")) {
        file->strip_first = file->prepend != TL_PREPEND_NEVER;
        return TL_OK;
    }
    if (file->blocks && is_type(part, "Strip") && is_text(json_object_get(part, "content"), " ") &&
        json_is_integer(start) && json_integer_value(start) == 1 &&
        (!stop || (json_is_integer(stop) && json_integer_value(stop) == 0))) {
        file->strip_first = true;
        return TL_OK;
    }
    return not_done(file, where, part,
                    file->byte_level
                        ? "with ByteLevel's pre_tokenizer the decoder ByteLevel is"
                        : "Replace of U+2581 by a blank, ByteFallback, Fuse, Strip of one blank, Metaspace are",
                    error);
}

/* A Sequence of Sequences is read no deeper than this: each part reader refuses "Sequence" by name. */
tl_status tl_tokenizer_parts_read(tl_tokenizer_file *file, const json_t *root, tl_error *error) {
    static const char *const unused[] = {"truncation", "padding"};
    const json_t *decoder = json_object_get(root, "decoder");
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(root, unused[i]);
        if (value && !json_is_null(value))
            return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: \"%s\" is not done here; null is", file->name, unused[i]);
    }
    tl_status status =
        read_parts(file, json_object_get(root, "normalizer"), "normalizer", "normalizers", read_normalizer, error);
    if (status == TL_OK && file->prepend != TL_PREPEND_NEVER && !file->blocks)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: normalizer Prepend without Replace of blanks by U+2581 is not done here", file->name);
    if (status == TL_OK)
        status = read_parts(file, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                            read_pre_tokenizer, error);
    if (status == TL_OK && file->byte_level == file->blocks)
        return tl_fail(
            error, TL_ERR_UNSUPPORTED,
            "%s: %s; byte-level BPE (pre_tokenizer ByteLevel) and SentencePiece's (blanks as U+2581) are done "
            "here",
            file->name, file->blocks ? "mixes ByteLevel and U+2581" : "has neither ByteLevel nor U+2581 for blanks");
    if (status == TL_OK && file->blocks && file->n_stages > 0)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: splitting by a pattern with U+2581 for blanks is not done here",
                       file->name);
    if (status == TL_OK)
        status = read_parts(file, json_object_get(root, "post_processor"), "post_processor", "processors",
                            read_post_processor, error);
    if (status == TL_OK && (!decoder || json_is_null(decoder)))
        return tl_tokenizer_wrong(file, "decoder", decoder, "without one, tokens would be joined by blanks", error);
    return status == TL_OK ? read_parts(file, decoder, "decoder", "decoders", read_decoder, error) : status;
}
