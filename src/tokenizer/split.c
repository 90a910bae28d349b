/* tokenizer/split.c: cutting a text into words by the patterns of a tokenizer. */
#include "tokenizer/split.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    LONGEST_PATTERN = 16384,
    WINDOW = 256,        /* bytes a match sees at first */
    ALLOWANCE = 1 << 24, /* bytes that may be looked at again, at the start of a text: a word of 2 MiB may be it … */
    ALLOWANCE_A_BYTE = 64, /* … and for each byte of a word found */
    STEPS = 20000,         /* backtracking within a window: at least, … */
    STEPS_A_BYTE = 16,     /* … and for each of its bytes */
    NESTING = 64           /* parentheses within parentheses */
};

typedef struct pattern_stage {
    pcre2_code *code;
    bool keep_matches, keep_gaps;
    bool whole; /* the pattern looks back, or at the start of the text: what is before a word must stay there */
    char where[64];
} pattern_stage;

struct tl_splitter {
    const tl_allocator *allocator;
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    int count;
    pattern_stage stages[TL_TOKENIZER_STAGES];
    char name[256];
};

struct tl_split_state {
    const tl_allocator *allocator;
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *data;
    int64_t allowance;
};

/* ---- memory: PCRE2's free does not say how much ---- */

enum { HEADER = 16 };

static void *pcre_alloc(size_t bytes, void *self) {
    const tl_allocator *allocator = self;
    if (bytes > SIZE_MAX - HEADER)
        return NULL;
    char *pointer = allocator->alloc(allocator->self, bytes + HEADER, 16, TL_ALLOC_HOST);
    if (!pointer)
        return NULL;
    memcpy(pointer, &bytes, sizeof bytes);
    return pointer + HEADER;
}

static void pcre_free(void *pointer, void *self) {
    const tl_allocator *allocator = self;
    size_t bytes;
    if (!pointer)
        return;
    char *start = (char *)pointer - HEADER;
    memcpy(&bytes, start, sizeof bytes);
    allocator->release(allocator->self, start, bytes + HEADER, TL_ALLOC_HOST);
}

static pcre2_general_context *new_general(const tl_allocator *allocator) {
    return pcre2_general_context_create(pcre_alloc, pcre_free, (void *)(uintptr_t)allocator);
}

/* ---- compiling ---- */

/* ^, \A, \G and \K depend on where the text starts, or move a match's start. */
static bool looks_at_start(const char *pattern, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (pattern[i] == '\\' && i + 1 < length) {
            i++;
            if (pattern[i] == 'A' || pattern[i] == 'G' || pattern[i] == 'K')
                return true;
        } else if (pattern[i] == '^' && (i == 0 || pattern[i - 1] != '['))
            return true;
    }
    return false;
}

static tl_status pattern_fails(const tl_splitter *s, const tl_tokenizer_stage *from, int code, size_t offset,
                               tl_error *error) {
    char message[160], quoted[160];
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for the pattern of %s", s->name, from->where);
    const size_t start = offset > 40 ? offset - 40 : 0;
    const size_t shown = offset <= from->length ? offset - start : 0;
    return tl_fail(error, TL_ERR_FORMAT, "%s: %s: the pattern does not compile at byte %zu: %s; read so far: %s%s",
                   s->name, from->where, offset, message, start > 0 ? "…" : "",
                   tl_quotable(from->pattern + start, shown, quoted, sizeof quoted));
}

/* Unicode's White_Space (PropList.txt). PCRE2's \s has U+180E besides, which Unicode took off in version 6.3; the libraries that
 * tokenizers were made with follow Unicode. */
#define SPACES                                                                                                         \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* Writes the pattern with \s as Unicode has it (\S too, outside of [ ]); `out` may be NULL to measure. */
static size_t with_unicode_spaces(const char *pattern, size_t length, char *out) {
    size_t n = 0, opened = 0;
    bool in_class = false;
    for (size_t i = 0; i < length; i++) {
        const char *piece = pattern + i;
        size_t piece_length = 1;
        if (pattern[i] == '\\' && i + 1 < length) {
            const char next = pattern[++i];
            piece_length = 2;
            if (next == 's' || (next == 'S' && !in_class)) {
                piece = in_class ? SPACES : next == 's' ? "[" SPACES "]" : "[^" SPACES "]";
                piece_length = strlen(piece);
            }
        } else if (!in_class && pattern[i] == '[') {
            in_class = true;
            opened = i + 1 + (i + 1 < length && pattern[i + 1] == '^');
        } else if (in_class && pattern[i] == ']' && i > opened) /* a ] in the first place is a letter */
            in_class = false;
        if (out)
            memcpy(out + n, piece, piece_length);
        n += piece_length;
    }
    return n;
}

