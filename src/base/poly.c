/* Spaces, symbols, interning and arithmetic of polynomials. */
#include "base/poly.h"

#include <string.h>

typedef enum poly_operation { POLY_ADD = 1, POLY_SUB, POLY_MUL, POLY_DIV } poly_operation;

typedef __int128 wide;

enum { FIRST_TABLE = 256, FIRST_SCRATCH = 64 };

/* ---- memory ---- */

static void *space_array(tl_space *space, size_t count, size_t size) {
    if (count > SIZE_MAX / 2 / size)
        return NULL;
    return space->allocator->alloc(space->allocator->self, count * size, 16, TL_ALLOC_HOST);
}

static void space_array_free(tl_space *space, void *array, size_t count, size_t size) {
    if (array)
        space->allocator->release(space->allocator->self, array, count * size, TL_ALLOC_HOST);
}

static void *fail_memory(tl_space *space) {
    tl_fail(&space->error, TL_ERR_MEMORY, "a formula could not be kept: the allocator failed (%u formulas so far)",
            (unsigned)space->table_count);
    return NULL;
}

tl_space *tl_space_new(const tl_allocator *allocator, tl_error *error) {
    if (!allocator)
        allocator = tl_allocator_default();
    tl_space *space = allocator->alloc(allocator->self, sizeof *space, 16, TL_ALLOC_HOST);
    if (!space) {
        tl_fail(error, TL_ERR_MEMORY, "a space for formulas: the allocator failed on %zu bytes", sizeof *space);
        return NULL;
    }
    memset(space, 0, sizeof *space);
    space->allocator = allocator;
    tl_arena_open(&space->arena, allocator);
    return space;
}

void tl_space_free(tl_space *space) {
    if (!space)
        return;
    tl_arena_close(&space->arena);
    space_array_free(space, space->table, space->table_size, sizeof *space->table);
    space_array_free(space, space->memo, space->memo_size, sizeof *space->memo);
    space_array_free(space, space->scratch, space->scratch_size, sizeof *space->scratch);
    space->allocator->release(space->allocator->self, space, sizeof *space, TL_ALLOC_HOST);
}

const tl_error *tl_space_error(const tl_space *space) { return &space->error; }

/* A place for `count` monomials; what was there before is not kept. */
static tl_monomial *space_scratch(tl_space *space, size_t count) {
    if (count <= space->scratch_size)
        return space->scratch;
    size_t size = space->scratch_size ? space->scratch_size : FIRST_SCRATCH;
    while (size < count)
        size *= 2;
    tl_monomial *scratch = space_array(space, size, sizeof *scratch);
    if (!scratch)
        return fail_memory(space);
    space_array_free(space, space->scratch, space->scratch_size, sizeof *space->scratch);
    space->scratch = scratch;
    space->scratch_size = size;
    return scratch;
}

/* ---- hashing ---- */

static inline uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 over the golden ratio */
    return hash ^ (hash >> 29);
}

static uint64_t hash_terms(const tl_monomial *term, int count) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        hash = mix(hash, (uint64_t)term[i].numerator);
        hash = mix(hash, (uint64_t)term[i].denominator);
        for (size_t w = 0; w < TL_MAX_SYMBOLS / 8; w++)
            if (term[i].word[w])
                hash = mix(hash, term[i].word[w] + w);
    }
    return hash;
}

static bool table_grow(tl_space *space) {
    size_t size = space->table_size ? space->table_size * 2 : FIRST_TABLE;
    tl_poly **table = space_array(space, size, sizeof *table);
    if (!table)
        return false;
    memset(table, 0, size * sizeof *table);
    for (size_t i = 0; i < space->table_size; i++) {
        if (!space->table[i])
            continue;
        size_t slot = space->table[i]->hash & (size - 1);
        while (table[slot])
            slot = (slot + 1) & (size - 1);
        table[slot] = space->table[i];
    }
    space_array_free(space, space->table, space->table_size, sizeof *space->table);
    space->table = table;
    space->table_size = size;
    return true;
}

