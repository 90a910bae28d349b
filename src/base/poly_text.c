/* Formulas as a person would write them.
 *
 * One rule for every sum: what all terms share of the numbers, A, B, T and the layer counts (N, N_...) stands in front;
 * the other terms are grouped by their layer counts, groups with layers first; inside a group the degree falls, then
 * the fixed order of symbols below decides. Nothing else is factored: greedy factoring gives formulas nobody reads.
 */
#include "base/poly.h"

#include <string.h>

/* In front T follows B ("2·B·T·"); inside a sum it comes late ("2·D·F + 2·D·T"). Symbols not listed follow by name. */
static const char *const front_order[] = {"A", "B", "T", "N", "D", "F", "H", "G", "K", "V", "C", NULL};
static const char *const inner_order[] = {"A", "B", "N", "D", "F", "H", "G", "K", "V", "C", "T", NULL};

typedef struct writer {
    tl_space *space;
    int style;
    char *data;
    size_t length, size;
    bool failed;
    int front[TL_MAX_SYMBOLS]; /* symbol indices in the order they are written */
    int inner[TL_MAX_SYMBOLS];
} writer;

/* ---- text ---- */

static void put(writer *w, const char *text) {
    const size_t length = strlen(text);
    if (w->failed)
        return;
    if (w->length + length + 1 > w->size) {
        const tl_allocator *allocator = w->space->allocator;
        size_t size = w->size ? w->size : 256;
        while (size < w->length + length + 1)
            size *= 2;
        char *data = allocator->alloc(allocator->self, size, 16, TL_ALLOC_HOST);
        if (!data) {
            w->failed = true;
            return;
        }
        if (w->data) {
            memcpy(data, w->data, w->length);
            allocator->release(allocator->self, w->data, w->size, TL_ALLOC_HOST);
        }
        w->data = data;
        w->size = size;
    }
    memcpy(w->data + w->length, text, length + 1);
    w->length += length;
}

static void put_number(writer *w, uint64_t value) {
    char text[TL_U128_DIGITS];
    put(w, tl_u128_text(value, text));
}

static void put_times(writer *w, bool *first) {
    if (!*first)
        put(w, w->style & TL_FORMULA_ASCII ? "*" : "·");
    *first = false;
}

