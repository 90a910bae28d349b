/* tensor/format.c: the values of a tensor as text. The rules are those of NumPy's array2string, stated in tally/format.h; the
 * order of work is its too: look at every value that will be shown, decide one format for all, then lay them out. */
#include "tally/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ctx.h"

enum { DIGITS = 17, WORD = 400 }; /* 1e-308 without an exponent and 17 digits behind: not more than 350 characters */

/* ---- texts ---- */

tl_status tl_text_add(tl_text *text, const char *bytes, size_t count) {
    const tl_allocator *from = text->allocator ? text->allocator : tl_allocator_default();
    if (count > SIZE_MAX / 4 - text->length)
        return TL_ERR_MEMORY;
    if (text->length + count + 1 > text->capacity) {
        size_t capacity = text->capacity ? text->capacity : 256;
        while (capacity < text->length + count + 1)
            capacity *= 2;
        char *data = from->alloc(from->self, capacity, 16, TL_ALLOC_HOST);
        if (!data)
            return TL_ERR_MEMORY;
        if (text->data) {
            memcpy(data, text->data, text->length);
            from->release(from->self, text->data, text->capacity, TL_ALLOC_HOST);
        }
        text->data = data;
        text->capacity = capacity;
    }
    if (count > 0)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = 0;
    return TL_OK;
}

