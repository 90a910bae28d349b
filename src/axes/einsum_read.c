/* An einsum pattern as labels of axes. */
#include "axes/einsum.h"

#include <string.h>

/* One term: tokens [from, to). */
typedef struct term {
    int from, to;
} term;

static tl_status find_terms(const tl_pattern *p, int n, term terms[], term *out, bool *has_out) {
    int count = 0, from = 0;
    *has_out = false;
    for (int i = 0; i <= p->n; i++) {
        const tl_token *t = &p->token[i];
        if (t->kind == TL_TOKEN_NAME || t->kind == TL_TOKEN_ELLIPSIS)
            continue;
        if (t->kind == TL_TOKEN_OPEN || t->kind == TL_TOKEN_CLOSE || t->kind == TL_TOKEN_STAR ||
            t->kind == TL_TOKEN_NUMBER)
            return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT,
                                   "'%.*s' has no meaning in einsum: axes are names%s", t->length, p->text + t->at,
                                   t->kind == TL_TOKEN_OPEN ? "; tl_rearrange splits and merges" : "");
        if (*has_out && t->kind != TL_TOKEN_END)
            return tl_pattern_fail(p, t->at, t->length, TL_ERR_ARGUMENT, "%s after the output",
                                   t->kind == TL_TOKEN_ARROW ? "a second ->" : "','");
        if (*has_out) {
            *out = (term){from, i};
            break;
        }
        if (count < n)
            terms[count] = (term){from, i};
        count++;
        from = i + 1;
        *has_out = t->kind == TL_TOKEN_ARROW;
    }
    if (count != n)
        return tl_pattern_fail(p, -1, 0, TL_ERR_ARGUMENT, "the pattern has %d operands, but %d were given", count, n);
    return TL_OK;
}

/* Two words in a term can only be there with a blank between them. */
static bool has_words(const tl_pattern *p) {
    for (int i = 0; i < p->n; i++) {
        const tl_token *t = &p->token[i];
        if (t->kind != TL_TOKEN_NAME)
            continue;
        if (p->token[i + 1].kind == TL_TOKEN_NAME)
            return true;
        for (int k = t->at; k < t->at + t->length; k++)
            if (p->text[k] == '_' || (p->text[k] >= '0' && p->text[k] <= '9'))
                return true;
    }
    return false;
}

/* Walks the names of a term, letter by letter or word by word. */
typedef struct walk {
    const tl_einsum_plan *plan;
    const tl_pattern *p;
    int token, to, letter, at, length;
    bool ellipsis;
} walk;

static bool next_name(walk *w) {
    if (w->token == w->to)
        return false;
    const tl_token *t = &w->p->token[w->token];
    w->ellipsis = t->kind == TL_TOKEN_ELLIPSIS;
    w->at = t->at + w->letter;
    w->length = w->plan->words || w->ellipsis ? t->length : 1;
    w->letter += w->length;
    if (w->letter == t->length) {
        w->token++;
        w->letter = 0;
    }
    return true;
}

static int find_label(const tl_einsum_plan *plan, const tl_pattern *p, int at, int length) {
    for (int i = 0; i < plan->labels; i++) {
        const char *name = plan->label[i].name;
        if (name && strncmp(name, p->text + at, (size_t)length) == 0 && name[length] == '\0')
            return i;
    }
    return -1;
}

static tl_status count_names(const tl_einsum_plan *plan, const tl_pattern *p, term where, int *names, int *ellipsis) {
    walk w = {.plan = plan, .p = p, .token = where.from, .to = where.to};
    *names = 0;
    *ellipsis = -1;
    while (next_name(&w)) {
        if (!w.ellipsis) {
            (*names)++;
            continue;
        }
        if (*ellipsis >= 0)
            return tl_pattern_fail(p, w.at, 3, TL_ERR_ARGUMENT, "a second ... in one operand");
        *ellipsis = w.at;
    }
    return TL_OK;
}

static tl_status meet_label(tl_einsum_plan *plan, const tl_pattern *p, const walk *w, int operand, int axis,
                            int64_t size) {
    int i = find_label(plan, p, w->at, w->length);
    if (i < 0) {
        i = plan->labels++;
        tl_label *fresh = &plan->label[i];
        *fresh = (tl_label){.size = size, .at = w->at, .length = w->length, .operand = operand, .axis = axis};
        if (!(fresh->name = tl_pattern_name(p, w->at, w->length)))
            return p->ctx->error.status;
    }
    tl_label *label = &plan->label[i];
    if (label->size != size)
        return tl_pattern_fail(p, w->at, w->length, TL_ERR_SHAPE,
                               "axis %s is %lld in operand %d, but %lld in operand %d", label->name, (long long)size,
                               operand, (long long)label->size, label->operand);
    label->times++;
    plan->axis[operand][axis] = (uint8_t)i;
    return TL_OK;
}

/* `...` of each operand, matched from the right: labels 0 … spread−1 are its axes. */
static tl_status meet_ellipsis(tl_einsum_plan *plan, const tl_pattern *p, int at, int operand, int axis, int have,
                               int spread) {
    for (int k = 0; k < have; k++) {
        int label = spread - have + k;
        tl_label *l = &plan->label[label];
        int64_t size = plan->size[operand][axis + k];
        if (l->size != size && l->size != 1 && size != 1)
            return tl_pattern_fail(
                p, at, 3, TL_ERR_SHAPE,
                "axis %d of ... is %lld in operand %d, but %lld before; equal sizes, or 1, broadcast", k - have,
                (long long)size, operand, (long long)l->size);
        if (l->size == 1) {
            l->size = size;
            l->operand = operand;
            l->axis = axis + k;
        }
        plan->axis[operand][axis + k] = (uint8_t)label;
    }
    return TL_OK;
}

