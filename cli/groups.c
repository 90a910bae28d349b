/* cli/groups.c: parameter groups, from the command line and in what is printed. */
#include "groups.h"

#include <stdlib.h>
#include <string.h>

int tl_cli_groups(const tl_cli *cli, const char *file, const char *text, tl_optimizer_options *o) {
    static tl_group_list list; /* one run a program; copies of the options borrow it */
    tl_error error = {TL_OK, ""};
    if (!text[0])
        return tl_usage(cli, "--groups needs PATTERN:RULE,RULE;…, such as \"*.bias:weight-decay=0\"");
    if (o->kind == TL_OPTIM_NONE)
        return tl_usage(cli, "--groups changes nothing: --optim none has no rules");
    const tl_status status = tl_groups_parse(text, o, &list, &error);
    if (status != TL_OK && file[0]) {
        tl_say(cli, "%s: \"groups\": %s", file, error.message);
        return TL_EXIT_FAILED;
    }
    if (status != TL_OK)
        return tl_usage(cli, "--groups: %s", error.message);
    o->groups = list.group;
    o->n_groups = list.count;
    return TL_EXIT_OK;
}

int tl_groups_failed(const tl_cli *cli, const char *file, tl_error *error) {
    static const char of_groups[] = "parameter group";
    char message[sizeof error->message];
    bool of_file = false;
    if (strncmp(error->message, of_groups, sizeof of_groups - 1) == 0) {
        snprintf(message, sizeof message, "%s", error->message);
        snprintf(error->message, sizeof error->message, "%s%.300s%s: %.600s", file[0] ? "" : "--groups", file,
                 file[0] ? ": \"groups\"" : "", message);
        of_file = file[0] != '\0';
    }
    int status = tl_failed(cli, error);
    return of_file ? TL_EXIT_FAILED : status; /* a wrong value in a file is no misuse of the command */
}

/* ---- from a file ---- */

static void append(char *text, size_t size, const char *a, const char *b, const char *c) {
    const size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%s%s", a, b, c);
}

static tl_status add_rule(const tl_run_file *file, const char *path, const char *at, const char *key, bool first,
                          char *text, size_t size, tl_error *error) {
    char value[TL_TEXT], place[192];
    snprintf(place, sizeof place, "%s.%s", at, key);
    if (strcmp(key, "frozen") == 0) {
        if (tl_run_file_kind(file, place) != TL_RUN_FLAG)
            return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is true or false", path, place);
        if (tl_run_file_number(file, place) > 0)
            append(text, size, first ? "" : ",", key, "");
        return TL_OK;
    }
    if (tl_run_file_kind(file, place) != TL_RUN_NUMBER)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: \"%s\" is no number; lr, lr-factor, weight-decay, beta1, beta2 and "
                       "epsilon are, frozen is true or false, and match is the pattern",
                       path, place);
    append(text, size, first ? "" : ",", key, "=");
    append(text, size, tl_text_exact(tl_run_file_number(file, place), value), "", "");
    return TL_OK;
}

static tl_status add_group(const tl_run_file *file, const char *path, int64_t index, char *text, size_t size,
                           tl_error *error) {
    char at[96], place[128];
    const char *key;
    bool first = true;
    snprintf(at, sizeof at, "groups.%lld", (long long)index);
    snprintf(place, sizeof place, "%s.match", at);
    const char *match = tl_run_file_text(file, place, error);
    if (!match)
        return error->status;
    if (!match[0] || strpbrk(match, ":;,"))
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" is \"%.80s\"; a pattern of names (\"*.bias\") is wanted", path,
                       place, match);
    append(text, size, index ? ";" : "", match, ":");
    for (int64_t i = 0; (key = tl_run_file_key(file, at, i)) != NULL; i++) {
        if (strcmp(key, "match") == 0)
            continue;
        const size_t before = strlen(text);
        if (strlen(key) > 40 || strpbrk(key, ".:;,="))
            return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" has a key that is no rule", path, at);
        const tl_status status = add_rule(file, path, at, key, first, text, size, error);
        if (status != TL_OK)
            return status;
        first = first && strlen(text) == before;
    }
    if (strlen(text) + 1 >= size)
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"groups\" is too long: as one line it must stay below %zu bytes",
                       path, size);
    if (first)
        return tl_fail(error, TL_ERR_FORMAT, "%s: \"%s\" has no rule; weight-decay, lr-factor or frozen would be one",
                       path, at);
    return TL_OK;
}

