#include "config/reader.h"

#include "base/nearest.h"
#include "config/text.h"

#include <stdio.h>
#include <string.h>

static bool locate(const tl_config_reader *r, const char *key, tl_config_place *place) {
    const char *path[TL_CONFIG_DEPTH + 1];
    for (int i = 0; i < r->depth; i++)
        path[i] = r->path[i];
    path[r->depth] = key;
    return tl_config_locate(r->soft, r->length, path, r->depth + 1, place);
}

void tl_config_fail(tl_config_reader *r, tl_status status, const char *key, const char *format, ...) {
    char text[768], where[64] = "", name[256], quoted[96];
    tl_config_place place;
    va_list args;
    if (r->status != TL_OK)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tl_quotable(r->name, strlen(r->name), name, sizeof name);
    if (key == NULL) {
        r->status = tl_fail(r->error, status, "%s: %s", name, text);
        return;
    }
    if (locate(r, key, &place))
        (void)snprintf(where, sizeof where, ":%zu:%zu", place.line, place.column);
    r->status = tl_fail(r->error, status, "%s%s: \"%s%s%s\" %s", name, where, r->depth > 0 ? r->path[r->depth - 1] : "",
                        r->depth > 0 ? "." : "", tl_quotable(key, strlen(key), quoted, sizeof quoted), text);
}

const char *tl_config_raw(const tl_config_reader *r, const char *key, char *out, size_t size) {
    tl_config_place place;
    const json_t *value = json_object_get(r->object, key);
    if (json_is_object(value))
        (void)snprintf(out, size, "an object");
    else if (json_is_array(value))
        (void)snprintf(out, size, "a list");
    else if (locate(r, key, &place))
        (void)tl_quotable(r->text + place.start, place.length, out, size);
    else
        (void)snprintf(out, size, "there");
    return out;
}

bool tl_config_was_asked(const tl_config_reader *r, const char *key) {
    for (int i = 0; i < r->n_asked; i++)
        if (strcmp(r->asked[i], key) == 0)
            return true;
    return false;
}

bool tl_config_has(tl_config_reader *r, const char *key) {
    const json_t *value = json_object_get(r->object, key);
    if (r->depth == r->base && r->n_asked < TL_CONFIG_ASKED && !tl_config_was_asked(r, key))
        r->asked[r->n_asked++] = key;
    return value != NULL && !json_is_null(value);
}

bool tl_config_is_null(const tl_config_reader *r, const char *key) {
    return json_is_null(json_object_get(r->object, key));
}

int64_t tl_config_size(tl_config_reader *r, const char *key) {
    const json_t *value = json_object_get(r->object, key);
    char raw[64];
    if (r->status != TL_OK)
        return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 1)
        return json_integer_value(value);
    tl_config_raw(r, key, raw, sizeof raw);
    if (json_is_integer(value))
        tl_config_fail(r, TL_ERR_ARGUMENT, key, "is %s; it must be at least 1", raw);
    else if (json_is_real(value))
        tl_config_fail(r, TL_ERR_ARGUMENT, key, "is %s; it must be a whole number written without a point or exponent",
                       raw);
    else if (json_is_string(value) && raw[0] != '"' && ((raw[0] >= '0' && raw[0] <= '9') || raw[0] == '-'))
        tl_config_fail(r, TL_ERR_OVERFLOW, key, "is %s, beyond 64 bits", raw);
    else
        tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be a whole number, at least 1",
                       value == NULL ? "missing" : raw);
    return 0;
}

int64_t tl_config_count(tl_config_reader *r, const char *key) {
    const json_t *value = json_object_get(r->object, key);
    char raw[64];
    if (r->status == TL_OK && json_is_integer(value) && json_integer_value(value) < 0)
        tl_config_fail(r, TL_ERR_ARGUMENT, key, "is %s; it must be at least 0", tl_config_raw(r, key, raw, sizeof raw));
    return json_is_integer(value) && json_integer_value(value) <= 0 ? 0 : tl_config_size(r, key);
}

double tl_config_real(tl_config_reader *r, const char *key, double low, double high) {
    const json_t *value = json_object_get(r->object, key);
    double number = json_number_value(value);
    char raw[64];
    if (r->status != TL_OK)
        return 0;
    if (json_is_number(value) && number >= low && number <= high)
        return number;
    tl_config_raw(r, key, raw, sizeof raw);
    if (json_is_number(value))
        tl_config_fail(r, TL_ERR_ARGUMENT, key, "is %s; it must be from %g to %g", raw, low, high);
    else
        tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be a finite number", value == NULL ? "missing" : raw);
    return 0;
}

bool tl_config_flag(tl_config_reader *r, const char *key) {
    const json_t *value = json_object_get(r->object, key);
    char raw[64];
    if (r->status != TL_OK || json_is_boolean(value))
        return r->status == TL_OK && json_is_true(value);
    tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be true or false", tl_config_raw(r, key, raw, sizeof raw));
    return false;
}

const char *tl_config_string(tl_config_reader *r, const char *key) {
    const json_t *value = json_object_get(r->object, key);
    char raw[64];
    if (r->status != TL_OK)
        return NULL;
    if (json_is_string(value))
        return json_string_value(value);
    tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be a string", tl_config_raw(r, key, raw, sizeof raw));
    return NULL;
}

bool tl_config_enter(tl_config_reader *r, const char *key, const json_t **saved) {
    const json_t *value = json_object_get(r->object, key);
    char raw[64];
    if (r->status != TL_OK)
        return false;
    if (!json_is_object(value) || r->depth == TL_CONFIG_DEPTH) {
        tl_config_fail(r, TL_ERR_FORMAT, key, "is %s; it must be an object", tl_config_raw(r, key, raw, sizeof raw));
        return false;
    }
    *saved = r->object;
    r->path[r->depth++] = key;
    r->object = value;
    return true;
}

void tl_config_leave(tl_config_reader *r, const json_t *saved) {
    r->depth--;
    r->object = saved;
}

/* A note that was cut must not end inside a character. */
static void keep_whole(char *text, size_t size, int wanted) {
    size_t end = strlen(text);
    if (wanted < 0 || (size_t)wanted < size)
        return;
    while (end > 0 && ((unsigned char)text[end - 1] & 0x80) != 0)
        end--;
    text[end] = '\0';
}

TL_PRINTF(3, 0) static void note(char list[TL_MODEL_NOTES][160], int *count, const char *format, va_list args) {
    if (*count == TL_MODEL_NOTES) {
        (void)snprintf(list[TL_MODEL_NOTES - 1], 160, "and more than the %d noted here", TL_MODEL_NOTES - 1);
        return;
    }
    keep_whole(list[*count], 160, vsnprintf(list[*count], 160, format, args));
    ++*count;
}

void tl_config_assume(tl_config_reader *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (r->status == TL_OK)
        note(r->model->assumed, &r->model->n_assumed, format, args);
    va_end(args);
}

void tl_config_ignore(tl_config_reader *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (r->status == TL_OK)
        note(r->model->ignored, &r->model->n_ignored, format, args);
    va_end(args);
}

void tl_config_not_computed(tl_config_reader *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (r->status == TL_OK && r->model->not_computed[0] == '\0')
        (void)vsnprintf(r->model->not_computed, sizeof r->model->not_computed, format, args);
    va_end(args);
}

void tl_config_source(const tl_config_reader *r, tl_source *source, const char *key) {
    (void)snprintf(source->text, sizeof source->text, "%s%s%s", r->depth > 0 ? r->path[r->depth - 1] : "",
                   r->depth > 0 ? "." : "", key);
}
