/* cli/choices_out.c: the options that say how a model is run, to tally/choices.h and back. */
#include <string.h>

#include "tally/engine.h"
#include "verb.h"

/* The options that are one choice each; --choice has them all. */
static const tl_option single[] = {
    TL_OPTION_ATTENTION, TL_OPTION_LOSS,      TL_OPTION_NORM,  TL_OPTION_GLU,    TL_OPTION_GELU,
    TL_OPTION_ROTARY,    TL_OPTION_REPEAT_KV, TL_OPTION_GRADS, TL_OPTION_UPDATE, TL_OPTION_UPDATE_IN_BACKWARD,
    TL_OPTION_DOCUMENTS};
enum { SINGLE = sizeof single / sizeof single[0] };

int tl_cli_way(const tl_cli *cli, tl_option option, const char *text) {
    tl_choices scratch = {0};
    tl_error error = {TL_OK, ""};
    const char *name = tl_option_name(option), *const *known = tl_option_choices(option);
    tl_status status = option == TL_OPTION_CHOICE ? tl_choices_parse(text, &scratch, &error)
                                                  : tl_choice_set(&scratch, name, text, &error);
    if (status == TL_OK && option == TL_OPTION_CHOICE && !text[0])
        return tl_usage(cli, "--choice needs NAME=VALUE, as norm=composed");
    if (status == TL_OK)
        return TL_EXIT_OK;
    const char *near = known && !strchr(text, ':') ? tl_nearest_of(text, known) : NULL;
    return tl_usage(cli, "--%s%s%s%s%s", option == TL_OPTION_CHOICE ? "choice: " : "", error.message,
                    near ? ". Did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Whether --choice sets `name` too. */
static bool says(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return true;
    return false;
}

const tl_engine *tl_cli_engine(const tl_cli *cli) {
    const tl_engine *engine = NULL;
    return tl_engine_find(tl_option_choice(cli, TL_OPTION_ENGINE), &engine, NULL) == TL_OK ? engine : tl_engine_at(0);
}

void tl_cli_formats(const tl_cli *cli, tl_precision *precision, bool *autocast) {
    const tl_engine *engine = tl_cli_engine(cli);
    const tl_option_value *at = cli->options.at;
    *precision = tl_given(cli, TL_OPTION_PRECISION) ? (tl_precision)at[TL_OPTION_PRECISION].choice : engine->precision;
    *autocast = tl_given(cli, TL_OPTION_AUTOCAST) ? at[TL_OPTION_AUTOCAST].choice != 0
                                                  : engine->autocast && *precision >= TL_PRECISION_BF16_MIXED;
}

int tl_cli_choices(const tl_cli *cli, tl_choices *choices) {
    tl_error error = {TL_OK, ""};
    const char *list = cli->options.at[TL_OPTION_CHOICE].text;
    if (list && tl_choices_parse(list, choices, &error) != TL_OK)
        return tl_failed(cli, &error);
    for (int i = 0; i < SINGLE; i++) {
        const char *name = tl_option_name(single[i]), *text = cli->options.at[single[i]].text;
        if (text && says(list, name))
            return tl_usage(cli, "--%s %s: --choice %s says it already", name, text, list);
        if (text && tl_choice_set(choices, name, text, &error) != TL_OK)
            return tl_failed(cli, &error);
    }
    return TL_EXIT_OK;
}

bool tl_cli_gives_choices(const tl_cli *cli) {
    bool given = tl_given(cli, TL_OPTION_CHOICE);
    for (int i = 0; i < SINGLE; i++)
        given = given || tl_given(cli, single[i]);
    return given;
}

/* The value that a list gives `name`, as typed. */
static const char *said_in(const char *list, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(value, size, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
            return value;
        }
    return NULL;
}

char *tl_cli_choices_said(const tl_cli *cli, const char *before, char *buffer, size_t size) {
    size_t at = 0;
    buffer[0] = '\0';
    for (int i = 0; i < tl_choice_count() && at < size; i++) {
        const char *name = tl_choice_at(i)->name, *said = NULL;
        char value[64], text[64];
        tl_choices one = {0};
        tl_error error = {TL_OK, ""};
        for (int k = 0; k < SINGLE && !said; k++)
            if (strcmp(tl_option_name(single[k]), name) == 0)
                said = cli->options.at[single[k]].text;
        said = said ? said : said_in(cli->options.at[TL_OPTION_CHOICE].text, name, value, sizeof value);
        said = said ? said : said_in(before, name, value, sizeof value);
        if (said && tl_choice_set(&one, name, said, &error) == TL_OK)
            at += (size_t)snprintf(buffer + at, size - at, "%s%s=%s", at ? "," : "", name,
                                   tl_choice_value(&one, i, text, sizeof text));
    }
    return buffer;
}

void tl_choices_json(tl_json *json, const tl_choices *choices) {
    char text[40];
    tl_json_key(json, "choices");
    tl_json_object(json);
    for (int i = 0; i < tl_choice_count(); i++)
        tl_json_put_string(json, tl_choice_at(i)->name, tl_choice_value(choices, i, text, sizeof text));
    tl_json_end(json);
}