/* The one polynomial with these terms (sorted, merged, none zero). */
static const tl_poly *intern(tl_space *space, const tl_monomial *term, int count) {
    if (space->table_count * 2 >= space->table_size && !table_grow(space))
        return fail_memory(space);
    const size_t bytes = (size_t)count * sizeof *term;
    const uint64_t hash = hash_terms(term, count);
    size_t slot = hash & (space->table_size - 1);
    for (tl_poly *p; (p = space->table[slot]) != NULL; slot = (slot + 1) & (space->table_size - 1))
        if (p->hash == hash && p->count == count && (count == 0 || !memcmp(p->term, term, bytes)))
            return p;
    tl_poly *p = tl_arena_alloc(&space->arena, sizeof *p + bytes);
    if (!p)
        return fail_memory(space);
    memset(p, 0, sizeof *p);
    p->hash = hash;
    p->id = (uint32_t)space->table_count++;
    p->count = count;
    if (count)
        memcpy(p->term, term, bytes);
    space->table[slot] = p;
    return p;
}

static size_t memo_slot(const tl_memo *memo, size_t size, uintptr_t operation, const tl_poly *a, const tl_poly *b) {
    size_t slot = (size_t)mix(mix(operation, (uintptr_t)a), (uintptr_t)b) & (size - 1);
    while (memo[slot].a && !(memo[slot].a == a && memo[slot].b == b && memo[slot].operation == operation))
        slot = (slot + 1) & (size - 1);
    return slot;
}

static bool memo_grow(tl_space *space) {
    size_t size = space->memo_size ? space->memo_size * 2 : FIRST_TABLE;
    tl_memo *memo = space_array(space, size, sizeof *memo);
    if (!memo)
        return false;
    memset(memo, 0, size * sizeof *memo);
    for (size_t i = 0; i < space->memo_size; i++) {
        const tl_memo *m = &space->memo[i];
        if (m->a)
            memo[memo_slot(memo, size, m->operation, m->a, m->b)] = *m;
    }
    space_array_free(space, space->memo, space->memo_size, sizeof *space->memo);
    space->memo = memo;
    space->memo_size = size;
    return true;
}

/* ---- symbols ---- */

int tl_space_find(const tl_space *space, const char *name) {
    for (int i = 0; i < space->symbol_count; i++)
        if (!strcmp(space->symbols[i].name, name))
            return i;
    return -1;
}

int tl_space_symbols(const tl_space *space, const tl_symbol **symbols) {
    if (symbols)
        *symbols = space->symbols;
    return space->symbol_count;
}

static const tl_poly *symbol_check(tl_space *space, const char *name, int64_t value, int found) {
    const tl_symbol *symbol = &space->symbols[found];
    if (symbol->value == value)
        return space->symbol_poly[found];
    tl_fail(&space->error, TL_ERR_ARGUMENT, "the symbol %s is %lld (from %s) and cannot be %lld too; use another name",
            name, (long long)symbol->value, symbol->source, (long long)value);
    return NULL;
}

const tl_poly *tl_poly_symbol(tl_space *space, const char *name, int64_t value, const char *source) {
    if (!name || !name[0] || value < 0) {
        tl_fail(&space->error, TL_ERR_ARGUMENT, "a symbol needs a name and a value of at least 0, found \"%s\" = %lld",
                name ? name : "", (long long)value);
        return NULL;
    }
    int index = tl_space_find(space, name);
    if (index >= 0)
        return symbol_check(space, name, value, index);
    index = space->symbol_count;
    if (index == TL_MAX_SYMBOLS) {
        tl_fail(&space->error, TL_ERR_UNSUPPORTED, "the symbol %s is one too many: a space holds %d", name,
                TL_MAX_SYMBOLS);
        return NULL;
    }
    if (!source)
        source = "";
    const char *own_name = tl_arena_text(&space->arena, name, strlen(name));
    const char *own_source = tl_arena_text(&space->arena, source, strlen(source));
    if (!own_name || !own_source)
        return fail_memory(space);
    tl_monomial term = {.numerator = 1, .denominator = 1};
    term.exponent[index] = 1;
    const tl_poly *p = intern(space, &term, 1);
    if (!p)
        return NULL;
    space->symbols[index] = (tl_symbol){own_name, value, own_source};
    space->symbol_poly[index] = p;
    space->symbol_count++;
    return p;
}

