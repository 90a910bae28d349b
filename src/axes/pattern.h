/* axes/pattern.h: what all patterns share: tokens, messages that point at a place, names that live as long as the context. */
#ifndef TALLY_AXES_PATTERN_H
#define TALLY_AXES_PATTERN_H

#include "op/core.h"
#include "tally/axes.h"

enum { TL_PATTERN_TOKENS = 256, TL_PATTERN_BYTES = 2000, TL_SIDE_ATOMS = 32 };

typedef enum tl_token_kind {
    TL_TOKEN_END,
    TL_TOKEN_NAME,
    TL_TOKEN_NUMBER,
    TL_TOKEN_OPEN,
    TL_TOKEN_CLOSE,
    TL_TOKEN_ELLIPSIS,
    TL_TOKEN_ARROW,
    TL_TOKEN_COMMA,
    TL_TOKEN_STAR
} tl_token_kind;

typedef struct tl_token {
    tl_token_kind kind;
    int at, length; /* in bytes of the pattern */
    int64_t number;
} tl_token;

typedef struct tl_pattern {
    tl_ctx *ctx;
    const char *what, *site, *text;
    int n; /* tokens before END */
    tl_token token[TL_PATTERN_TOKENS + 1];
} tl_pattern;

/* Reads the tokens; refuses bytes that belong to none. */
tl_status tl_pattern_read(tl_pattern *p, tl_ctx *ctx, const char *what, const char *text, const char *site);
/* "what (site): message", the pattern below it, and a caret with `length` − 1 tildes below its byte `at`; at < 0: no caret. */
tl_status tl_pattern_fail(const tl_pattern *p, int at, int length, tl_status status, const char *format, ...)
    TL_PRINTF(5, 6);
/* The text of bytes of the pattern as a name that lives as long as the context; NULL and the error sticks. */
const char *tl_pattern_name(const tl_pattern *p, int at, int length);
/* The only "->" of the pattern as a token's index; fails if there is none or another. */
tl_status tl_pattern_arrow(const tl_pattern *p, int *arrow);

/* One axis of a side. */
typedef struct tl_atom {
    const char *name; /* NULL: a number, `...` or `*` */
    int64_t number;   /* an unnamed axis' length; 0: none */
    tl_token_kind kind;
    int at, length;
} tl_atom;

/* Axes of a tensor: each of one atom, or several in parentheses, or none (`()`). */
typedef struct tl_side {
    int n_atom, n_group;
    tl_atom atom[TL_SIDE_ATOMS];
    struct {
        int first, n, at, length;
        bool composed;
    } group[TL_SIDE_ATOMS];
    int special; /* the group of `...` (or `*`), −1: none */
} tl_side;

typedef struct tl_side_rules {
    bool ellipsis, ellipsis_inside, star, underscore, numbers, composed, repeated;
} tl_side_rules;

/* Tokens [from, to) as a side; refuses what the rules do, unbalanced and nested parentheses, and a name met twice. */
tl_status tl_side_parse(const tl_pattern *p, int from, int to, tl_side_rules rules, tl_side *side);

/* What the context keeps for this layer. */
typedef struct tl_axes_state {
    char **name;
    int64_t names, name_capacity;
    struct tl_einsum_plan *plan[32];
    int next;     /* the plan that goes next */
    int64_t made; /* plans made so far */
} tl_axes_state;
tl_axes_state *tl_axes_state_of(tl_ctx *ctx);
void tl_einsum_plan_free(tl_ctx *ctx, struct tl_einsum_plan *plan);

#endif
