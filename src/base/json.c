/* Our JSON writer. */
#include "tally/json.h"

#include "base/decimal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 64, FIRST_BYTES = 1024 };

typedef struct level {
    bool object;
    bool any;     /* something stands in it */
    bool has_key; /* a key waits for its value */
} level;

struct tl_json {
    const tl_allocator *allocator;
    char *text;
    size_t length, size;
    int indent, depth;
    bool failed, complete;
    level levels[MAX_DEPTH];
};

tl_json *tl_json_new(const tl_allocator *allocator, int indent) {
    if (!allocator)
        allocator = tl_allocator_default();
    tl_json *json = allocator->alloc(allocator->self, sizeof *json, 16, TL_ALLOC_HOST);
    if (!json)
        return NULL;
    memset(json, 0, sizeof *json);
    json->allocator = allocator;
    json->indent = indent > 0 ? indent : 0;
    json->text = allocator->alloc(allocator->self, FIRST_BYTES, 16, TL_ALLOC_HOST);
    if (!json->text) {
        allocator->release(allocator->self, json, sizeof *json, TL_ALLOC_HOST);
        return NULL;
    }
    json->size = FIRST_BYTES;
    json->text[0] = '\0';
    return json;
}

void tl_json_free(tl_json *json) {
    if (!json)
        return;
    const tl_allocator *allocator = json->allocator;
    allocator->release(allocator->self, json->text, json->size, TL_ALLOC_HOST);
    allocator->release(allocator->self, json, sizeof *json, TL_ALLOC_HOST);
}

const char *tl_json_text(const tl_json *json, size_t *length) {
    if (!json || json->failed)
        return NULL;
    if (length)
        *length = json->length;
    return json->text;
}

static void put_bytes(tl_json *json, const char *bytes, size_t count) {
    if (json->failed)
        return;
    if (count > SIZE_MAX / 4 - json->length) {
        json->failed = true;
        return;
    }
    if (json->length + count + 1 > json->size) {
        size_t size = json->size;
        while (size < json->length + count + 1)
            size *= 2;
        char *text = json->allocator->alloc(json->allocator->self, size, 16, TL_ALLOC_HOST);
        if (!text) {
            json->failed = true;
            return;
        }
        memcpy(text, json->text, json->length);
        json->allocator->release(json->allocator->self, json->text, json->size, TL_ALLOC_HOST);
        json->text = text;
        json->size = size;
    }
    memcpy(json->text + json->length, bytes, count);
    json->length += count;
    json->text[json->length] = '\0';
}

static void put(tl_json *json, const char *text) { put_bytes(json, text, strlen(text)); }

static void put_line(tl_json *json) {
    if (!json->indent)
        return;
    put(json, "\n");
    for (int i = 0; i < json->indent * json->depth; i++)
        put(json, " ");
}

static void begin_item(tl_json *json) {
    level *top = &json->levels[json->depth - 1];
    if (top->any)
        put(json, ",");
    top->any = true;
    put_line(json);
}

/* What stands before a value. False if nothing may be written (memory ran out, or there is no writer). */
static bool begin_value(tl_json *json) {
    if (!json || json->failed)
        return false;
    if (json->depth == 0) {
        assert(!json->complete && "one text holds one value");
        json->complete = true;
        return true;
    }
    level *top = &json->levels[json->depth - 1];
    if (top->object) {
        assert(top->has_key && "a value in an object needs a key");
        top->has_key = false;
        return true;
    }
    begin_item(json);
    return true;
}

static void open_level(tl_json *json, bool object) {
    if (!begin_value(json))
        return;
    assert(json->depth < MAX_DEPTH && "nested too deep");
    if (json->depth >= MAX_DEPTH) {
        json->failed = true;
        return;
    }
    json->levels[json->depth++] = (level){.object = object};
    put(json, object ? "{" : "[");
}

void tl_json_object(tl_json *json) { open_level(json, true); }
void tl_json_array(tl_json *json) { open_level(json, false); }

void tl_json_end(tl_json *json) {
    if (!json || json->failed)
        return;
    assert(json->depth > 0 && "nothing is open");
    if (json->depth == 0)
        return;
    const level top = json->levels[--json->depth];
    assert(!top.has_key && "a key without a value");
    if (top.any)
        put_line(json);
    put(json, top.object ? "}" : "]");
}

/* Bytes of the UTF-8 character at `s`; 0 if it is not one (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_length(const unsigned char *s) {
    if (s[0] < 0x80)
        return 1;
    const size_t length = s[0] >= 0xC2 && s[0] <= 0xDF   ? 2
                          : s[0] >= 0xE0 && s[0] <= 0xEF ? 3
                          : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) /* also stops at the terminating zero */
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