/* ---- coefficients ---- */

uint64_t tl_gcd_u64(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static wide gcd_wide(wide a, wide b) {
    if (a < 0)
        a = -a;
    while (b) {
        if (a <= INT64_MAX && b <= INT64_MAX)
            return (wide)tl_gcd_u64((uint64_t)a, (uint64_t)b);
        wide rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* numerator/denominator (denominator > 0) reduced into `term`; false and a sticky error if it does not fit. */
static bool set_coefficient(tl_space *space, tl_monomial *term, wide numerator, wide denominator) {
    if (denominator != 1) {
        wide divisor = gcd_wide(numerator, denominator);
        numerator /= divisor;
        denominator /= divisor;
    }
    /* INT64_MIN is left out so that negation and absolute values never overflow. */
    if (numerator > INT64_MAX || numerator < -INT64_MAX || denominator > INT64_MAX) {
        tl_fail(&space->error, TL_ERR_OVERFLOW, "a coefficient of a formula is beyond 64 bits");
        return false;
    }
    term->numerator = (int64_t)numerator;
    term->denominator = (int64_t)denominator;
    return true;
}

static bool add_coefficients(tl_space *space, tl_monomial *out, const tl_monomial *a, const tl_monomial *b) {
    if (a->denominator == b->denominator)
        return set_coefficient(space, out, (wide)a->numerator + b->numerator, a->denominator);
    /* Over the least common denominator: each product stays below 2^126, their sum below 2^127. */
    const int64_t divisor = (int64_t)tl_gcd_u64((uint64_t)a->denominator, (uint64_t)b->denominator);
    const wide left = (wide)a->numerator * (b->denominator / divisor);
    const wide right = (wide)b->numerator * (a->denominator / divisor);
    return set_coefficient(space, out, left + right, (wide)a->denominator * (b->denominator / divisor));
}

/* out = a * b, or a / b; exponents and coefficients checked. */
static bool combine(tl_space *space, tl_monomial *out, const tl_monomial *a, const tl_monomial *b, bool divide) {
    int high = 0, low = 0;
    for (int i = 0; i < TL_MAX_SYMBOLS; i++) {
        int sum = divide ? a->exponent[i] - b->exponent[i] : a->exponent[i] + b->exponent[i];
        high = sum > high ? sum : high;
        low = sum < low ? sum : low;
        out->exponent[i] = (int8_t)sum;
    }
    if (high > INT8_MAX || low < -INT8_MAX) {
        tl_fail(&space->error, TL_ERR_OVERFLOW, "an exponent of a formula is beyond %d", INT8_MAX);
        return false;
    }
    if (!divide)
        return set_coefficient(space, out, (wide)a->numerator * b->numerator, (wide)a->denominator * b->denominator);
    const wide sign = b->numerator < 0 ? -1 : 1;
    return set_coefficient(space, out, sign * a->numerator * b->denominator, sign * b->numerator * a->denominator);
}

/* ---- arithmetic ---- */

int tl_monomial_compare(const tl_monomial *a, const tl_monomial *b) {
    /* Flipping each byte's sign bit makes signed exponents compare as one unsigned word: lexicographic, whatever the
     * byte order of the machine. */
    const uint64_t flip = UINT64_C(0x8080808080808080);
    for (size_t w = 0; w < TL_MAX_SYMBOLS / 8; w++)
        if (a->word[w] != b->word[w])
            return (a->word[w] ^ flip) < (b->word[w] ^ flip) ? -1 : 1;
    return 0;
}

const tl_poly *tl_poly_fraction(tl_space *space, int64_t numerator, int64_t denominator) {
    tl_monomial term = {.numerator = 0};
    if (denominator == 0) {
        tl_fail(&space->error, TL_ERR_ARGUMENT, "the fraction %lld/0 in a formula", (long long)numerator);
        return NULL;
    }
    const wide sign = denominator < 0 ? -1 : 1;
    if (numerator == 0)
        return intern(space, NULL, 0);
    if (!set_coefficient(space, &term, sign * numerator, sign * denominator))
        return NULL;
    return intern(space, &term, 1);
}

const tl_poly *tl_poly_constant(tl_space *space, int64_t value) { return tl_poly_fraction(space, value, 1); }

/* a + sign*b: one merge of two sorted lists. */
static const tl_poly *merge(tl_space *space, const tl_poly *a, const tl_poly *b, int sign) {
    tl_monomial *out = space_scratch(space, (size_t)a->count + (size_t)b->count + 1);
    if (!out)
        return NULL;
    int i = 0, j = 0, count = 0;
    while (i < a->count || j < b->count) {
        int order = i == a->count ? -1 : j == b->count ? 1 : tl_monomial_compare(&a->term[i], &b->term[j]);
        if (order > 0) {
            out[count++] = a->term[i++];
            continue;
        }
        tl_monomial right = b->term[j++];
        right.numerator *= sign;
        if (order < 0) {
            out[count++] = right;
            continue;
        }
        out[count] = right;
        if (!add_coefficients(space, &out[count], &a->term[i++], &right))
            return NULL;
        if (out[count].numerator)
            count++;
    }
    return intern(space, out, count);
}

/* Every term of a times (or over) one monomial; the order of the terms stays. */
static const tl_poly *scale(tl_space *space, const tl_poly *a, const tl_monomial *by, bool divide) {
    tl_monomial *out = space_scratch(space, (size_t)a->count + 1);
    if (!out)
        return NULL;
    for (int i = 0; i < a->count; i++)
        if (!combine(space, &out[i], &a->term[i], by, divide))
            return NULL;
    return intern(space, out, a->count);
}

static const tl_poly *multiply(tl_space *space, const tl_poly *a, const tl_poly *b) {
    if (a->count == 1)
        return scale(space, b, &a->term[0], false);
    if (b->count == 1)
        return scale(space, a, &b->term[0], false);
    const tl_poly *sum = intern(space, NULL, 0);
    for (int i = 0; sum && i < a->count; i++) {
        const tl_poly *row = scale(space, b, &a->term[i], false);
        sum = row ? merge(space, sum, row, 1) : NULL;
    }
    return sum;
}

static const tl_poly *compute(tl_space *space, poly_operation operation, const tl_poly *a, const tl_poly *b) {
    switch (operation) {
    case POLY_ADD:
        return merge(space, a, b, 1);
    case POLY_SUB:
        return merge(space, a, b, -1);
    case POLY_MUL:
        return multiply(space, a, b);
    case POLY_DIV:
        return scale(space, a, &b->term[0], true);
    }
    return NULL;
}

static const tl_poly *remembered(tl_space *space, poly_operation operation, const tl_poly *a, const tl_poly *b) {
    if (space->memo_count * 2 >= space->memo_size && !memo_grow(space))
        return fail_memory(space);
    tl_memo *memo = &space->memo[memo_slot(space->memo, space->memo_size, operation, a, b)];
    if (memo->a)
        return memo->result;
    const tl_poly *result = compute(space, operation, a, b);
    if (result) {
        *memo = (tl_memo){a, b, result, operation};
        space->memo_count++;
    }
    return result;
}

const tl_poly *tl_poly_add(tl_space *space, const tl_poly *a, const tl_poly *b) {
    if (!a || !b)
        return NULL;
    if (!a->count)
        return b;
    if (!b->count)
        return a;
    return a->id <= b->id ? remembered(space, POLY_ADD, a, b) : remembered(space, POLY_ADD, b, a);
}

const tl_poly *tl_poly_sub(tl_space *space, const tl_poly *a, const tl_poly *b) {
    if (!a || !b)
        return NULL;
    return b->count ? remembered(space, POLY_SUB, a, b) : a;
}

const tl_poly *tl_poly_mul(tl_space *space, const tl_poly *a, const tl_poly *b) {
    if (!a || !b)
        return NULL;
    return a->id <= b->id ? remembered(space, POLY_MUL, a, b) : remembered(space, POLY_MUL, b, a);
}

const tl_poly *tl_poly_div(tl_space *space, const tl_poly *a, const tl_poly *b) {
    if (!a || !b || b->count != 1)
        return NULL;
    return remembered(space, POLY_DIV, a, b);
}
