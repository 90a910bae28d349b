/* The tokenizer of all patterns, its messages, and the names it hands out. */
#include "axes/pattern.h"

#include <stdio.h>
#include <string.h>

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

/* A window of the pattern around the place, one line, nothing in it that a terminal would obey. */
static void excerpt(const tl_pattern *p, int at, char *line, size_t size, int *shift) {
    enum { WIDTH = 100, BEFORE = 60 };
    int length = (int)strlen(p->text), first = at > BEFORE ? at - BEFORE : 0, to = 0;
    *shift = first;
    for (int i = first; i < length && i < first + WIDTH && (size_t)to + 1 < size; i++) {
        unsigned char c = (unsigned char)p->text[i];
        line[to++] = (char)(is_blank((char)c) ? ' ' : c < 0x20 || c >= 0x7f ? '?' : c);
    }
    line[to] = '\0';
}

tl_status tl_pattern_fail(const tl_pattern *p, int at, int length, tl_status status, const char *format, ...) {
    char message[560], line[128], mark[128];
    int shift = 0, to = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (char *c = message; *c != '\0'; c++) /* it may quote a group of the pattern as it was written */
        *c = (char)(is_blank(*c) ? ' ' : (unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f ? '?' : *c);
    excerpt(p, at < 0 ? 0 : at, line, sizeof line, &shift);
    if (at >= 0) {
        for (int i = shift; i < at && to < 100; i++)
            mark[to++] = ' ';
        mark[to++] = '^';
        for (int i = 1; i < length && to < 100; i++)
            mark[to++] = '~';
    }
    mark[to] = '\0';
    return tl_ctx_fail(p->ctx, status, "%s (%s): %s\n    %s%s%s", p->what, p->site, message, line,
                       at >= 0 ? "\n    " : "", mark);
}

static tl_status read_number(tl_pattern *p, int *at, tl_token *token) {
    token->kind = TL_TOKEN_NUMBER;
    while (is_digit(p->text[*at])) {
        if (!tl_mul_i64(token->number, 10, &token->number) ||
            !tl_add_i64(token->number, p->text[*at] - '0', &token->number))
            return tl_pattern_fail(p, token->at, 1, TL_ERR_OVERFLOW, "a number beyond 2^63");
        (*at)++;
    }
    if (is_letter(p->text[*at]))
        return tl_pattern_fail(p, token->at, *at - token->at + 1, TL_ERR_ARGUMENT,
                               "a number and a name without a blank between them; a name starts with a letter");
    return TL_OK;
}

static tl_status read_token(tl_pattern *p, int *at, tl_token *token) {
    static const struct {
        const char *text;
        tl_token_kind kind;
    } fixed[] = {{"...", TL_TOKEN_ELLIPSIS}, {"->", TL_TOKEN_ARROW}, {"(", TL_TOKEN_OPEN},
                 {")", TL_TOKEN_CLOSE},      {",", TL_TOKEN_COMMA},  {"*", TL_TOKEN_STAR}};
    const char *here = p->text + *at;
    *token = (tl_token){.at = *at};
    if (is_digit(*here))
        return read_number(p, at, token);
    if (is_letter(*here)) {
        token->kind = TL_TOKEN_NAME;
        while (is_letter(p->text[*at]) || is_digit(p->text[*at]))
            (*at)++;
        return TL_OK;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        size_t length = strlen(fixed[i].text);
        if (strncmp(here, fixed[i].text, length) == 0) {
            token->kind = fixed[i].kind;
            *at += (int)length;
            return TL_OK;
        }
    }
    unsigned char c = (unsigned char)*here;
    if (c == '.')
        return tl_pattern_fail(p, *at, 1, TL_ERR_ARGUMENT, "a dot; an ellipsis is three of them, ...");
    if (c == '-' || c == '>')
        return tl_pattern_fail(p, *at, 1, TL_ERR_ARGUMENT, "'%c' by itself; an arrow is ->", c);
    if (c < 0x20 || c >= 0x7f)
        return tl_pattern_fail(p, *at, 1, TL_ERR_ARGUMENT,
                               "byte 0x%02x has no meaning; names are letters, digits and underscores", c);
    return tl_pattern_fail(p, *at, 1, TL_ERR_ARGUMENT, "'%c' has no meaning; names are letters, digits and underscores",
                           c);
}

tl_status tl_pattern_read(tl_pattern *p, tl_ctx *ctx, const char *what, const char *text, const char *site) {
    p->ctx = ctx;
    p->what = what;
    p->site = site;
    p->text = text ? text : "";
    p->n = 0;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!text)
        return tl_pattern_fail(p, -1, 0, TL_ERR_ARGUMENT, "no pattern");
    if (strnlen(text, TL_PATTERN_BYTES + 1) > TL_PATTERN_BYTES)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s (%s): the pattern is longer than %d bytes", what, site,
                           TL_PATTERN_BYTES);
    int at = 0;
    for (;;) {
        while (is_blank(text[at]))
            at++;
        if (text[at] == '\0')
            break;
        if (p->n == TL_PATTERN_TOKENS)
            return tl_pattern_fail(p, at, 1, TL_ERR_ARGUMENT, "more than %d words", TL_PATTERN_TOKENS);
        tl_token *token = &p->token[p->n];
        tl_status status = read_token(p, &at, token);
        if (status != TL_OK)
            return status;
        token->length = at - token->at;
        p->n++;
    }
    p->token[p->n] = (tl_token){.kind = TL_TOKEN_END, .at = at, .length = 1};
    return TL_OK;
}

