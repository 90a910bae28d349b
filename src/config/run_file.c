/* config/run_file.c: JSON objects that tally itself wrote, or a task's file, looked up by path. */
#include "tally/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/nearest.h"
#include "config/text.h"

enum { LONGEST_KEY = 128 };

struct tl_run_file {
    json_t *root;
    char *text;     /* as it was: the digits that the JSON reader's numbers cannot hold */
    char name[512]; /* for messages */
};

/* Counts of FLOPs have every digit and may have more than 64 bits hold, which the JSON reader refuses: 39812345678901234567 becomes
 * 3.981234567890123e19, in place and of the same length, so that places in messages stay true. */
static void widen(char *text, size_t length) {
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        if (quoted || i >= length || text[i] < '0' || text[i] > '9')
            continue;
        size_t n = 0;
        while (i + n < length && text[i + n] >= '0' && text[i + n] <= '9')
            n++;
        bool whole = i + n >= length || !strchr(".eE", text[i + n]);
        bool starts = i == 0 || !strchr(".eE+", text[i - 1]);
        if (whole && starts && n >= 19 && n < 100) {
            char exponent[8];
            int width = snprintf(exponent, sizeof exponent, "e%zu", n - 1);
            memmove(text + i + 2, text + i + 1, n - 2 - (size_t)width);
            text[i + 1] = '.';
            memcpy(text + i + n - width, exponent, (size_t)width);
        }
        i += n - 1;
        while (i + 1 < length && text[i + 1] && strchr(".eE+-0123456789", text[i + 1]))
            i++;
    }
}

/* What a config.json may say of a length it does not mean is no value of an account. */
static tl_status no_number(const tl_run_file *file, size_t at, tl_error *error) {
    size_t line = 1, column = 1, n = strcspn(file->text + at, ",]} \t\r\n");
    char quoted[64];
    for (size_t i = 0; i < at; i++) {
        line += file->text[i] == '\n';
        column = file->text[i] == '\n' ? 1 : column + 1;
    }
    return tl_fail(error, TL_ERR_FORMAT, "%s:%zu:%zu: %s is beyond what a number here can be", file->name, line, column,
                   tl_quotable(file->text + at, n, quoted, sizeof quoted));
}

static tl_status parse(tl_run_file *file, char *text, size_t length, tl_error *error) {
    json_error_t problem;
    char quoted[256];
    const char *what = tl_config_sniff(text, length);
    if (what && (length == 0 || text[strspn(text, " \t\r\n")] != '{'))
        return tl_fail(error, TL_ERR_FORMAT, "%s: is %s; a JSON object is wanted", file->name, what);
    file->text = malloc(2 * length + 2);
    if (!file->text)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to read %s", file->name);
    char *widened = file->text + length + 1;
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) /* the mark that some editors begin a file with */
        memset(text, ' ', 3);
    memcpy(file->text, text, length);
    file->text[length] = '\0';
    widen(text, length);
    memcpy(widened, text, length);
    if (tl_config_soften(text, length) > TL_CONFIG_MOST_VALUES)
        return tl_fail(error, TL_ERR_FORMAT, "%s: holds more than %d values", file->name, TL_CONFIG_MOST_VALUES);
    for (size_t i = 0; i < length; i++)
        if (text[i] != widened[i])
            return no_number(file, i, error);
    file->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (!file->root)
        return tl_fail(error, TL_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s", file->name, problem.line, problem.column,
                       tl_quotable(problem.text, strlen(problem.text), quoted, sizeof quoted));
    if (!json_is_object(file->root))
        return tl_fail(error, TL_ERR_FORMAT, "%s: is no JSON object", file->name);
    return TL_OK;
}

tl_run_file *tl_run_file_parse(char *text, size_t length, const char *name, tl_error *error) {
    tl_run_file *file = calloc(1, sizeof *file);
    if (!file) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to read %s", name);
        return NULL;
    }
    tl_quotable(name, strlen(name), file->name, sizeof file->name);
    if (parse(file, text, length, error) == TL_OK)
        return file;
    tl_run_file_free(file);
    return NULL;
}

tl_run_file *tl_run_file_read(const char *path, tl_error *error) {
    char *text = NULL;
    size_t length = 0;
    if (tl_config_load_kind(path, TL_CONFIG_MOST_BYTES, "a file with a JSON object is wanted", &text, &length, error) !=
        TL_OK)
        return NULL;
    tl_run_file *file = tl_run_file_parse(text, length, path, error);
    free(text);
    return file;
}

void tl_run_file_free(tl_run_file *file) {
    if (!file)
        return;
    json_decref(file->root);
    free(file->text);
    free(file);
}

static const json_t *find(const tl_run_file *file, const char *path) {
    const json_t *at = file->root;
    while (*path && at) {
        char key[LONGEST_KEY];
        size_t length = strcspn(path, ".");
        if (length >= sizeof key)
            return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        if (json_is_array(at)) {
            char *end = NULL;
            unsigned long long index = strtoull(key, &end, 10);
            at = *key >= '0' && *key <= '9' && *end == '\0' ? json_array_get(at, (size_t)index) : NULL;
        } else {
            at = json_object_get(at, key);
        }
        path += length + (path[length] == '.');
    }
    return at;
}

bool tl_run_file_has(const tl_run_file *file, const char *path) {
    const json_t *at = find(file, path);
    return at && !json_is_null(at);
}

int64_t tl_run_file_count(const tl_run_file *file, const char *path) {
    const json_t *at = find(file, path);
    return json_is_array(at) ? (int64_t)json_array_size(at) : json_is_object(at) ? (int64_t)json_object_size(at) : 0;
}