tl_status tl_text_printf(tl_text *text, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0)
        return TL_ERR_ARGUMENT;
    return tl_text_add(text, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void tl_text_free(tl_text *text) {
    const tl_allocator *from = text->allocator ? text->allocator : tl_allocator_default();
    if (text->data)
        from->release(from->self, text->data, text->capacity, TL_ALLOC_HOST);
    *text = (tl_text){.allocator = text->allocator};
}

/* ---- one floating value: its digits ---- */

typedef struct decimal {
    char digit[DIGITS + 1];
    int count, exponent; /* digit[0] stands for 10^exponent; trailing zeros are gone, a zero is the one digit 0 */
    bool negative;
} decimal;

/* Only digits are taken: which point the locale has does not matter. */
static void round_to(double magnitude, int count, decimal *d) {
    char text[40];
    snprintf(text, sizeof text, "%.*e", count - 1, magnitude);
    const char *at = text;
    d->count = 0;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            d->digit[d->count++] = *at;
    d->exponent = *at ? (int)strtol(at + 1, NULL, 10) : 0;
    while (d->count > 1 && d->digit[d->count - 1] == '0')
        d->count--;
    d->digit[d->count] = 0;
}

static double value_of(const decimal *d) {
    char text[40];
    snprintf(text, sizeof text, "%se%d", d->digit, d->exponent - (d->count - 1));
    return strtod(text, NULL);
}

static float float_of(const decimal *d) {
    char text[40];
    snprintf(text, sizeof text, "%se%d", d->digit, d->exponent - (d->count - 1));
    return strtof(text, NULL);
}

typedef struct element {
    uint64_t bits;
    double value; /* of floating formats */
} element;

/* Does this decimal read back as the element and not as one of its neighbours? For formats of 16 and 8 bits the neighbours
 * are the next patterns, and halves between them are exact in double. */
static bool tells(const decimal *d, tl_dtype dtype, const element *e, double magnitude) {
    if (dtype == TL_F64)
        return value_of(d) == magnitude;
    if (dtype == TL_F32)
        return float_of(d) == (float)magnitude;
    uint64_t bits = e->bits & ~(UINT64_C(1) << (8 * tl_dtype_bytes(dtype) - 1)), above = bits + 1, below = bits - 1;
    double read = value_of(d), up = tl_element_value(dtype, &above), down = tl_element_value(dtype, &below);
    if (up - up != 0) /* the largest: as far up as down */
        up = magnitude + (magnitude - down);
    bool even = bits % 2 == 0;
    double high = (magnitude + up) / 2, low = (magnitude + down) / 2;
    return (read < high || (even && read == high)) && (read > low || (even && read == low));
}

/* One more in the last of `count` places. */
static void next_above(int count, decimal *d) {
    while (d->count < count)
        d->digit[d->count++] = '0';
    int i = count - 1;
    while (i >= 0 && d->digit[i] == '9')
        i--;
    if (i < 0) {
        d->digit[i = 0] = '0';
        d->exponent++;
    }
    d->digit[i]++;
    d->count = i + 1;
    d->digit[d->count] = 0;
}

static void shortest(tl_dtype dtype, const element *e, decimal *d) {
    double magnitude = e->value < 0 ? -e->value : e->value;
    /* Decimals of so many digits survive the format, subnormals apart: shorter ones are found by dropping zeros. */
    int count = dtype == TL_F64 && magnitude > 2.3e-308 ? 15 : dtype == TL_F32 && magnitude > 1.2e-38 ? 6 : 1;
    d->negative = __builtin_signbit(e->value) != 0;
    if (magnitude == 0) {
        *d = (decimal){.digit = "0", .count = 1, .negative = d->negative};
        return;
    }
    for (;; count++) {
        round_to(magnitude, count, d);
        if (count >= DIGITS || tells(d, dtype, e, magnitude))
            return;
        /* Below a power of two the neighbour is nearer than above it: the next decimal up can be as good. */
        decimal above = *d;
        next_above(count, &above);
        if (tells(&above, dtype, e, magnitude)) {
            *d = above;
            return;
        }
    }
}

/* ---- laid out ---- */

/* d rounded so that nothing stands below 10^lowest; exactly, from the value itself. */
static void cut(double value, int lowest, decimal *d) {
    double magnitude = value < 0 ? -value : value;
    int keep = d->exponent - lowest + 1;
    bool negative = d->negative;
    if (d->count <= keep || magnitude == 0)
        return;
    if (keep > 0)
        round_to(magnitude, keep, d);
    else { /* a half or more of the last place counts; a half exactly is even as 0 */
        round_to(magnitude, DIGITS, d);
        bool up = d->exponent == lowest - 1 && (d->digit[0] > '5' || (d->digit[0] == '5' && d->count > 1));
        *d = (decimal){.digit = {up ? '1' : '0'}, .count = 1, .exponent = up ? lowest : 0};
    }
    d->negative = negative;
}

typedef struct word {
    char text[WORD];
    int left, right, exponent; /* characters before and after the point; of the exponent with its sign, 0: none */
} word;

/* 0.00123 → "0.00123", left 1, right 5. A whole number ends in its point. */
static void positional(const decimal *d, char sign, word *w) {
    int n = 0;
    if (d->negative || sign == '+')
        w->text[n++] = d->negative ? '-' : '+';
    for (int place = d->exponent > 0 ? d->exponent : 0; place >= 0; place--) {
        int i = d->exponent - place;
        w->text[n++] = i >= 0 && i < d->count ? d->digit[i] : '0';
    }
    w->left = n;
    w->text[n++] = '.';
    for (int place = -1; d->exponent - place < d->count && n < WORD - 1; place--) {
        int i = d->exponent - place;
        w->text[n++] = i >= 0 ? d->digit[i] : '0';
    }
    w->text[n] = 0;
    w->right = n - w->left - 1;
    w->exponent = 0;
    if (d->count == 1 && d->digit[0] == '0') { /* 0. has no fraction */
        w->text[w->left + 1] = 0;
        w->right = 0;
    }
}

/* With at least `digits` after the point and `exponent` digits in the exponent. */
static void scientific(const decimal *d, char sign, int digits, int exponent, word *w) {
    int n = 0, size = d->exponent < 0 ? -d->exponent : d->exponent;
    if (d->negative || sign == '+')
        w->text[n++] = d->negative ? '-' : '+';
    w->text[n++] = d->digit[0];
    w->left = n;
    w->text[n++] = '.';
    for (int i = 1; i < d->count || i <= digits; i++)
        w->text[n++] = i < d->count ? d->digit[i] : '0';
    w->right = n - w->left - 1;
    w->exponent = snprintf(w->text + n, WORD - (size_t)n, "e%c%0*d", d->exponent < 0 ? '-' : '+', exponent, size) - 1;
}

/* ---- the format of all ---- */

typedef struct style {
    tl_format_options o;
    tl_dtype dtype;
    bool is_float, is_signed, is_bool, scalar;
    bool exponents;
    int left, right;            /* characters before and after the point; of whole numbers: left is the width */
    int digits, exponent_chars; /* with exponents: after the point; in the exponent */
    /* gathered while looking */
    double largest, smallest; /* magnitudes other than zero */
    bool any_finite, any_not_finite, any_negative_infinity, any_negative;
} style;

static void element_at(const style *s, const char *at, element *e) {
    *e = (element){0};
    memcpy(&e->bits, at, (size_t)tl_dtype_bytes(s->dtype));
    if (s->is_float)
        e->value = tl_element_value(s->dtype, at);
    else if (s->is_signed) { /* sign-extended */
        int shift = 64 - 8 * tl_dtype_bytes(s->dtype);
        e->bits = (uint64_t)((int64_t)(e->bits << shift) >> shift);
    }
}

static bool is_finite(double x) { return x - x == 0; }

static void finite_word(const style *s, const element *e, word *w) {
    decimal d;
    shortest(s->dtype, e, &d);
    if (s->exponents) {
        cut(e->value, d.exponent - s->digits, &d);
        scientific(&d, s->o.sign, 0, 2, w);
    } else {
        if (d.count <= d.exponent) /* true digits up to the point: 32768 and not 32770, which also tells an f16 */
            round_to(e->value < 0 ? -e->value : e->value, d.exponent + 1, &d);
        cut(e->value, -s->o.precision, &d);
        positional(&d, s->o.sign, w);
    }
}

static void look_first(style *s, const element *e) {
    if (!s->is_float)
        return;
    if (!is_finite(e->value)) {
        s->any_not_finite = true;
        s->any_negative_infinity = s->any_negative_infinity || e->value < 0;
        return;
    }
    double magnitude = e->value < 0 ? -e->value : e->value;
    s->any_finite = true;
    s->any_negative = s->any_negative || __builtin_signbit(e->value);
    if (magnitude == 0)
        return;
    if (s->largest == 0 || magnitude > s->largest)
        s->largest = magnitude;
    if (s->smallest == 0 || magnitude < s->smallest)
        s->smallest = magnitude;
}

static int whole_text(const style *s, const element *e, char out[24]) {
    return s->is_signed ? snprintf(out, 24, "%lld", (long long)e->bits)
                        : snprintf(out, 24, "%llu", (unsigned long long)e->bits);
}

static void look_again(style *s, const element *e) {
    word w;
    if (!s->is_float) {
        int n = whole_text(s, e, w.text);
        s->left = n > s->left ? n : s->left;
        return;
    }
    if (!is_finite(e->value))
        return;
    finite_word(s, e, &w);
    s->left = w.left > s->left ? w.left : s->left;
    s->right = w.right > s->right ? w.right : s->right;
    s->exponent_chars = w.exponent > s->exponent_chars ? w.exponent : s->exponent_chars;
}

static void decide_exponents(style *s) {
    double ratio = s->smallest > 0 ? s->largest / s->smallest : 1;
    if (s->dtype == TL_F32)
        ratio = (double)((float)s->largest / (float)s->smallest); /* NumPy divides in the array's own format */
    else if (s->dtype == TL_F16)
        ratio = (double)tl_f16_to_f32(tl_f32_to_f16((float)ratio));
    s->exponents = s->largest >= 1e8 || (s->largest > 0 && !s->o.suppress && (s->smallest < 1e-4 || ratio > 1000));
    s->digits = s->o.precision;
}

static void decide_widths(style *s) {
    if (!s->is_float)
        return;
    s->digits = s->right;
    if (s->exponents) /* "e+08" stands behind the digits */
        s->right += s->exponent_chars + 1;
    if (s->o.sign == ' ' && !s->any_negative)
        s->left++;
    if (!s->any_not_finite)
        return;
    int infinity = 3 + (s->o.sign != '-' || s->any_negative_infinity), offset = s->right + 1;
    int need = infinity > 3 ? infinity - offset : 3 - offset;
    s->left = need > s->left ? need : s->left;
}

/* The text between blanks; what would not fit is cut, which no text of ours is long enough for. */
static void pad(word *w, int before, int after) {
    int n = (int)strlen(w->text);
    before = before > 0 && n + before < WORD ? before : 0;
    after = after > 0 && n + before + after < WORD ? after : 0;
    memmove(w->text + before, w->text, (size_t)n);
    memset(w->text, ' ', (size_t)before);
    memset(w->text + before + n, ' ', (size_t)after);
    w->text[before + n + after] = 0;
}

static void element_word(const style *s, const char *at, word *w) {
    element e;
    element_at(s, at, &e);
    if (s->is_bool) {
        snprintf(w->text, WORD, "%s", e.bits ? (s->scalar ? "True" : " True") : "False");
        return;
    }
    if (!s->is_float) {
        pad(w, s->left - whole_text(s, &e, w->text), 0);
    } else if (!is_finite(e.value)) {
        bool nan = e.value != e.value;
        const char *sign = !nan && e.value < 0 ? "-" : s->o.sign == '+' ? "+" : "";
        pad(w, s->left + s->right + 1 - snprintf(w->text, WORD, "%s%s", sign, nan ? "nan" : "inf"), 0);
    } else if (s->exponents) {
        decimal d;
        shortest(s->dtype, &e, &d);
        if (e.value != 0 && d.count != s->digits + 1) /* as many as the longest has, and all of them true */
            round_to(e.value < 0 ? -e.value : e.value, s->digits + 1, &d);
        scientific(&d, s->o.sign, s->digits, s->exponent_chars - 1, w);
        pad(w, s->left - w->left, 0);
    } else {
        finite_word(s, &e, w);
        pad(w, s->left - w->left, s->right - w->right);
    }
}

/* ---- all elements that are shown ---- */

typedef struct layout {
    const tl_tensor *t;
    style s;
    bool summary;
    tl_text *text;
    tl_text line; /* of the innermost axis, while it grows */
    tl_status status;
} layout;

/* Elements shown at each end; all: the size, and none at the end. */
static bool edges_of(const layout *l, int axis, int64_t *first, int64_t *last) {
    int64_t size = l->t->shape.dim[axis].size;
    bool gap = l->summary && size / 2 >= l->s.o.edge && size != 2 * l->s.o.edge;
    *first = gap ? l->s.o.edge : size;
    *last = gap ? l->s.o.edge : 0;
    return gap;
}

static void visit(layout *l, int axis, const char *at, void (*look)(style *, const element *)) {
    if (axis == l->t->shape.ndim) {
        element e;
        element_at(&l->s, at, &e);
        look(&l->s, &e);
        return;
    }
    int64_t first, last, size = l->t->shape.dim[axis].size;
    int64_t step = l->t->stride[axis] * tl_dtype_bytes(l->s.dtype);
    edges_of(l, axis, &first, &last);
    for (int64_t i = 0; i < first; i++)
        visit(l, axis + 1, at + i * step, look);
    for (int64_t i = size - last; i < size; i++)
        visit(l, axis + 1, at + i * step, look);
}

static void add(layout *l, tl_text *text, const char *bytes, size_t count) {
    if (l->status == TL_OK)
        l->status = tl_text_add(text, bytes, count);
}

static void add_blanks(layout *l, tl_text *text, int count) {
    for (int i = 0; i < count; i++)
        add(l, text, " ", 1);
}

/* A word goes on the line, or on a new one that hangs by `indent`. */
static void extend(layout *l, const char *w, int width, int indent) {
    size_t n = strlen(w);
    if ((int64_t)(l->line.length + n) > width && l->line.length > (size_t)indent) {
        size_t end = l->line.length;
        while (end > 0 && l->line.data[end - 1] == ' ')
            end--;
        add(l, l->text, l->line.data, end);
        add(l, l->text, "\n", 1);
        l->line.length = 0;
        add_blanks(l, &l->line, indent);
    }
    add(l, &l->line, w, n);
}

static void innermost(layout *l, int axis, const char *at, int indent, int width) {
    int64_t first, last, size = l->t->shape.dim[axis].size;
    int64_t step = l->t->stride[axis] * tl_dtype_bytes(l->s.dtype);
    bool gap = edges_of(l, axis, &first, &last);
    word w;
    l->line.length = 0;
    add(l, l->text, "[", 1);
    add_blanks(l, &l->line, indent);
    size_t mark = l->text->length; /* "[" stands for the last blank of the first line's indent */
    for (int64_t i = 0; i < size && l->status == TL_OK; i++) {
        if (gap && i == first) {
            extend(l, "...", width - 1, indent);
            add(l, &l->line, " ", 1);
            i = size - last;
        }
        element_word(&l->s, at + i * step, &w);
        extend(l, w.text, width - 1, indent);
        if (i < size - 1)
            add(l, &l->line, " ", 1);
    }
    add(l, l->text, l->line.data, l->line.length);
    if (l->status == TL_OK) { /* the indent that "[" has taken */
        memmove(l->text->data + mark, l->text->data + mark + indent, l->text->length - mark - (size_t)indent + 1);
        l->text->length -= (size_t)indent;
    }
    add(l, l->text, "]", 1);
}

static void lay_out(layout *l, int axis, const char *at, int indent, int width) {
    int left = l->t->shape.ndim - axis;
    if (left == 1) {
        innermost(l, axis, at, indent, width);
        return;
    }
    int64_t first, last, size = l->t->shape.dim[axis].size;
    int64_t step = l->t->stride[axis] * tl_dtype_bytes(l->s.dtype);
    bool gap = edges_of(l, axis, &first, &last);
    add(l, l->text, "[", 1);
    for (int64_t i = 0; i < size && l->status == TL_OK; i++) {
        if (i > 0) {
            for (int k = 1; k < left; k++)
                add(l, l->text, "\n", 1);
            add_blanks(l, l->text, indent);
        }
        if (gap && i == first) {
            add(l, l->text, "...", 3);
            gap = false;
            i = size - last - 1;
            continue;
        }
        lay_out(l, axis + 1, at + i * step, indent + 1, width - 1);
    }
    add(l, l->text, "]", 1);
}

tl_format_options tl_format_defaults(void) {
    return (tl_format_options){.precision = 8, .threshold = 1000, .edge = 3, .width = 75, .sign = '-'};
}

static tl_status check_options(tl_ctx *ctx, const tl_format_options *o) {
    if (o->precision < 0 || o->precision > DIGITS || o->threshold < 0 || o->edge < 1 || o->width < 1 ||
        (o->sign != '-' && o->sign != '+' && o->sign != ' '))
        return tl_ctx_fail(
            ctx, TL_ERR_ARGUMENT,
            "precision %d, threshold %lld, edge %lld, width %d, sign '%c': 0 to %d, 0 or more, 1 or more, 1 "
            "or more, and one of '-', '+', ' ' would work",
            o->precision, (long long)o->threshold, (long long)o->edge, o->width,
            o->sign > ' ' && o->sign < 0x7f ? o->sign : '?', DIGITS);
    return TL_OK;
}

tl_status tl_tensor_format(const tl_tensor *t, const tl_format_options *options, tl_text *text) {
    char about[200];
    if (!t)
        return TL_ERR_ARGUMENT;
    const char *name = tl_dtype_name(t->dtype);
    layout l = {.t = t, .text = text, .line = {.allocator = text->allocator}};
    l.s = (style){.o = options ? *options : tl_format_defaults(),
                  .dtype = t->dtype,
                  .is_float = tl_dtype_is_float(t->dtype),
                  .is_signed = name[0] == 'i',
                  .is_bool = t->dtype == TL_BOOL,
                  .scalar = t->shape.ndim == 0};
    if (check_options(t->ctx, &l.s.o) != TL_OK)
        return TL_ERR_ARGUMENT;
    if (!t->ctx->kernels)
        return tl_ctx_fail(t->ctx, TL_ERR_STATE, "the values of %s were asked for, but the device meta holds none",
                           tl_tensor_text(t, about, sizeof about));
    if (tl_tensor_count(t) == 0)
        add(&l, text, "[]", 2);
    else {
        const char *at = tl_tensor_data(t);
        l.summary = tl_tensor_count(t) > l.s.o.threshold;
        visit(&l, 0, at, look_first);
        decide_exponents(&l.s);
        visit(&l, 0, at, look_again);
        decide_widths(&l.s);
        if (l.s.scalar) {
            word w;
            element_word(&l.s, at, &w);
            add(&l, text, w.text, strlen(w.text));
        } else
            lay_out(&l, 0, at, 1, l.s.o.width);
    }
    tl_text_free(&l.line);
    return l.status == TL_OK ? TL_OK : tl_ctx_fail(t->ctx, l.status, "no memory for the text of a tensor");
}