static tl_status read_operand(tl_einsum_plan *plan, const tl_pattern *p, term where, int operand, int spread,
                              const tl_tensor *t) {
    walk w = {.plan = plan, .p = p, .token = where.from, .to = where.to};
    int names, ellipsis, axis = 0;
    char text[200];
    tl_status status = count_names(plan, p, where, &names, &ellipsis);
    int have = plan->ndim[operand] - names;
    if (status != TL_OK)
        return status;
    if (have < 0 || (ellipsis < 0 && have > 0)) {
        const tl_token *first = &p->token[where.from];
        int end = where.to > where.from ? p->token[where.to - 1].at + p->token[where.to - 1].length : first->at + 1;
        bool word = where.to == where.from + 1 && first->length > 1;
        const char *hint = !word         ? ""
                           : plan->words ? " (each word is an axis where two words stand side by side in the pattern)"
                                         : " (each letter is an axis where no two words stand side by side)";
        return tl_pattern_fail(p, first->at, end - first->at, TL_ERR_SHAPE,
                               "operand %d, %s, has %d axes, but the pattern names %s%d%s", operand,
                               tl_tensor_text(t, text, sizeof text), plan->ndim[operand],
                               ellipsis >= 0 ? "at least " : "", names, hint);
    }
    while (next_name(&w) && status == TL_OK) {
        if (w.ellipsis) {
            status = meet_ellipsis(plan, p, w.at, operand, axis, have, spread);
            axis += have;
        } else {
            status = meet_label(plan, p, &w, operand, axis, plan->size[operand][axis]);
            axis++;
        }
    }
    return status;
}

static tl_status add_output(tl_einsum_plan *plan, const tl_pattern *p, int at, int length, int label) {
    if (plan->n_out == TL_MAX_NDIM)
        return tl_pattern_fail(p, at, length, TL_ERR_SHAPE, "too many axes: the output would have more than %d",
                               TL_MAX_NDIM);
    plan->out[plan->n_out++] = (uint8_t)label;
    return TL_OK;
}

static tl_status read_output(tl_einsum_plan *plan, const tl_pattern *p, term where, int spread) {
    walk w = {.plan = plan, .p = p, .token = where.from, .to = where.to};
    bool ellipsis = false;
    while (next_name(&w)) {
        tl_status status = TL_OK;
        if (w.ellipsis) {
            if (ellipsis)
                return tl_pattern_fail(p, w.at, 3, TL_ERR_ARGUMENT, "a second ... in the output");
            ellipsis = true;
            for (int i = 0; i < spread && status == TL_OK; i++)
                status = add_output(plan, p, w.at, 3, i);
        } else {
            int i = find_label(plan, p, w.at, w.length);
            if (i < 0)
                return tl_pattern_fail(p, w.at, w.length, TL_ERR_ARGUMENT, "unknown axis \"%.*s\": no operand has it",
                                       w.length, p->text + w.at);
            for (int k = 0; k < plan->n_out; k++)
                if (plan->out[k] == i)
                    return tl_pattern_fail(p, w.at, w.length, TL_ERR_ARGUMENT,
                                           "axis \"%s\" is named twice in the output", plan->label[i].name);
            status = add_output(plan, p, w.at, w.length, i);
        }
        if (status != TL_OK)
            return status;
    }
    if (!ellipsis && spread > 0)
        return tl_pattern_fail(p, p->token[where.to].at, 1, TL_ERR_ARGUMENT,
                               "the output lacks ..., which stands for %d axes of the operands; reduce them by name",
                               spread);
    return TL_OK;
}

/* numpy's rule: the axes of `...`, then what occurs once, in order of bytes. */
static tl_status imply_output(tl_einsum_plan *plan, const tl_pattern *p, int spread) {
    for (int i = 0; i < plan->labels; i++) {
        if (plan->label[i].name && plan->label[i].times != 1)
            continue;
        tl_status status = add_output(plan, p, plan->label[i].at, plan->label[i].length, i);
        if (status != TL_OK)
            return status;
        for (int k = plan->n_out - 1; k > spread; k--) {
            uint8_t before = plan->out[k - 1], here = plan->out[k];
            if (strcmp(plan->label[before].name, plan->label[here].name) <= 0)
                break;
            plan->out[k - 1] = here;
            plan->out[k] = before;
        }
    }
    return TL_OK;
}

tl_status tl_einsum_read(tl_einsum_plan *plan, tl_pattern *p, tl_tensor *const operands[]) {
    term terms[TL_MAX_IO], out = {0};
    bool has_out;
    int spread = 0;
    tl_status status = find_terms(p, plan->n, terms, &out, &has_out);
    if (status != TL_OK)
        return status;
    plan->words = has_words(p);
    for (int i = 0; i < plan->n; i++) {
        int names, ellipsis;
        if ((status = count_names(plan, p, terms[i], &names, &ellipsis)) != TL_OK)
            return status;
        if (ellipsis >= 0 && plan->ndim[i] - names > spread)
            spread = plan->ndim[i] - names;
    }
    for (int i = 0; i < spread; i++)
        plan->label[plan->labels++] = (tl_label){.size = 1, .length = 3};
    for (int i = 0; i < plan->n; i++)
        if ((status = read_operand(plan, p, terms[i], i, spread, operands[i])) != TL_OK)
            return status;
    return has_out ? read_output(plan, p, out, spread) : imply_output(plan, p, spread);
}