static void put_power(writer *w, int symbol, int exponent) {
    static const char *const raised[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    if (w->style & TL_FORMULA_NUMBERS)
        put_number(w, (uint64_t)w->space->symbols[symbol].value);
    else
        put(w, w->space->symbols[symbol].name);
    if (exponent == 1)
        return;
    char digits[TL_U128_DIGITS];
    tl_u128_text((tl_u128)exponent, digits);
    if (w->style & TL_FORMULA_ASCII) {
        put(w, "^");
        put(w, digits);
        return;
    }
    for (const char *d = digits; *d; d++)
        put(w, raised[*d - '0']);
}

/* ---- the order of symbols and terms ---- */

static int known_rank(const char *const *order, const char *name) {
    int rank = 0;
    while (order[rank] && strcmp(order[rank], name))
        rank++;
    return rank;
}

static bool is_layer_count(const char *name) { return name[0] == 'N' && (name[1] == '\0' || name[1] == '_'); }

static bool symbol_before(const char *const *order, const char *a, const char *b) {
    /* The counts of layer classes stand where N stands. */
    const int rank_a = known_rank(order, is_layer_count(a) ? "N" : a);
    const int rank_b = known_rank(order, is_layer_count(b) ? "N" : b);
    return rank_a != rank_b ? rank_a < rank_b : strcmp(a, b) < 0;
}

static void order_symbols(const tl_space *space, const char *const *order, int out[TL_MAX_SYMBOLS]) {
    for (int i = 0; i < space->symbol_count; i++) {
        int place = i;
        for (; place > 0 && symbol_before(order, space->symbols[i].name, space->symbols[out[place - 1]].name); place--)
            out[place] = out[place - 1];
        out[place] = i;
    }
}

/* > 0 if a has more layer counts than b, in order; 0 if they belong to one group. */
static int compare_groups(const writer *w, const tl_monomial *a, const tl_monomial *b) {
    for (int i = 0; i < w->space->symbol_count; i++) {
        const int symbol = w->inner[i];
        if (is_layer_count(w->space->symbols[symbol].name) && a->exponent[symbol] != b->exponent[symbol])
            return a->exponent[symbol] - b->exponent[symbol];
    }
    return 0;
}

static bool term_before(const writer *w, const tl_monomial *a, const tl_monomial *b) {
    const int group = compare_groups(w, a, b);
    if (group)
        return group > 0;
    int degree = 0;
    for (int i = 0; i < w->space->symbol_count; i++)
        degree += a->exponent[i] - b->exponent[i];
    if (degree)
        return degree > 0;
    for (int i = 0; i < w->space->symbol_count; i++) {
        const int symbol = w->inner[i];
        if (a->exponent[symbol] != b->exponent[symbol])
            return a->exponent[symbol] > b->exponent[symbol];
    }
    return false;
}

static void sort_terms(const writer *w, tl_monomial *term, int count) {
    for (int i = 1; i < count; i++) {
        const tl_monomial moved = term[i];
        int place = i;
        for (; place > 0 && term_before(w, &moved, &term[place - 1]); place--)
            term[place] = term[place - 1];
        term[place] = moved;
    }
}

/* ---- products and sums ---- */

static uint64_t magnitude(int64_t value) { return value < 0 ? (uint64_t)-value : (uint64_t)value; }

static bool is_one(const writer *w, const tl_monomial *m) {
    bool one = magnitude(m->numerator) == 1;
    for (int i = 0; one && i < w->space->symbol_count; i++)
        one = m->exponent[i] <= 0;
    return one;
}

static void put_denominator(writer *w, const tl_monomial *m, const int *order) {
    int factors = m->denominator != 1;
    for (int i = 0; i < w->space->symbol_count; i++)
        factors += m->exponent[i] < 0;
    if (!factors)
        return;
    bool first = true;
    put(w, factors > 1 ? "/(" : "/");
    if (m->denominator != 1) {
        put_times(w, &first);
        put_number(w, (uint64_t)m->denominator);
    }
    for (int i = 0; i < w->space->symbol_count; i++) {
        if (m->exponent[order[i]] < 0) {
            put_times(w, &first);
            put_power(w, order[i], -m->exponent[order[i]]);
        }
    }
    if (factors > 1)
        put(w, ")");
}

/* What stands above the line; `alone` writes a lonely 1, which a factor before "(" does not need. */
static void put_numerator(writer *w, const tl_monomial *m, const int *order, bool *first, bool alone) {
    if (magnitude(m->numerator) != 1 || (alone && is_one(w, m))) {
        put_times(w, first);
        put_number(w, magnitude(m->numerator));
    }
    for (int i = 0; i < w->space->symbol_count; i++) {
        if (m->exponent[order[i]] > 0) {
            put_times(w, first);
            put_power(w, order[i], m->exponent[order[i]]);
        }
    }
}

/* Terms joined by their signs; at the beginning of a sum a plus is not written. */
static void put_terms(writer *w, const tl_monomial *term, int count, bool begin) {
    for (int i = 0; i < count; i++) {
        const bool negative = term[i].numerator < 0;
        if (begin && i == 0)
            put(w, negative ? "-" : "");
        else
            put(w, negative ? " - " : " + ");
        bool first = true;
        put_numerator(w, &term[i], w->inner, &first, true);
        put_denominator(w, &term[i], w->inner);
    }
}

/* One group of a sum: "N·(4·D² + 2·D)". Changes the terms. */
static void put_group(writer *w, tl_monomial *term, int count, bool begin) {
    tl_monomial layers = {.numerator = 1, .denominator = 1};
    bool all_negative = true, any = false;
    for (int i = 0; i < w->space->symbol_count; i++) {
        if (!is_layer_count(w->space->symbols[i].name) || term[0].exponent[i] <= 0)
            continue;
        layers.exponent[i] = term[0].exponent[i];
        any = true;
    }
    if (!any || count == 1) {
        put_terms(w, term, count, begin);
        return;
    }
    for (int t = 0; t < count; t++)
        all_negative = all_negative && term[t].numerator < 0;
    for (int t = 0; t < count; t++) {
        for (int i = 0; i < w->space->symbol_count; i++)
            term[t].exponent[i] = (int8_t)(term[t].exponent[i] - layers.exponent[i]);
        if (all_negative)
            term[t].numerator = -term[t].numerator;
    }
    if (begin)
        put(w, all_negative ? "-" : "");
    else
        put(w, all_negative ? " - " : " + ");
    bool first = true;
    put_numerator(w, &layers, w->inner, &first, false);
    put_times(w, &first);
    put(w, "(");
    put_terms(w, term, count, true);
    put(w, ")");
}

static void put_sum(writer *w, tl_monomial *term, int count) {
    for (int from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && compare_groups(w, &term[from], &term[to]) == 0;)
            to++;
        put_group(w, term + from, to - from, from == 0);
    }
}