tl_status tl_groups_from_file(const tl_run_file *file, const char *path, char *text, size_t size, tl_error *error) {
    if (tl_run_file_kind(file, "groups") != TL_RUN_LIST)
        return tl_run_file_typed(file, "groups", text, size, error);
    text[0] = '\0';
    for (int64_t i = 0; i < tl_run_file_count(file, "groups"); i++) {
        const tl_status status = add_group(file, path, i, text, size, error);
        if (status != TL_OK)
            return status;
    }
    return TL_OK;
}

/* ---- printed ---- */

char *tl_group_text(const tl_optimizer_options *o, const tl_plan_group *g, char *text, size_t size) {
    const tl_parameter_rule *r = &g->rule;
    char tensors[TL_TEXT], count[TL_TEXT], lr[48] = "", decay[48] = "no decay", moments[96] = "", name[128] = "default";
    if (r->group >= 0)
        snprintf(name, sizeof name, "%d \"%.100s\"", r->group + 1, o->groups[r->group].pattern);
    if (r->lr_factor != 1)
        snprintf(lr, sizeof lr, "lr times %g, ", r->lr_factor);
    if (r->weight_decay > 0)
        snprintf(decay, sizeof decay, "decay %g", r->weight_decay);
    if (r->beta1 != o->beta1 || r->beta2 != o->beta2)
        snprintf(moments, sizeof moments, ", betas %g %g", r->beta1, r->beta2);
    const size_t at = strlen(moments);
    if (r->epsilon != o->epsilon)
        snprintf(moments + at, sizeof moments - at, ", epsilon %g", r->epsilon);
    snprintf(text, size, "%s: %s tensor%s, %s parameters: %s%s%s", name, tl_text_grouped((tl_u128)g->tensors, tensors),
             g->tensors == 1 ? "" : "s", tl_text_grouped((tl_u128)g->parameters, count), r->frozen ? "frozen" : lr,
             r->frozen ? "" : decay, r->frozen ? "" : moments);
    return text;
}

void tl_groups_out(const tl_cli *cli, const tl_optimizer_options *o, const tl_plan *p) {
    char text[512];
    for (int i = 0; i < p->n_groups; i++)
        tl_out_item(cli, i ? "" : "groups", "%s", tl_group_text(o, &p->groups[i], text, sizeof text));
}

void tl_groups_json(tl_json *json, const tl_optimizer_options *o, const tl_plan *p) {
    tl_json_key(json, "groups");
    tl_json_array(json);
    for (int i = 0; i < p->n_groups; i++) {
        const tl_plan_group *g = &p->groups[i];
        tl_json_object(json);
        tl_json_key(json, "match");
        if (g->rule.group >= 0)
            tl_json_string(json, o->groups[g->rule.group].pattern);
        else
            tl_json_null(json);
        tl_json_put_integer(json, "tensors", g->tensors);
        tl_json_put_integer(json, "parameters", g->parameters);
        tl_json_put_boolean(json, "frozen", g->rule.frozen);
        if (!g->rule.frozen) {
            tl_json_put_real(json, "lr_factor", g->rule.lr_factor);
            tl_json_put_real(json, "weight_decay", g->rule.weight_decay);
        }
        if (!g->rule.frozen && tl_optimizer_defaults(o->kind).beta2 > 0) {
            tl_json_put_real(json, "beta1", g->rule.beta1);
            tl_json_put_real(json, "beta2", g->rule.beta2);
        }
        if (!g->rule.frozen && g->rule.epsilon > 0)
            tl_json_put_real(json, "epsilon", g->rule.epsilon);
        tl_json_end(json);
    }
    tl_json_end(json);
}