static void put_escaped(tl_json *json, unsigned char byte) {
    static const char names[] = "btn\0fr"; /* 8 .. 13 */
    char text[8];
    if (byte == '"' || byte == '\\')
        snprintf(text, sizeof text, "\\%c", byte);
    else if (byte >= 8 && byte <= 13 && names[byte - 8])
        snprintf(text, sizeof text, "\\%c", names[byte - 8]);
    else
        snprintf(text, sizeof text, "\\u%04x", byte);
    put(json, text);
}

static void put_quoted(tl_json *json, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    put(json, "\"");
    while (*s) {
        size_t plain = 0, length;
        while (s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\' && (length = utf8_length(s + plain)) > 0)
            plain += length;
        put_bytes(json, (const char *)s, plain);
        s += plain;
        if (*s)
            put_escaped(json, *s++);
    }
    put(json, "\"");
}

void tl_json_key(tl_json *json, const char *key) {
    if (!json || json->failed)
        return;
    assert(json->depth > 0 && json->levels[json->depth - 1].object && "a key belongs in an object");
    assert(!json->levels[json->depth - 1].has_key && "two keys in a row");
    begin_item(json);
    json->levels[json->depth - 1].has_key = true;
    put_quoted(json, key);
    put(json, json->indent ? ": " : ":");
}

void tl_json_string(tl_json *json, const char *text) {
    if (!begin_value(json))
        return;
    if (text)
        put_quoted(json, text);
    else
        put(json, "null");
}

void tl_json_integer(tl_json *json, int64_t value) {
    char digits[TL_U128_DIGITS];
    if (!begin_value(json))
        return;
    if (value < 0)
        put(json, "-");
    put(json, tl_u128_text(value < 0 ? (tl_u128)(-(value + 1)) + 1 : (tl_u128)value, digits));
}

void tl_json_unsigned(tl_json *json, tl_u128 value) {
    char digits[TL_U128_DIGITS];
    if (begin_value(json))
        put(json, tl_u128_text(value, digits));
}

/* The fewest digits that read back as `value` (> 0, finite), and their exponent. */
static void shortest_digits(double value, char digits[TL_DECIMAL_DIGITS], int *exponent) {
    for (int count = 1; count <= 17; count++) {
        tl_decimal_digits(value, count, digits, exponent);
        tl_decimal back = {.exponent = *exponent - count + 1};
        for (const char *d = digits; *d; d++)
            back.mantissa = back.mantissa * 10 + (tl_u128)(*d - '0');
        if (tl_decimal_double(&back) == value)
            return;
    }
}

/* Plain from 1e-5 below 1e16, else with an exponent; always with a point or an exponent, so that it stays a real. */
static void put_real(tl_json *json, double value) {
    char digits[TL_DECIMAL_DIGITS], text[16];
    int exponent = 0;
    shortest_digits(value, digits, &exponent);
    const int count = (int)strlen(digits);
    if (exponent < -5 || exponent >= 16) {
        put_bytes(json, digits, 1);
        if (count > 1) {
            put(json, ".");
            put(json, digits + 1);
        }
        snprintf(text, sizeof text, "e%d", exponent);
        put(json, text);
        return;
    }
    for (int place = exponent > 0 ? exponent : 0; place >= 0 || exponent - place < count; place--) {
        const int index = exponent - place;
        if (place == -1)
            put(json, ".");
        put_bytes(json, index >= 0 && index < count ? &digits[index] : "0", 1);
    }
    if (exponent >= count - 1)
        put(json, ".0");
}

void tl_json_real(tl_json *json, double value) {
    if (!begin_value(json))
        return;
    if (value - value != 0) { /* NaN or infinity */
        put(json, "null");
        return;
    }
    if (__builtin_signbit(value))
        put(json, "-");
    if (value == 0)
        put(json, "0.0");
    else
        put_real(json, value < 0 ? -value : value);
}

void tl_json_boolean(tl_json *json, bool value) {
    if (begin_value(json))
        put(json, value ? "true" : "false");
}

void tl_json_null(tl_json *json) {
    if (begin_value(json))
        put(json, "null");
}

void tl_json_put_string(tl_json *json, const char *key, const char *text) {
    tl_json_key(json, key);
    tl_json_string(json, text);
}

void tl_json_put_integer(tl_json *json, const char *key, int64_t value) {
    tl_json_key(json, key);
    tl_json_integer(json, value);
}

void tl_json_put_unsigned(tl_json *json, const char *key, tl_u128 value) {
    tl_json_key(json, key);
    tl_json_unsigned(json, value);
}

void tl_json_put_real(tl_json *json, const char *key, double value) {
    tl_json_key(json, key);
    tl_json_real(json, value);
}

void tl_json_put_boolean(tl_json *json, const char *key, bool value) {
    tl_json_key(json, key);
    tl_json_boolean(json, value);
}
