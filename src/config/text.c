#include "config/text.h"

#include "base/nearest.h"
#include "base/sniff.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool begins(const char *text, size_t length, const char *magic, size_t magic_length) {
    return length >= magic_length && memcmp(text, magic, magic_length) == 0;
}

const char *tl_config_sniff(const char *text, size_t length) {
    static const struct {
        const char *magic;
        size_t length;
        const char *what;
    } magics[] = {
        /* Two bytes are enough here: JSON begins with none of these. */
        {"\x80\x02", 2, "a Python pickle (an old PyTorch checkpoint is one)"},
        {"\x80\x03", 2, "a Python pickle"},
        {"\x80\x04", 2, "a Python pickle"},
        {"\x80\x05", 2, "a Python pickle"},
        {"\x1f\x8b", 2, "a gzip file"},
        {"\xff\xfe", 2, "UTF-16 text; save it as UTF-8"},
        {"\xfe\xff", 2, "UTF-16 text; save it as UTF-8"},
    };
    const char *what = tl_sniff(text, length);
    if (what)
        return what;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (begins(text, length, magics[i].magic, magics[i].length))
            return magics[i].what;
    if (tl_sniff_word(text, length, "<"))
        return "XML or HTML";
    if (tl_sniff_word(text, length, "["))
        return "a JSON list";
    if (tl_sniff_word(text, length, "---"))
        return "YAML or a model card";
    if (length > 0 && memchr(text, '\0', length < 512 ? length : 512) != NULL)
        return "a binary file";
    return NULL;
}

/* ---- files ---- */

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "no regular file";
}

static tl_status fail_system(const char *quoted, int number, tl_error *error) {
    char buffer[128];
    return tl_fail(error,
                   number == ENOENT   ? TL_ERR_NOT_FOUND
                   : number == ENOMEM ? TL_ERR_MEMORY
                                      : TL_ERR_IO,
                   "%s: %s", quoted, strerror_r(number, buffer, sizeof buffer));
}

/* Reads until the end or past the limit. 0 or an errno. */
static int read_all(int file, size_t most, char **text, size_t *length) {
    size_t capacity = (size_t)64 << 10, used = 0;
    char *buffer = malloc(capacity + 1);
    int number = buffer == NULL ? ENOMEM : 0;
    while (number == 0 && used <= most) {
        ssize_t got = read(file, buffer + used, capacity - used);
        if (got == 0)
            break;
        if (got < 0) {
            number = errno == EINTR ? 0 : errno;
            continue;
        }
        used += (size_t)got;
        if (used == capacity) {
            char *larger = realloc(buffer, capacity * 2 + 1);
            number = larger == NULL ? ENOMEM : 0;
            buffer = larger == NULL ? buffer : larger;
            capacity *= 2;
        }
    }
    if (number != 0) {
        free(buffer);
        return number;
    }
    buffer[used] = '\0';
    *text = buffer;
    *length = used;
    return 0;
}

tl_status tl_config_load(const char *path, char **text, size_t *length, tl_error *error) {
    return tl_config_load_kind(path, TL_CONFIG_MOST_BYTES,
                               "a model is a config.json, the folder that holds one, or a name of `tally models`", text,
                               length, error);
}

tl_status tl_config_load_kind(const char *path, size_t most, const char *wanted, char **text, size_t *length,
                              tl_error *error) {
    char quoted[256];
    struct stat about;
    int file, number;
    tl_quotable(path, strlen(path), quoted, sizeof quoted);
    do
        file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return fail_system(quoted, errno, error);
    if (fstat(file, &about) != 0) {
        number = errno;
        (void)close(file);
        return fail_system(quoted, number, error);
    }
    if (!S_ISREG(about.st_mode)) {
        (void)close(file);
        return tl_fail(error, TL_ERR_FORMAT, "%s: is %s; %s", quoted, kind_of(about.st_mode), wanted);
    }
    number = read_all(file, most, text, length);
    (void)close(file);
    if (number != 0)
        return fail_system(quoted, number, error);
    if (*length > most) {
        const char *what = tl_config_sniff(*text, *length);
        char size[64];
        (void)snprintf(size, sizeof size, "is larger than %zu MiB", most >> 20);
        free(*text);
        *text = NULL;
        return tl_fail(error, TL_ERR_FORMAT, "%s: %s%s; %s, at most %zu MiB are read", quoted,
                       what != NULL ? "is " : size, what != NULL ? what : "", wanted, most >> 20);
    }
    return TL_OK;
}

/* ---- softening ---- */

