/* One side of a pattern as groups of axes. */
#include "axes/pattern.h"

static tl_status check_name(const tl_pattern *p, const tl_token *t, tl_side_rules rules) {
    const char *name = p->text + t->at;
    if (t->length == 1 && name[0] == '_') {
        if (rules.underscore)
            return TL_OK;
        return tl_pattern_fail(p, t->at, 1, TL_ERR_ARGUMENT, "'_' is no name; an axis that is moved needs one");
    }
    if (name[0] == '_' || name[t->length - 1] == '_')
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT,
                               "axis \"%.*s\": a name neither starts nor ends with an underscore", t->length, name);
    return TL_OK;
}

static tl_status add_atom(const tl_pattern *p, const tl_token *t, tl_side_rules rules, tl_side *side) {
    if (side->n_atom == TL_SIDE_ATOMS)
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_SHAPE, "too many axes: more than %d on one side",
                               TL_SIDE_ATOMS);
    tl_atom *atom = &side->atom[side->n_atom];
    *atom = (tl_atom){.kind = t->kind, .at = t->at, .length = t->length};
    if (t->kind == TL_TOKEN_NUMBER) {
        if (t->number < 1)
            return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "an unnamed axis of size 0; at least 1");
        if (t->number > 1 && !rules.numbers)
            return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT,
                                   "an unnamed axis of size %lld; only 1 can be written as a number here",
                                   (long long)t->number);
        atom->number = t->number;
    } else if (t->kind == TL_TOKEN_NAME) {
        tl_status status = check_name(p, t, rules);
        if (status != TL_OK)
            return status;
        if (!(atom->name = tl_pattern_name(p, t->at, t->length)))
            return p->ctx->error.status;
        for (int i = 0; i < side->n_atom && !rules.repeated; i++)
            if (side->atom[i].name == atom->name)
                return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "axis \"%s\" is named twice on one side",
                                       atom->name);
    }
    side->n_atom++;
    return TL_OK;
}

static tl_status add_special(const tl_pattern *p, const tl_token *t, tl_side_rules rules, bool inside, tl_side *side) {
    bool star = t->kind == TL_TOKEN_STAR;
    if (star ? !rules.star : !rules.ellipsis)
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "%s has no meaning here", star ? "*" : "...");
    if (inside && !rules.ellipsis_inside)
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "%s inside parentheses", star ? "*" : "...");
    if (side->special >= 0)
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "a second %s", star ? "*" : "...");
    side->special = side->n_group - (inside ? 1 : 0);
    return TL_OK;
}

/* Whatever is no parenthesis: an axis by itself, or one more of the group that is open. */
static tl_status add_axis(const tl_pattern *p, const tl_token *t, tl_side_rules rules, bool inside, tl_side *side) {
    tl_status status = TL_OK;
    if (t->kind == TL_TOKEN_COMMA || t->kind == TL_TOKEN_ARROW)
        return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "'%.*s' has no meaning here", t->length,
                               p->text + t->at);
    if (t->kind == TL_TOKEN_ELLIPSIS || t->kind == TL_TOKEN_STAR)
        status = add_special(p, t, rules, inside, side);
    if (!inside && status == TL_OK) {
        side->group[side->n_group].first = side->n_atom;
        side->group[side->n_group].n = 0;
        side->group[side->n_group].at = t->at;
        side->group[side->n_group].length = t->length;
        side->group[side->n_group++].composed = false;
    }
    if (status == TL_OK)
        status = add_atom(p, t, rules, side);
    if (status == TL_OK)
        side->group[side->n_group - 1].n++;
    return status;
}

tl_status tl_side_parse(const tl_pattern *p, int from, int to, tl_side_rules rules, tl_side *side) {
    bool inside = false;
    side->n_atom = side->n_group = 0;
    side->special = -1;
    for (int i = from; i < to; i++) {
        const tl_token *t = &p->token[i];
        tl_status status = TL_OK;
        if (!inside && side->n_group == TL_SIDE_ATOMS)
            return tl_pattern_fail(p, t->at, t->length, TL_ERR_SHAPE, "too many axes: more than %d on one side",
                                   TL_SIDE_ATOMS);
        if (t->kind == TL_TOKEN_OPEN) {
            if (!rules.composed)
                return tl_pattern_fail(p, t->at, 1, TL_ERR_ARGUMENT, "parentheses have no meaning here");
            if (inside)
                return tl_pattern_fail(p, t->at, 1, TL_ERR_ARGUMENT, "parentheses inside parentheses");
            inside = true;
            side->group[side->n_group].first = side->n_atom;
            side->group[side->n_group].n = 0;
            side->group[side->n_group].at = t->at;
            side->group[side->n_group++].composed = true;
        } else if (t->kind == TL_TOKEN_CLOSE) {
            if (!inside)
                return tl_pattern_fail(p, t->at, 1, TL_ERR_ARGUMENT, "unbalanced parentheses: nothing to close");
            inside = false;
            side->group[side->n_group - 1].length = t->at + 1 - side->group[side->n_group - 1].at;
        } else
            status = add_axis(p, t, rules, inside, side);
        if (status != TL_OK)
            return status;
    }
    if (inside)
        return tl_pattern_fail(p, side->group[side->n_group - 1].at, 1, TL_ERR_ARGUMENT,
                               "unbalanced parentheses: this one is never closed");
    return TL_OK;
}
