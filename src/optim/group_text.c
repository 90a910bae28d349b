/* Parameter groups as one text, as a command line and a run's file have them. */
#include "optim/optimizer.h"
#include "tally/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    tl_group_list *list;
    const tl_optimizer_options *base;
    tl_error *error;
    tl_parameter_group *group;
    bool given[6]; /* by the place in `rules` */
} reader;

static const char *const rules[] = {"lr", "lr-factor", "weight-decay", "beta1", "beta2", "epsilon"};
enum { LR, LR_FACTOR, WEIGHT_DECAY, BETA1, BETA2, EPSILON, RULES };

static tl_status fail_at(const reader *r, const char *at, const char *format, ...) TL_PRINTF(3, 4);
static tl_status fail_at(const reader *r, const char *at, const char *format, ...) {
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tl_fail(r->error, TL_ERR_ARGUMENT, "group %d%s%.80s%s, character %d: %s", r->list->count + 1,
                   r->group->pattern ? " \"" : "", r->group->pattern ? r->group->pattern : "",
                   r->group->pattern ? "\"" : "", (int)(at - r->list->text) + 1, what);
}

static tl_status read_number(reader *r, int which, const char *at, const char *text) {
    tl_error inner = {TL_OK, ""};
    tl_parameter_group *g = r->group;
    double value = 0;
    if (r->given[which])
        return fail_at(r, at, "%s is given twice", rules[which]);
    r->given[which] = true;
    if (tl_parse_number(text, 0, which == BETA1 || which == BETA2 ? 1 : 1e30, &value, &inner) != TL_OK)
        return fail_at(r, at, "%s: %s", rules[which], inner.message);
    switch (which) {
    case LR:
        if (!(r->base->lr > 0))
            return fail_at(r, at, "lr=%s: the run's own learning rate is 0, of which it is no multiple", text);
        g->lr_factor = value / r->base->lr;
        break;
    case LR_FACTOR:
        g->lr_factor = value;
        break;
    case WEIGHT_DECAY:
        g->weight_decay = value;
        return TL_OK;
    case BETA1:
    case BETA2:
        *(which == BETA1 ? &g->beta1 : &g->beta2) = value;
        return value < 1 ? TL_OK : fail_at(r, at, "%s is %s; it lies below 1", rules[which], text);
    default:
        g->epsilon = value;
        break;
    }
    return value > 0 ? TL_OK
                     : fail_at(r, at, "%s=%s: a number above 0 would work%s", rules[which], text,
                               which == EPSILON ? "" : ", or frozen");
}

static tl_status read_rule(reader *r, char *rule) {
    char *equals = strchr(rule, '=');
    if (strcmp(rule, "frozen") == 0) {
        if (r->group->frozen)
            return fail_at(r, rule, "frozen is given twice");
        r->group->frozen = true;
        return TL_OK;
    }
    for (int i = 0; equals && i < RULES; i++)
        if (strlen(rules[i]) == (size_t)(equals - rule) && strncmp(rules[i], rule, (size_t)(equals - rule)) == 0)
            return read_number(r, i, rule, equals + 1);
    return fail_at(
        r, rule, "\"%.40s\" is no rule; lr=X, lr-factor=X, weight-decay=X, beta1=X, beta2=X, epsilon=X and frozen are",
        rule);
}

/* What was left out is as without the group. */
static tl_status complete(reader *r, const char *at) {
    tl_parameter_group *g = r->group;
    bool any = false;
    for (int i = 0; i < RULES; i++)
        any |= r->given[i];
    if (r->given[LR] && r->given[LR_FACTOR])
        return fail_at(r, at, "lr and lr-factor say the same thing; one of them would work");
    if (g->frozen && any)
        return fail_at(r, at, "it is frozen, and its other rules change nothing; frozen alone would work");
    if (g->frozen) {
        g->lr_factor = g->weight_decay = 0;
        return TL_OK;
    }
    g->has_betas = r->given[BETA1] || r->given[BETA2];
    if (g->has_betas && !r->given[BETA1])
        g->beta1 = r->base->beta1;
    if (g->has_betas && !r->given[BETA2])
        g->beta2 = r->base->beta2;
    return TL_OK;
}

static tl_status read_group(reader *r, char *text) {
    char *colon = strchr(text, ':');
    memset(r->given, 0, sizeof r->given);
    *r->group = (tl_parameter_group){.lr_factor = 1, .weight_decay = TL_GROUP_DECAY};
    if (!colon || colon == text || !colon[1])
        return fail_at(r, text, "\"%.80s\" is not PATTERN:RULE,RULE, such as *.bias:weight-decay=0 or wte.*:frozen",
                       text);
    *colon = '\0';
    r->group->pattern = text;
    for (char *at = colon + 1, *next; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        const tl_status status = read_rule(r, at);
        if (status != TL_OK)
            return status;
    }
    return complete(r, text);
}

tl_status tl_groups_parse(const char *text, const tl_optimizer_options *base, tl_group_list *list, tl_error *error) {
    reader r = {.list = list, .base = base, .error = error};
    memset(list, 0, sizeof *list);
    if (strlen(text) >= sizeof list->text)
        return tl_fail(error, TL_ERR_ARGUMENT, "groups of %zu bytes; fewer than %zu would work", strlen(text),
                       sizeof list->text);
    memcpy(list->text, text, strlen(text) + 1);
    for (char *at = text[0] ? list->text : NULL, *next; at; at = next) {
        next = strchr(at, ';');
        if (next)
            *next++ = '\0';
        if (list->count == TL_GROUPS_MOST)
            return tl_fail(error, TL_ERR_ARGUMENT, "more than %d groups", TL_GROUPS_MOST);
        r.group = &list->group[list->count];
        const tl_status status = read_group(&r, at);
        if (status != TL_OK)
            return status;
        list->count++;
    }
    return TL_OK;
}