/* The number all coefficients share: gcd of numerators over lcm of denominators; 1 if it does not fit. */
static void take_number(tl_monomial *term, int count, tl_monomial *front) {
    uint64_t numerator = 0, denominator = 1;
    for (int t = 0; t < count; t++) {
        numerator = tl_gcd_u64(numerator, magnitude(term[t].numerator));
        const uint64_t own = (uint64_t)term[t].denominator;
        const tl_u128 common = (tl_u128)(denominator / tl_gcd_u64(denominator, own)) * own;
        if (common > INT64_MAX)
            return;
        denominator = (uint64_t)common;
    }
    for (int t = 0; t < count; t++) {
        const uint64_t factor = denominator / (uint64_t)term[t].denominator;
        if ((tl_u128)(magnitude(term[t].numerator) / numerator) * factor > INT64_MAX)
            return;
    }
    for (int t = 0; t < count; t++) {
        term[t].numerator = term[t].numerator / (int64_t)numerator * ((int64_t)denominator / term[t].denominator);
        term[t].denominator = 1;
    }
    front->numerator = (int64_t)numerator;
    front->denominator = (int64_t)denominator;
}

static void take_symbols(const tl_space *space, tl_monomial *term, int count, tl_monomial *front) {
    for (int i = 0; i < space->symbol_count; i++) {
        const char *name = space->symbols[i].name;
        if (strcmp(name, "A") && strcmp(name, "B") && strcmp(name, "T") && !is_layer_count(name))
            continue;
        int8_t least = INT8_MAX;
        for (int t = 0; t < count; t++)
            least = term[t].exponent[i] < least ? term[t].exponent[i] : least;
        if (least <= 0)
            continue;
        front->exponent[i] = least;
        for (int t = 0; t < count; t++)
            term[t].exponent[i] = (int8_t)(term[t].exponent[i] - least);
    }
}

static void put_poly(writer *w, tl_monomial *term, int count) {
    if (count == 0) {
        put(w, "0");
        return;
    }
    bool first = true;
    if (count == 1) {
        put(w, term[0].numerator < 0 ? "-" : "");
        put_numerator(w, &term[0], w->front, &first, true);
        put_denominator(w, &term[0], w->front);
        return;
    }
    tl_monomial front = {.numerator = 1, .denominator = 1};
    take_number(term, count, &front);
    take_symbols(w->space, term, count, &front);
    sort_terms(w, term, count);
    bool all_negative = true;
    for (int t = 0; t < count; t++)
        all_negative = all_negative && term[t].numerator < 0;
    const bool brackets = !is_one(w, &front) || front.denominator != 1 || all_negative;
    for (int t = 0; all_negative && t < count; t++)
        term[t].numerator = -term[t].numerator;
    put(w, all_negative ? "-" : "");
    put_numerator(w, &front, w->front, &first, false);
    if (brackets) {
        put_times(w, &first);
        put(w, "(");
    }
    put_sum(w, term, count);
    put(w, brackets ? ")" : "");
    put_denominator(w, &front, w->front);
}

const char *tl_poly_text(tl_space *space, const tl_poly *p, int style) {
    if (!p || style < 0 || style >= TL_TEXT_STYLES)
        return NULL;
    if (p->text[style])
        return p->text[style];
    const tl_allocator *allocator = space->allocator;
    writer w = {.space = space, .style = style};
    order_symbols(space, front_order, w.front);
    order_symbols(space, inner_order, w.inner);
    const size_t bytes = ((size_t)p->count + 1) * sizeof(tl_monomial);
    tl_monomial *term = allocator->alloc(allocator->self, bytes, 16, TL_ALLOC_HOST);
    const char *text = NULL;
    if (term) {
        memcpy(term, p->term, (size_t)p->count * sizeof *term);
        put_poly(&w, term, p->count);
        allocator->release(allocator->self, term, bytes, TL_ALLOC_HOST);
        if (!w.failed)
            text = tl_arena_text(&space->arena, w.data, w.length);
        if (w.data)
            allocator->release(allocator->self, w.data, w.size, TL_ALLOC_HOST);
    }
    if (!text)
        tl_fail(&space->error, TL_ERR_MEMORY, "the text of a formula: the allocator failed");
    else
        ((tl_poly *)p)->text[style] = text; /* every polynomial was made writable by its space; this is its cache */
    return text;
}