tl_status tl_pattern_arrow(const tl_pattern *p, int *arrow) {
    *arrow = -1;
    for (int i = 0; i < p->n; i++) {
        if (p->token[i].kind != TL_TOKEN_ARROW)
            continue;
        if (*arrow >= 0)
            return tl_pattern_fail(p, p->token[i].at, 2, TL_ERR_ARGUMENT, "a second ->");
        *arrow = i;
    }
    if (*arrow < 0)
        return tl_pattern_fail(p, p->token[p->n].at, 1, TL_ERR_ARGUMENT,
                               "no -> between what the tensor is and what it should be");
    return TL_OK;
}

/* `length` characters with every run of blanks as one space, into `to` unless that is NULL; returns how many there are. */
static size_t name_plain(const char *from, int length, char *to) {
    size_t n = 0;
    for (int i = 0; i < length; i++) {
        if (is_blank(from[i]) && i > 0 && is_blank(from[i - 1]))
            continue;
        if (to)
            to[n] = is_blank(from[i]) ? ' ' : from[i];
        n++;
    }
    return n;
}

static bool name_is(const char *name, const char *from, int length) {
    size_t n = 0;
    for (int i = 0; i < length; i++) {
        if (is_blank(from[i]) && i > 0 && is_blank(from[i - 1]))
            continue;
        if (name[n++] != (is_blank(from[i]) ? ' ' : from[i]))
            return false;
    }
    return name[n] == '\0';
}

/* A group "(a  b)" is a name too, that of the axis it makes. */
const char *tl_pattern_name(const tl_pattern *p, int at, int length) {
    tl_axes_state *state = tl_axes_state_of(p->ctx);
    if (!state)
        return NULL;
    for (int64_t i = 0; i < state->names; i++)
        if (name_is(state->name[i], p->text + at, length))
            return state->name[i];
    if (!tl_host_grow(p->ctx, &state->name, sizeof *state->name, state->names + 1, &state->name_capacity))
        return NULL;
    char *name = tl_host_alloc(p->ctx, name_plain(p->text + at, length, NULL) + 1);
    if (!name)
        return NULL;
    name[name_plain(p->text + at, length, name)] = '\0';
    return state->name[state->names++] = name;
}

static void close_state(tl_ctx *ctx) {
    tl_axes_state *state = ctx->axes;
    for (size_t i = 0; i < sizeof state->plan / sizeof *state->plan; i++)
        tl_einsum_plan_free(ctx, state->plan[i]);
    for (int64_t i = 0; i < state->names; i++)
        tl_host_free(ctx, state->name[i], strlen(state->name[i]) + 1);
    tl_host_free(ctx, state->name, (size_t)state->name_capacity * sizeof *state->name);
    tl_host_free(ctx, state, sizeof *state);
    ctx->axes = NULL;
}

tl_axes_state *tl_axes_state_of(tl_ctx *ctx) {
    if (!ctx->axes && (ctx->axes = tl_host_alloc(ctx, sizeof *ctx->axes)))
        ctx->axes_close = close_state;
    return ctx->axes;
}
