/* cli/choices_out.c: the options that say how a model is run, to tally/choices.h and back. */
#include <string.h>

#include "verb.h"

/* The options that are one choice each; --choice has them all. */
static const tl_option single[] = {
    TL_OPTION_ATTENTION, TL_OPTION_LOSS,      TL_OPTION_NORM,  TL_OPTION_GLU,    TL_OPTION_GELU,
    TL_OPTION_ROTARY,    TL_OPTION_REPEAT_KV, TL_OPTION_GRADS, TL_OPTION_UPDATE, TL_OPTION_UPDATE_IN_BACKWARD};
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

void tl_choices_json(tl_json *json, const tl_choices *choices) {
    char text[40];
    tl_json_key(json, "choices");
    tl_json_object(json);
    for (int i = 0; i < tl_choice_count(); i++)
        tl_json_put_string(json, tl_choice_at(i)->name, tl_choice_value(choices, i, text, sizeof text));
    tl_json_end(json);
}