const char *tl_run_file_key(const tl_run_file *file, const char *path, int64_t index) {
    json_t *at = (json_t *)(uintptr_t)find(file, path); /* iterating does not change it */
    const char *key;
    json_t *value;
    json_object_foreach(at, key, value) {
        if (index-- == 0)
            return key;
    }
    return NULL;
}

tl_run_value tl_run_file_kind(const tl_run_file *file, const char *path) {
    const json_t *at = find(file, path);
    return json_is_string(at)    ? TL_RUN_TEXT
           : json_is_number(at)  ? TL_RUN_NUMBER
           : json_is_boolean(at) ? TL_RUN_FLAG
           : json_is_array(at)   ? TL_RUN_LIST
           : json_is_object(at)  ? TL_RUN_OBJECT
                                 : TL_RUN_MISSING;
}

double tl_run_file_number(const tl_run_file *file, const char *path) {
    const json_t *at = find(file, path);
    if (json_is_boolean(at))
        return json_is_true(at) ? 1 : 0;
    return json_is_number(at) ? json_number_value(at) : (double)NAN;
}

/* ---- every digit: the text itself, which the JSON reader found to be valid ---- */

static const char *past_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        at += *at == '\\' && at[1];
    return at + (*at == '"');
}

static const char *past_value(const char *at) {
    int64_t depth = 0;
    if (*at != '{' && *at != '[')
        return *at == '"' ? past_string(at) : at + strcspn(at, ",]} \t\r\n");
    while (*at) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at = *at == '"' ? past_string(at) : at + 1;
        if (depth == 0)
            break;
    }
    return at;
}

static const char *past_blanks(const char *at) { return at + strspn(at, " \t\r\n:,"); }

/* Where the value of that key, or of that index, begins inside the object or list at `at`; NULL: nowhere. */
static const char *inside(const char *at, const char *key, size_t length) {
    bool object = *at == '{';
    int64_t index = 0, wanted = object ? 0 : strtoll(key, NULL, 10);
    for (at = past_blanks(at + 1); *at && *at != '}' && *at != ']'; at = past_blanks(past_value(at)), index++) {
        const char *name = at;
        if (object)
            at = past_blanks(past_string(at));
        if (object ? name[0] == '"' && strncmp(name + 1, key, length) == 0 && name[length + 1] == '"' : index == wanted)
            return at;
    }
    return NULL;
}

bool tl_run_file_whole(const tl_run_file *file, const char *path, tl_u128 *magnitude, bool *negative) {
    const char *at = strchr(file->text, '{');
    tl_u128 value = 0;
    if (!json_is_number(find(file, path)))
        return false;
    while (*path && at && (*at == '{' || *at == '[')) {
        size_t length = strcspn(path, ".");
        at = inside(at, path, length);
        path += length + (path[length] == '.');
    }
    if (!at || *path)
        return false;
    *negative = *at == '-';
    at += *negative;
    size_t n = strspn(at, "0123456789");
    if (n == 0 || (at[n] && strchr(".eE", at[n])))
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)(at[i] - '0');
        if (value > (~(tl_u128)0 - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *magnitude = value;
    return true;
}

static const char *kind_of(const json_t *value) {
    if (!value || json_is_null(value))
        return "missing";
    return json_is_string(value)    ? "a string"
           : json_is_integer(value) ? "a whole number"
           : json_is_real(value)    ? "a number"
           : json_is_boolean(value) ? "true or false"
           : json_is_array(value)   ? "a list"
                                    : "an object";
}

static tl_status wrong(const tl_run_file *file, const char *path, const char *wanted, const json_t *found,
                       tl_error *error) {
    return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is %s; %s is wanted", file->name, path, kind_of(found), wanted);
}

tl_status tl_run_file_integer(const tl_run_file *file, const char *path, int64_t low, int64_t high, int64_t *value,
                              tl_error *error) {
    const json_t *at = find(file, path);
    if (!json_is_integer(at))
        return wrong(file, path, "a whole number", at, error);
    int64_t found = json_integer_value(at);
    if (found < low || found > high)
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is %lld; %lld to %lld would work", file->name, path,
                       (long long)found, (long long)low, (long long)high);
    *value = found;
    return TL_OK;
}

tl_status tl_run_file_real(const tl_run_file *file, const char *path, double low, double high, double *value,
                           tl_error *error) {
    const json_t *at = find(file, path);
    if (!json_is_number(at))
        return wrong(file, path, "a number", at, error);
    double found = json_number_value(at);
    if (!(found >= low && found <= high))
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is %g; %g to %g would work", file->name, path, found, low,
                       high);
    *value = found;
    return TL_OK;
}

const char *tl_run_file_text(const tl_run_file *file, const char *path, tl_error *error) {
    const json_t *at = find(file, path);
    if (json_is_string(at))
        return json_string_value(at);
    wrong(file, path, "a string", at, error);
    return NULL;
}

tl_status tl_run_file_typed(const tl_run_file *file, const char *path, char *text, size_t size, tl_error *error) {
    const json_t *at = find(file, path);
    int n;
    if (json_is_string(at))
        n = snprintf(text, size, "%s", json_string_value(at));
    else if (json_is_integer(at))
        n = snprintf(text, size, "%lld", (long long)json_integer_value(at));
    else if (json_is_real(at))
        n = snprintf(text, size, "%.17g", json_real_value(at));
    else if (json_is_boolean(at))
        n = snprintf(text, size, "%s", json_is_true(at) ? "true" : "false");
    else
        return wrong(file, path, "a string or a number", at, error);
    if (n < 0 || (size_t)n >= size)
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is longer than %zu bytes", file->name, path, size - 1);
    return TL_OK;
}