/* The pattern compiled with Unicode's white space; NULL without memory, or where it would be too long. */
static pcre2_code *compile_spaces(const tl_splitter *s, const tl_tokenizer_stage *from, uint32_t options) {
    const size_t length = with_unicode_spaces(from->pattern, from->length, NULL);
    char *pattern = s->allocator->alloc(s->allocator->self, length + 1, 16, TL_ALLOC_HOST);
    int code;
    PCRE2_SIZE offset;
    if (!pattern)
        return NULL;
    (void)with_unicode_spaces(from->pattern, from->length, pattern);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, length, options, &code, &offset, s->compile);
    s->allocator->release(s->allocator->self, pattern, length + 1, TL_ALLOC_HOST);
    return compiled;
}

static bool quotes(const tl_tokenizer_stage *from) { return memmem(from->pattern, from->length, "\\Q", 2) != NULL; }

static tl_status compile(tl_splitter *s, const tl_tokenizer_stage *from, pattern_stage *to, tl_error *error) {
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    const uint32_t literal = PCRE2_UTF | PCRE2_LITERAL;
    int code;
    PCRE2_SIZE offset;
    uint32_t behind = 0;
    to->keep_matches = from->keep_matches;
    to->keep_gaps = from->keep_gaps;
    (void)snprintf(to->where, sizeof to->where, "%s", from->where);
    if (from->length > LONGEST_PATTERN)
        return tl_fail(error, TL_ERR_FORMAT, "%s: %s: a pattern of %zu bytes; up to %d would work", s->name,
                       from->where, from->length, (int)LONGEST_PATTERN);
    to->code = pcre2_compile((PCRE2_SPTR)from->pattern, from->length, from->literal ? literal : options, &code, &offset,
                             s->compile);
    if (!to->code)
        return pattern_fails(s, from, code, offset, error);
    if (!from->literal && !quotes(from)) {
        pcre2_code *compiled = compile_spaces(s, from, options);
        if (!compiled)
            return pattern_fails(s, from, PCRE2_ERROR_NOMEMORY, 0, error);
        pcre2_code_free(to->code);
        to->code = compiled;
    }
    (void)pcre2_pattern_info(to->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    to->whole = behind > 0 || (!from->literal && looks_at_start(from->pattern, from->length));
    /* Without a just-in-time compiler, or memory for it, matching is interpreted, with the same result. */
    (void)pcre2_jit_compile(to->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return TL_OK;
}

tl_status tl_splitter_new(const tl_tokenizer_stage *stages, int count, const char *name, const tl_allocator *allocator,
                          tl_splitter **splitter, tl_error *error) {
    tl_status status = TL_OK;
    tl_splitter *s = allocator->alloc(allocator->self, sizeof *s, 16, TL_ALLOC_HOST);
    *splitter = s;
    if (!s)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to split by patterns");
    memset(s, 0, sizeof *s);
    s->allocator = allocator;
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->general = new_general(allocator);
    s->compile = s->general ? pcre2_compile_context_create(s->general) : NULL;
    if (!s->compile || pcre2_set_parens_nest_limit(s->compile, NESTING) != 0)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to split by patterns");
    for (int i = 0; i < count && status == TL_OK; i++) {
        status = compile(s, &stages[i], &s->stages[i], error);
        s->count = i + 1;
    }
    return status;
}

void tl_splitter_free(tl_splitter *s) {
    if (!s)
        return;
    for (int i = 0; i < s->count; i++)
        pcre2_code_free(s->stages[i].code);
    pcre2_compile_context_free(s->compile);
    pcre2_general_context_free(s->general);
    s->allocator->release(s->allocator->self, s, sizeof *s, TL_ALLOC_HOST);
}

tl_split_state *tl_split_state_new(const tl_splitter *splitter, const tl_allocator *allocator, tl_error *error) {
    tl_split_state *state = allocator->alloc(allocator->self, sizeof *state, 16, TL_ALLOC_HOST);
    (void)splitter;
    if (state) {
        memset(state, 0, sizeof *state);
        state->allocator = allocator;
        state->general = new_general(allocator);
        state->context = state->general ? pcre2_match_context_create(state->general) : NULL;
        state->data = state->general ? pcre2_match_data_create(1, state->general) : NULL;
        if (state->context && state->data) {
            tl_split_state_reset(state);
            return state;
        }
    }
    tl_split_state_free(state);
    tl_fail(error, TL_ERR_MEMORY, "no memory to split a text into words");
    return NULL;
}

void tl_split_state_free(tl_split_state *state) {
    if (!state)
        return;
    pcre2_match_data_free(state->data);
    pcre2_match_context_free(state->context);
    pcre2_general_context_free(state->general);
    state->allocator->release(state->allocator->self, state, sizeof *state, TL_ALLOC_HOST);
}

void tl_split_state_reset(tl_split_state *state) { state->allowance = ALLOWANCE; }

/* ---- matching ---- */

typedef struct split {
    const tl_splitter *splitter;
    tl_split_state *state;
    const char *start; /* of the text, for places in messages */
    uint64_t at;
    tl_split_word *word;
    void *self;
    tl_error *error;
} split;

typedef enum outcome { FOUND, NOT_FOUND, MORE_NEEDED, FAILED } outcome;

static size_t whole_character(const char *text, size_t length, size_t end) {
    if (end >= length)
        return length;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

static outcome match_fails(const split *s, const pattern_stage *stage, int code, const char *place) {
    char message[160];
    const unsigned long long at = s->at + (uint64_t)(place - s->start);
    const char *name = s->splitter->name;
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT)
        tl_fail(s->error, TL_ERR_MEMORY, "no memory to split the text at byte %llu", at);
    else if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT || code == PCRE2_ERROR_JIT_STACKLIMIT ||
             code == 0)
        tl_fail(
            s->error, TL_ERR_UNSUPPORTED,
            "%s: %s: the pattern takes too many steps on the text at byte %llu (it tries the same letters again and "
            "again, or a word has megabytes); a pattern that decides sooner, or a text with blanks, would work",
            name, stage->where, at);
    else {
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        tl_fail(s->error, TL_ERR_FORMAT, "%s: %s: matching at byte %llu of the text: %s", name, stage->where, at,
                message);
    }
    return FAILED;
}

/* The first match at or behind `from`, in a window that grows. */
static outcome find(const split *s, const pattern_stage *stage, const char *text, size_t length, size_t from,
                    bool final, size_t *begin, size_t *end) {
    tl_split_state *state = s->state;
    size_t window = WINDOW;
    for (;;) {
        const size_t limit = whole_character(text, length, window < length - from ? from + window : length);
        const bool last = limit == length;
        const size_t seen = limit - from;
        (void)pcre2_set_match_limit(state->context,
                                    (uint32_t)(STEPS + STEPS_A_BYTE * (seen < 1 << 24 ? seen : 1 << 24)));
        const int code = pcre2_match(stage->code, (PCRE2_SPTR)text, limit, from,
                                     PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (last && final ? 0 : PCRE2_PARTIAL_HARD),
                                     state->data, state->context);
        if (code >= 0) {
            const PCRE2_SIZE *places = pcre2_get_ovector_pointer(state->data);
            *begin = places[0];
            *end = places[1];
            return *begin >= from && *begin < *end ? FOUND : match_fails(s, stage, 0, text + from);
        }
        if (code == PCRE2_ERROR_NOMATCH) {
            if (last)
                return final ? NOT_FOUND : MORE_NEEDED;
            from = limit; /* no match starts in what was seen */
            window = WINDOW;
            continue;
        }
        if (code != PCRE2_ERROR_PARTIAL)
            return match_fails(s, stage, code, text + from);
        if (last)
            return MORE_NEEDED;
        const PCRE2_SIZE first = pcre2_get_ovector_pointer(state->data)[0];
        from = first > from ? first : from; /* what starts before was seen to fail */
        state->allowance -= (int64_t)window;
        if (state->allowance < 0)
            return match_fails(s, stage, 0, text + from);
        window *= 2;
    }
}

static tl_status split_stage(const split *s, int depth, const char *text, size_t length, bool final, size_t *used);

static tl_status piece(const split *s, int depth, const char *text, size_t length) {
    size_t used;
    if (length == 0)
        return TL_OK;
    return depth == s->splitter->count ? s->word(s->self, text, length)
                                       : split_stage(s, depth, text, length, true, &used);
}

static tl_status split_stage(const split *s, int depth, const char *text, size_t length, bool final, size_t *used) {
    const pattern_stage *stage = &s->splitter->stages[depth];
    size_t at = 0, begin = 0, end = 0;
    tl_status status = TL_OK;
    *used = 0;
    if (stage->whole && !final)
        return TL_OK;
    while (status == TL_OK && at < length) {
        const outcome found = find(s, stage, text, length, at, final, &begin, &end);
        if (found == FAILED)
            return s->error && s->error->status != TL_OK ? s->error->status : TL_ERR_UNSUPPORTED;
        if (found == MORE_NEEDED)
            break;
        if (found == NOT_FOUND)
            begin = end = length;
        if (depth == 0)
            s->state->allowance += ALLOWANCE_A_BYTE * (int64_t)(end - at);
        if (stage->keep_gaps)
            status = piece(s, depth + 1, text + at, begin - at);
        if (status == TL_OK && stage->keep_matches)
            status = piece(s, depth + 1, text + begin, end - begin);
        at = end;
        *used = at;
    }
    return status;
}

tl_status tl_split(const tl_splitter *splitter, tl_split_state *state, const char *text, size_t length, bool final,
                   uint64_t at, tl_split_word *word, void *self, size_t *used, tl_error *error) {
    const split s = {
        .splitter = splitter, .state = state, .start = text, .at = at, .word = word, .self = self, .error = error};
    if (splitter->count == 0) {
        *used = final ? length : 0;
        return final ? piece(&s, 0, text, length) : TL_OK;
    }
    return split_stage(&s, 0, text, length, final, used);
}