/* The length of the number or word at `text`, 0 for anything else. */
static size_t token_length(const char *text, size_t left) {
    size_t i = 0;
    while (i < left && (is_digit(text[i]) || (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                        text[i] == '.' || text[i] == '+' || text[i] == '-'))
        i++;
    return i;
}

static bool token_is(const char *token, size_t length, const char *word) {
    return strlen(word) == length && memcmp(token, word, length) == 0;
}

/* A number in JSON's grammar that 64 bits or a double do not hold. */
static bool is_beyond(const char *token, size_t length) {
    char copy[512], *end;
    size_t i = token[0] == '-', digits = i;
    bool whole = true;
    if (i == length || !is_digit(token[i]))
        return false;
    while (i < length && is_digit(token[i]))
        i++;
    if (i - digits > 1 && token[digits] == '0')
        return false;
    if (i - digits < 19 && i == length)
        return false;
    if (i < length && token[i] == '.') {
        size_t first = ++i;
        while (i < length && is_digit(token[i]))
            i++;
        if (i == first)
            return false;
        whole = false;
    }
    if (i < length && (token[i] == 'e' || token[i] == 'E')) {
        size_t first;
        i++;
        if (i < length && (token[i] == '+' || token[i] == '-'))
            i++;
        first = i;
        while (i < length && is_digit(token[i]))
            i++;
        if (i == first)
            return false;
        whole = false;
    }
    if (i != length)
        return false;
    if (length >= sizeof copy)
        return whole;
    memcpy(copy, token, length);
    copy[length] = '\0';
    errno = 0;
    if (whole)
        (void)strtoll(copy, &end, 10);
    else {
        double value = strtod(copy, &end);
        return !isfinite(value);
    }
    return errno == ERANGE;
}

size_t tl_config_soften(char *text, size_t length) {
    size_t values = 1;
    for (size_t i = 0; i < length;) {
        size_t token;
        if (text[i] == '"') {
            for (i++; i < length && text[i] != '"'; i++)
                if (text[i] == '\\')
                    i++;
            i++;
            continue;
        }
        values += text[i] == ',';
        token = token_length(text + i, length - i);
        if (token >= 3 && (token_is(text + i, token, "NaN") || token_is(text + i, token, "Infinity") ||
                           token_is(text + i, token, "-Infinity") || is_beyond(text + i, token))) {
            size_t next = i + token;
            while (next < length && is_space(text[next]))
                next++;
            /* Only a value may turn into a string: a key that is not quoted stays the error it is. */
            if (next >= length || text[next] != ':') {
                text[i] = '"';
                text[i + token - 1] = '"';
            }
        }
        i += token > 0 ? token : 1;
    }
    return values;
}

/* ---- places ---- */

static size_t skip_space(const char *text, size_t length, size_t i) {
    while (i < length && is_space(text[i]))
        i++;
    return i;
}

/* Past the string that starts at i. */
static size_t skip_string(const char *text, size_t length, size_t i) {
    for (i++; i < length && text[i] != '"'; i++)
        if (text[i] == '\\')
            i++;
    return i < length ? i + 1 : length;
}

static size_t skip_value(const char *text, size_t length, size_t i) {
    size_t depth = 0;
    while (i < length) {
        char c = text[i];
        if (c == '"') {
            i = skip_string(text, length, i);
            if (depth == 0)
                return i;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c)))
            return i;
        if (c == '{' || c == '[')
            depth++;
        if (c == '}' || c == ']') {
            depth--;
            if (depth == 0)
                return i + 1;
        }
        i++;
    }
    return i;
}

/* The start of the value of `key` in the object that starts at i, or `length`. */
static size_t find_key(const char *text, size_t length, size_t i, const char *key) {
    size_t key_length = strlen(key);
    if (i >= length || text[i] != '{')
        return length;
    i = skip_space(text, length, i + 1);
    while (i < length && text[i] == '"') {
        size_t start = i + 1, value;
        i = skip_string(text, length, i);
        bool same = i - start == key_length + 1 && memcmp(text + start, key, key_length) == 0;
        value = skip_space(text, length, i);
        if (value >= length || text[value] != ':')
            return length;
        value = skip_space(text, length, value + 1);
        if (same)
            return value;
        i = skip_space(text, length, skip_value(text, length, value));
        if (i >= length || text[i] != ',')
            return length;
        i = skip_space(text, length, i + 1);
    }
    return length;
}

bool tl_config_locate(const char *text, size_t length, const char *const *path, int depth, tl_config_place *place) {
    size_t at = skip_space(text, length, 0);
    for (int i = 0; i < depth; i++)
        at = find_key(text, length, at, path[i]);
    if (at >= length)
        return false;
    place->start = at;
    place->length = skip_value(text, length, at) - at;
    place->line = 1;
    place->column = 1;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            place->line++;
            place->column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80)
            place->column++;
    }
    return true;
}
